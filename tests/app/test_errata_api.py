"""GET /v1/errata: the whole table, parts of it, one row."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms.errata import ERRATA


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1")


def test_all_rows_are_listed(client):
    answer = client.get("/v1/errata")
    assert answer.status_code == 200
    assert answer.json() == [row.model_dump(mode="json") for row in ERRATA]


def test_rows_are_chosen_by_paper_and_by_severities(client):
    answer = client.get("/v1/errata", params={"paper": "spof", "severity": ["O", "o"]}).json()
    assert [row["row"] for row in answer] == [row.row for row in ERRATA if row.paper == "spof" and row.severity in {"O", "o"}]
    assert {"S7", "S33"} <= {row["row"] for row in answer}


def test_one_row_is_read_by_name(client):
    answer = client.get("/v1/errata/Z2").json()
    assert answer["severity"] == "O"
    assert "sqrt(2)" in answer["proven"]


def test_a_row_that_does_not_exist_is_not_found(client):
    answer = client.get("/v1/errata/Z99")
    assert answer.status_code == 404
    assert "Z99" in answer.text


@pytest.mark.parametrize("path", ["/v1/errata/z2", "/v1/errata/Z02", "/v1/errata?paper=zeta", "/v1/errata?severity=worst"])
def test_what_no_row_can_be_called_is_refused(client, path):
    assert client.get(path).status_code == 422
