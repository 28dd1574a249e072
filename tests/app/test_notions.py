from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from tests.app.openapi_harness import document
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def ask(client, given, *to):
    response = client.post("/v1/conversions", json={"given": given, "to": list(to)})
    assert response.status_code == 200, response.text
    return response.json()["conversions"]


def test_the_documented_example_runs(client):
    schema = document()["components"]["schemas"]["ConversionsRequest"]
    answer = client.post("/v1/conversions", json=schema["examples"][0])
    assert answer.status_code == 200
    statuses = [found["status"] for found in answer.json()["conversions"]]
    assert statuses == ["impossible", "exact", "exact", "exact", "exact", "bound", "exact", "exact"]


def test_all_pairs_are_listed_with_their_reasons(client):
    pairs = client.get("/v1/conversions").json()
    assert len({(pair["given"], pair["to"]) for pair in pairs}) == 49
    assert {pair["status"] for pair in pairs} == {"exact", "bound", "impossible"}
    assert all(pair["formula"] and pair["source"] and pair["why"] for pair in pairs)


def test_pure_privacy_is_concentrated_exactly(client):
    (found,) = ask(client, {"kind": "pure", "epsilon": 1.0}, {"kind": "zcdp"})
    assert found["value"] == pytest.approx(0.46211715726000975, rel=1e-15)
    assert found["attained_by"].startswith("randomised response")


def test_an_impossible_target_is_infinite_and_shows_its_counterexample(client):
    (found,) = ask(client, {"kind": "approximate", "epsilon": 1.0, "delta": "1e-400"}, {"kind": "pure"})
    assert (found["status"], found["value"]) == ("impossible", "Infinity")
    assert "1e-400" in found["counterexample"]


def test_a_delta_below_every_float_keeps_its_logarithm(client):
    (found,) = ask(client, {"kind": "gdp", "mu": 1.0}, {"kind": "approximate", "epsilon": 40.0})
    assert found["log_value"] == pytest.approx(-788.423412774, rel=1e-11)
    assert 0.0 < found["value"] < 1e-300


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "zcdp", "rho": -1.0},
        {"kind": "zcdp", "rho": 1e-60},
        {"kind": "rdp", "order": 1.0, "value": 1.0},
        {"kind": "trade_off", "alpha": 0.5, "beta": 0.6},
        {"kind": "approximate", "epsilon": 1.0, "delta": "nan"},
        {"kind": "advantage", "value": 1.5},
        {"kind": "gdp", "mu": "1"},
        {"kind": "other"},
    ],
    ids=str,
)
def test_levels_out_of_range_are_refused(client, given):
    problem(client.post("/v1/conversions", json={"given": given, "to": [{"kind": "pure"}]}))


@pytest.mark.parametrize("to", [{"kind": "approximate"}, {"kind": "approximate", "epsilon": 1.0, "delta": 0.1}, {"kind": "rdp"}], ids=str)
def test_a_target_without_exactly_one_point_is_refused(client, to):
    problem(client.post("/v1/conversions", json={"given": {"kind": "gdp", "mu": 1.0}, "to": [to]}))


def test_asking_for_nothing_is_refused(client):
    problem(client.post("/v1/conversions", json={"given": {"kind": "gdp", "mu": 1.0}, "to": []}))
