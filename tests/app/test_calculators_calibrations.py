r"""Calibrations over HTTP: every target, every parameter, sweeps."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import TRAINING, problem, release, sampled
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

TARGET = {"epsilon": 1.0, "delta": 1e-5}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def test_a_calibration_lands_on_the_safe_side(client):
    answer = client.post("/v1/calibrations", json={"event": release(), "target": {"epsilon": 1, "delta": 1e-5}, "derivation": True}).json()
    assert 3.730631634815941 <= answer["std"] <= 3.730631634815941 * (1.0 + 1e-11)
    assert answer["noise_multiplier"] == answer["std"] == answer["scale"] == answer["event"]["mechanism"]["std"]
    assert answer["guarantee"]["epsilon"]["upper"] <= 1.0
    assert answer["derivation"]


@pytest.mark.parametrize(
    ("target", "mu"),
    [({"gdp_mu": 0.5}, 0.5), ({"rdp": {"order": 2.0, "value": 0.25}}, 0.5), ({"advantage": 0.19741265136584744}, 0.5)],
    ids=str,
)
def test_every_target_of_the_design_is_accepted(client, target, mu):
    answer = client.post("/v1/calibrations", json={"event": release(), "target": target}).json()
    assert answer["guarantee"]["gdp_mu"] == pytest.approx(mu, rel=1e-9)


def _epsilon(client, event):
    return client.post("/v1/profiles", json={"event": event, "deltas": [1e-5]}).json()["epsilon"][0]


@pytest.mark.parametrize("kind", ["noise_scale", "sampling_probability", "steps", "clipping_bound"])
def test_every_parameter_is_calibrated_to_the_safe_side_of_its_target(client, kind):
    request = {"event": TRAINING, "target": TARGET, "parameter": {"kind": kind}, "derivation": True}
    response = client.post("/v1/calibrations", json=request)
    assert response.status_code == 200, response.text
    answer = response.json()
    bound = _epsilon(client, answer["event"])
    assert bound["upper"] <= 1.0
    assert bound["lower"] > 0.99
    assert (answer["parameter"]["kind"], answer["scale"]) == (kind, answer["value"] if kind == "noise_scale" else None)
    assert answer["derivation"][0]["value"] == answer["value"]


def test_without_a_parameter_the_noise_is_calibrated(client):
    answer = client.post("/v1/calibrations", json={"event": TRAINING, "target": TARGET}).json()
    assert answer["parameter"] == {"kind": "noise_scale", "at": ""}
    assert answer["scale"] == answer["value"] == answer["std"]


def test_a_parameter_that_the_event_lacks_is_refused(client):
    request = {"event": release(), "target": TARGET, "parameter": {"kind": "sampling_probability"}}
    detail = problem(client.post("/v1/calibrations", json=request))["detail"]
    assert "parameter.at must be a part of the event with poisson_sampled" in detail


def test_a_sweep_answers_every_target_in_order_and_as_one_by_one(client):
    targets = [{"epsilon": 2.0, "delta": 1e-5}, {"epsilon": 0.5, "delta": 1e-5}, {"gdp_mu": 0.5}]
    points = client.post("/v1/calibrations/sweep", json={"event": release(), "targets": targets}).json()["points"]
    alone = [client.post("/v1/calibrations", json={"event": release(), "target": target}).json() for target in targets]
    assert [point["std"] for point in points] == pytest.approx([answer["std"] for answer in alone], rel=1e-9)
    assert [point["target"]["epsilon"] for point in points] == [2.0, 0.5, None]
    assert {point["problem"] for point in points} == {None}


def test_a_target_of_a_sweep_that_cannot_be_met_spoils_no_other(client):
    event = {"kind": "composed", "events": [release(), release(std=10.0)]}  # the second part alone costs more than epsilon 0.01
    targets = [{"epsilon": 1.0, "delta": 1e-5}, {"epsilon": 0.01, "delta": 1e-5}]
    request = {"event": event, "targets": targets, "parameter": {"kind": "noise_scale", "at": "/events/0"}}
    points = client.post("/v1/calibrations/sweep", json=request).json()["points"]
    assert (points[0]["problem"], points[1]["value"]) == (None, None)
    assert points[1]["problem"]["type"] == "calibration-failed"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"epsilon": 1.0}, "target: must be epsilon and delta together, got 'only one of the two'"),
        ({"epsilon": 1.0, "delta": 1e-5, "gdp_mu": 1.0}, "target: must be exactly one of"),
        ({"epsilon": -1.0, "delta": 1e-5}, "target.epsilon: must be >= 0, got -1.0"),
        ({"epsilon": "nan", "delta": 1e-5}, "target.epsilon: must be a valid number, got 'nan'"),
    ],
)
def test_bad_targets_are_refused(client, target, text):
    assert text in problem(client.post("/v1/calibrations", json={"event": release(), "target": target}))["detail"]


def test_a_target_that_no_noise_meets_is_refused(client):
    body = problem(
        client.post("/v1/calibrations", json={"event": {"kind": "non_private", "reason": "x"}, "target": {"epsilon": 1, "delta": 1e-5}})
    )
    assert body["type"] == "calibration-failed"


def test_releases_of_one_sample_are_calibrated_together_and_have_no_noise_in_common(client):
    event = sampled({"kind": "composed", "events": [release(), release(std=2.0)]})
    answer = client.post("/v1/calibrations", json={"event": event, "target": TARGET}).json()
    first, second = (part["mechanism"]["std"] for part in answer["event"]["event"]["events"])
    assert second == pytest.approx(2.0 * first)
    assert (answer["std"], answer["noise_multiplier"]) == (None, None)
