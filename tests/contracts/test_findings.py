"""Every comparison, on its documented example and at its ends: a finding's derivation arrives at what it says is proved."""

from __future__ import annotations

import math

import pytest
from fastapi.testclient import TestClient

from tests.app.openapi_harness import document
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

CHANGES = {
    "/v1/compare/complex_gaussian": (
        {},
        {"reading": "replace_one"},
        {"sensitivity": {"l2": 1.0, "l2_imag": 0.0, "adjacency": "zero_out", "unit": "u"}},
    ),
    "/v1/compare/zeta_dp_means": ({}, {"second": [[3.0, 0.0]]}),
    "/v1/compare/zeta_dp_sgd_step": ({}, {"gradient_norms": []}),
    "/v1/compare/environmental_noise": ({}, {"noise_std": 0.0}, {"hidden_output": 0.0}, {"hidden_units": 1}),
    "/v1/compare/taylor": ({}, {"expansion_point": -3.0, "stabilisation": 1.0}),
    "/v1/compare/spof": ({}, {"expansion_point": 1e6}, {"stabilisation": -1.0}, {"dimension": 1, "stabilisation": 0.0, "rows_per_user": 3}),
    "/v1/compare/dp_sgd_laplace": ({}, {"expansion_point": -1e6}, {"clipping_bound": 1e20}, {"dimension": 3}),
    "/v1/compare/functional_mechanism": ({}, {"expansion_point": 1.0}, {"releases": 7}),
    "/v1/compare/constant_selection": ({}, {"accuracy_from": "public_records"}),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1") as client:
        yield client


def _number(value):
    return math.inf if value == "Infinity" else -math.inf if value == "-Infinity" else value


def _compared():
    """Each comparison's path, with its documented example's body."""
    for path, operations in document()["paths"].items():
        if path.startswith("/v1/compare/"):
            schema = operations["post"]["requestBody"]["content"]["application/json"]["schema"]
            name = schema["$ref"].rsplit("/", 1)[1]
            yield path, document()["components"]["schemas"][name]["examples"][0]


def test_every_derivation_ends_at_the_proved_value(client):
    wrong, seen = [], 0
    for path, body in _compared():
        for change in CHANGES.get(path, ({},)):
            response = client.post(path, json=body | change)
            assert response.status_code == 200, (path, change, response.text)
            for found in response.json()["published"]:
                proven, steps = _number(found["proven"]), found["derivation"]
                if proven is None or not steps:
                    continue
                seen += 1
                last = _number(steps[-1]["value"])
                if isinstance(last, str) or not (last == proven or math.isclose(last, proven, rel_tol=1e-12)):
                    wrong.append((path, found["erratum"], found["quantity"], proven, steps[-1]["symbol"], last))
    assert not wrong, "\n".join(map(str, wrong))
    assert seen > 100
