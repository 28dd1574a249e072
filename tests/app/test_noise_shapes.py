from __future__ import annotations

import itertools
import json
import math

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import SENSITIVITY, problem
from tests.golden.oracles import oracle_rows
from tests.selection import thinned
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

PARTS = {**SENSITIVITY, "l2_real": 1.0, "l2_imag": 0.3}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def _shaped(client, **body):
    response = client.post("/v1/noise-shapes", json=body)
    assert response.status_code == 200, response.text
    assert "NaN" not in response.text
    return json.loads(response.text)


def _profile(client, mechanism, **points):
    response = client.post("/v1/profiles", json={"event": {"kind": "release", "mechanism": mechanism}, **points})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("cgm_equal_mse_optimum"))
def test_optimum_agrees_with_forty_digits(client, inputs, oracle):
    parts = {"l2": float(inputs["Delta"]), "l2_real": float(inputs["Delta_re"]), "l2_imag": float(inputs["Delta_im"])}
    answer = _shaped(client, sensitivity={**SENSITIVITY, **parts}, total_std=math.sqrt(float(inputs["V"])))
    exact = {name: float(number) for name, number in oracle["value"].items()}
    assert exact["mu_opt"] * (1 - 1e-15) <= answer["mu_optimal"] <= exact["mu_opt"] * (1 + 1e-12)
    assert answer["mu_circular"] == pytest.approx(exact["mu_circular"], rel=1e-12)
    assert sorted((answer["std_real"] ** 2, answer["std_imag"] ** 2)) == pytest.approx([exact["v_small"], exact["v_big"]], rel=1e-12)
    assert answer["squared_error_ratio"] == pytest.approx((exact["mu_opt"] / exact["mu_circular"]) ** 2, rel=1e-12)


def test_the_mechanism_is_ready_for_a_profile(client):
    answer = _shaped(client, sensitivity=PARTS, total_std=2.0)
    assert _profile(client, answer["mechanism"])["gdp_mu"] == pytest.approx(answer["mu_optimal"], rel=1e-13)


@pytest.mark.parametrize(("inputs", "oracle"), thinned(oracle_rows("gaussian_calibration"), every=3))
def test_circular_noise_for_a_target_is_the_calibrated_one(client, inputs, oracle):
    sensitivity = {**SENSITIVITY, "l2": float(inputs["Delta"])}
    target = {"epsilon": float(inputs["eps"]), "delta": float(inputs["delta"])}
    answer, exact = _shaped(client, sensitivity=sensitivity, target=target), float(oracle["value"]["sigma_total"])
    assert exact <= answer["total_std"] <= exact * (1 + 1e-12)
    assert answer["std_real"] == pytest.approx(float(oracle["value"]["sigma_component"]), rel=1e-12)


TARGETS = {
    "mu": {"gdp_mu": 0.7},
    "epsilon": {"epsilon": 1.0, "delta": 1e-5},
    "rdp": {"rdp": {"order": 3.0, "value": 0.4}},
    "advantage": {"advantage": 0.1},
}


@pytest.mark.parametrize("name", TARGETS)
def test_noise_for_a_target_meets_it_with_less_error_than_circular_noise(client, name):
    answer = _shaped(client, sensitivity=PARTS, target=TARGETS[name])
    points = {"deltas": [1e-5], "epsilons": [0.0], "orders": [3.0]}
    profile = _profile(client, answer["mechanism"], **points)
    met = {
        "mu": profile["gdp_mu"] <= 0.7 and answer["mu_optimal"] <= 0.7,
        "epsilon": profile["epsilon"][0]["upper"] <= 1.0,
        "rdp": profile["rdp"][0]["value"] <= 0.4,
        "advantage": profile["delta"][0]["upper"] <= 0.1,
    }
    assert met[name]
    circular = _shaped(client, sensitivity={**PARTS, "l2_imag": 1.0}, target=TARGETS[name])["total_std"]
    assert (answer["total_std"] / circular) ** 2 == pytest.approx(answer["squared_error_ratio"], rel=1e-12)


def test_less_noise_misses_the_target(client):
    answer = _shaped(client, sensitivity=PARTS, target=TARGETS["epsilon"])
    mechanism = {**answer["mechanism"], **{part: answer[part] * (1 - 1e-12) for part in ("std_real", "std_imag")}}
    assert _profile(client, mechanism, deltas=[1e-5])["epsilon"][0]["upper"] > 1.0


def test_a_part_that_never_moves_leaves_real_noise_on_the_other(client):
    answer = _shaped(client, sensitivity={**PARTS, "l2_imag": 0.0}, total_std=2.0)
    assert (answer["mechanism"]["kind"], answer["std_imag"]) == ("gaussian", 0.0)
    assert answer["squared_error_ratio"] == pytest.approx(0.5, rel=1e-15)
    assert _profile(client, answer["mechanism"])["gdp_mu"] == 0.5


def test_its_proof_is_served(client):
    proof = _shaped(client, sensitivity=PARTS, total_std=2.0)["proof"]
    assert "**Claim.**" in client.get(proof).json()["markdown"]


@pytest.mark.parametrize(
    ("body", "text"),
    thinned(
        [
            ({"sensitivity": PARTS}, "total_std: must be given, or target without it, got 'neither'"),
            ({"sensitivity": PARTS, "total_std": 1.0, "target": {"gdp_mu": 1.0}}, "got 'both'"),
            ({"sensitivity": {**PARTS, "l2_real": 0.0, "l2_imag": 0.0}, "total_std": 1.0}, "not both 0"),
            ({"sensitivity": {"l1": 1.0, "adjacency": "add_remove", "unit": "record"}, "total_std": 1.0}, "sensitivity.l2"),
            ({"sensitivity": PARTS, "total_std": 0.0}, "total_std: must be >= 1e-50, got 0.0"),
            ({"sensitivity": PARTS, "total_std": -1.0}, "total_std: must be >= 1e-50, got -1.0"),
            ({"sensitivity": PARTS, "target": {"epsilon": 1.0}}, "epsilon and delta together"),
            ({"sensitivity": {**PARTS, "l2_imag": 1e-50}, "total_std": 1e-49}, "both components' deviations lie in"),
            ({"sensitivity": {**SENSITIVITY, "l2": 1e50}, "target": {"gdp_mu": 1e-10}}, "such that total_std lies in"),
        ],
        every=3,
    ),
)
def test_bad_requests_are_refused_with_what_was_expected(client, body, text):
    assert text in problem(client.post("/v1/noise-shapes", json=body))["detail"]


def test_absurd_requests_are_answered_or_refused_but_never_with_nan(client):
    ends = (1e-50, 1.0, 1e50)
    targets = [
        *({"gdp_mu": mu} for mu in ends),
        *(
            {"epsilon": epsilon, "delta": delta}
            for epsilon, delta in itertools.product((0.0, 1e-50, 1.0, 1e50), (5e-324, 1e-300, 0.5, 1 - 2**-53))
        ),
        *({"advantage": share} for share in (5e-324, 1 - 2**-53)),
        *({"trade_off": {"alpha": alpha, "beta": 0.5}} for alpha in (5e-324, 0.49)),
    ]
    asked = [{"total_std": total} for total in ends] + [{"target": target} for target in targets]
    for l2, parts, more in itertools.product(ends, ((1.0, 1.0), (1.0, 1e-50), (1.0, 0.0)), asked):
        sensitivity = {**SENSITIVITY, "l2": l2, "l2_real": parts[0] * l2, "l2_imag": parts[1] * l2 if parts[1] * l2 >= 1e-50 else 0.0}
        response = client.post("/v1/noise-shapes", json={"sensitivity": sensitivity, **more})
        assert response.status_code in (200, 422), response.text
        assert "NaN" not in response.text
