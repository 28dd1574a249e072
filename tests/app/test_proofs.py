from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms import DECLARED, MECHANISMS


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1") as client:
        yield client


def test_every_mechanism_links_to_a_proof_that_is_served(client):
    entries = client.get("/v1/mechanisms").json()
    assert len(entries) == len(MECHANISMS) + len(DECLARED)
    for entry in entries:
        proof = client.get(entry["proof"])
        assert proof.status_code == 200
        # What is declared isn't claimed: its proof says what follows from it, by its kind.
        assert (f"`{entry['kind']}`" if entry["declared"] else "**Claim.**") in proof.json()["markdown"]


def test_every_listed_proof_is_served_and_has_a_title(client):
    entries = client.get("/v1/proofs").json()
    assert {"complex_gaussian", "contour"} <= {entry["name"] for entry in entries}
    for entry in entries:
        text = client.get(entry["path"]).json()
        assert text["markdown"].startswith(f"# {entry['title']}")


def test_proof_names_are_unique_over_the_layers(client):
    names = [entry["name"] for entry in client.get("/v1/proofs").json()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["nothing", "..%2F..%2Fpyproject.toml", "laplace.md.md"])
def test_unknown_proofs_are_refused(client, name):
    response = client.get(f"/v1/proofs/{name}")
    assert response.status_code in (404, 422)
    if response.status_code == 422:
        assert "one of" in problem(response)["detail"]
