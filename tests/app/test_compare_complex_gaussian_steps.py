from __future__ import annotations

import itertools
import json
import math
import random

import mpmath
import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

TOTAL = {"convention": "total", "sigma": 1.0}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("data")))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def _refuse(token):
    raise AssertionError(f"{token} in an answer")


def _posted(client, path, body):
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=_refuse)


def _of(answer, row):
    return next(found for found in answer["published"] if found["erratum"] == row)


def _last(found):
    """The counterexample's numbers by their symbols."""
    return {step["symbol"]: step["value"] for step in found["counterexample"]["steps"]}


def _step(client, **changed):
    body = {
        "noise": {"convention": "zeta_dp_algorithm_1", "sigma": 1.0, "clipping_bound": 1.0},
        "lot_size": 64,
        "complex_parameters": 5000,
        **changed,
    }
    return _posted(client, "/v1/compare/zeta_dp_sgd_step", body)


@pytest.mark.parametrize(("sigma", "bound"), [(1.0, 1.0), (0.61, 3.0), (5.0, 1e-3)])
def test_the_effective_multiplier_of_algorithm_1_is_sigma_over_sqrt_2(client, sigma, bound):
    answer = _step(client, noise={"convention": "zeta_dp_algorithm_1", "sigma": sigma, "clipping_bound": bound}, deltas=[1e-5])
    found = _of(answer, "Z10")
    assert answer["noise_multiplier"] == pytest.approx(sigma / math.sqrt(2.0), rel=1e-15)
    assert answer["mu"] == pytest.approx(math.sqrt(2.0) / sigma, rel=1e-13)
    assert (found["printed"], found["proven"], found["direction"]) == (sigma, answer["noise_multiplier"], "overclaims")
    assert found["epsilon"][0]["direction"] == "overclaims"


def test_the_federated_algorithm_has_the_multiplier_it_says(client):
    answer = _step(client, noise={"convention": "federated_algorithm_1", "sigma": 1.3, "clipping_bound": 2.0})
    assert [found["erratum"] for found in answer["published"]] == ["C18"]
    assert answer["published"][0]["direction"] == "equal"
    assert answer["noise_multiplier"] == pytest.approx(1.3, rel=1e-15)


@pytest.mark.parametrize(
    ("count", "expected", "direction"), [(50, 6.0e-6, "differs"), (5000, 0.577, "overclaims"), (500_000, 1.0, "overclaims")]
)
def test_dividing_by_the_realised_lot_is_told_from_the_noise_alone(client, count, expected, direction):
    found = _of(_step(client, complex_parameters=count), "Z11")
    assert found["proven"] == pytest.approx(expected, rel=7e-3)
    assert found["direction"] == direction
    assert list(_last(found).values()) == pytest.approx([6.04e-6, 0.577, 1.0], rel=1e-3)


def test_noise_cannot_hide_the_realised_lot(client):
    deltas = [
        _of(_step(client, noise={"convention": "zeta_dp_algorithm_1", "sigma": sigma, "clipping_bound": 1.0}), "Z11")["proven"]
        for sigma in (1.0, 1e6)
    ]
    assert deltas[0] == deltas[1]


def test_half_gradients_are_clipped_as_full_ones_at_twice_the_bound(client):
    found = _of(_step(client, gradient_norms=[0.5, 1.5, 3.0]), "Z15")
    shares = {step["symbol"]: step["value"] for step in found["derivation"]}
    assert shares["share clipped, g/2 at B"] == shares["share clipped, g at 2 B"] == pytest.approx(1 / 3)
    assert shares["share clipped, g at B"] == pytest.approx(2 / 3)
    assert (found["printed"], found["proven"], found["direction"]) == (0.5, 1.0, "differs")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"lot_size": 0}, "lot_size: must be >= 1, got 0"),
        ({"complex_parameters": 0}, "complex_parameters: must be >= 1, got 0"),
        ({"noise": TOTAL}, "convention"),
        ({"epsilons": [0.1, 0.2, 0.3, 0.4]}, "epsilons: must have at most 3 entries"),
        ({"gradient_norms": [-1.0]}, "gradient_norms[0]: must be >= 0, got -1.0"),
    ],
)
def test_bad_steps_are_refused(client, change, text):
    body = {
        "noise": {"convention": "zeta_dp_algorithm_1", "sigma": 1.0, "clipping_bound": 1.0},
        "lot_size": 64,
        "complex_parameters": 5000,
        **change,
    }
    assert text in problem(client.post("/v1/compare/zeta_dp_sgd_step", json=body))["detail"]


def test_absurd_steps_are_answered_without_nan(client):
    for sigma, lot, count in itertools.product((1e-20, 1.0, 1e20), (1, 10**9), (1, 10**12)):
        noise = {"convention": "zeta_dp_algorithm_1", "sigma": sigma, "clipping_bound": 1e20}
        answer = _step(client, noise=noise, lot_size=lot, complex_parameters=count, epsilons=[0.0, 1e-50, 1e50], deltas=[1e-300])
        assert all(float(found["proven"]) >= 0.0 for found in answer["published"])


@pytest.mark.parametrize(("second", "printed", "true"), [(3.0, 9.0, 0.0), (-3.0, -9.0, 72.0)])
def test_the_divergence_of_two_means_is_their_squared_distance(client, second, printed, true):
    body = {"first": [[3.0, 0.0]], "second": [[second, 0.0]], "noise": TOTAL, "order": 2.0}
    found = _posted(client, "/v1/compare/zeta_dp_means", body)["published"][0]
    assert (found["printed"], found["proven"]) == (printed, pytest.approx(true, rel=1e-12))
    assert found["direction"] == ("loose" if true == 0.0 else "overclaims")


def test_the_printed_divergence_is_of_the_noise_whatever_convention_states_it(client):
    """N_C(0, 2 s^2, 0) is N_C(0, sigma^2) with sigma = sqrt(2) s, which is the sigma of equation (8)."""
    body = {"first": [[3.0, 0.0]], "second": [[-3.0, 0.0]], "order": 2.0}
    for noise in ({"convention": "total", "sigma": math.sqrt(2.0)}, {"convention": "per_component", "sigma": 1.0}):
        found = _posted(client, "/v1/compare/zeta_dp_means", {**body, "noise": noise})["published"][0]
        assert found["printed"] == pytest.approx(-4.5, rel=1e-15)
        assert found["proven"] == pytest.approx(36.0, rel=1e-13)


def test_the_divergence_of_different_means_is_never_zero(client):
    body = {"first": [[1e-200, 0.0]], "second": [[0.0, 0.0]], "noise": {**TOTAL, "sigma": 1.0}, "order": 2.0}
    assert _posted(client, "/v1/compare/zeta_dp_means", body)["published"][0]["proven"] > 0.0
    body["second"] = body["first"]
    assert _posted(client, "/v1/compare/zeta_dp_means", body)["published"][0]["proven"] == 0.0


def test_the_divergence_of_two_means_agrees_with_quadrature(client):
    generator = random.Random(1)
    for _ in range(5):
        sigma, rho, order = generator.uniform(0.5, 2), generator.uniform(-0.9, 0.9), generator.uniform(1.2, 4)
        first, second = ([generator.gauss(0, 0.5), generator.gauss(0, 0.5)] for _ in range(2))
        noise = {"convention": "per_component", "sigma": sigma, "rho": rho}
        body = {"first": [first], "second": [second], "noise": noise, "order": order}
        found = _posted(client, "/v1/compare/zeta_dp_means", body)["published"][0]

        # One-dimensional along the whitened difference: both laws agree in every other direction.
        x, y = (a - b for a, b in zip(first, second, strict=True))
        distance = mpmath.sqrt((x * x + y * y - 2 * rho * x * y) / (sigma**2 * (1 - rho**2)))

        def integrand(z, distance=distance, order=order):
            return mpmath.npdf(z, distance) ** order * mpmath.npdf(z) ** (1 - order)

        exact = mpmath.log(mpmath.quad(integrand, [-30, -5, 0, 5, 10, 30])) / (order - 1)
        assert found["proven"] == pytest.approx(float(exact), rel=1e-10)
        assert found["direction"] == "does_not_apply"


def test_the_divergence_is_never_too_small_where_correlation_nears_one(client):
    generator = random.Random(2)
    for _ in range(100):
        rho = generator.choice([-1, 1]) * (1 - 10 ** generator.uniform(-16, -1))
        first = [generator.gauss(0, 1), generator.gauss(0, 1)]
        near = math.copysign(1.0, rho) * first[0] + generator.gauss(0, 1) * math.sqrt(1 - rho * rho)
        body = {"first": [first], "second": [[0.0, first[1] - near]], "noise": {"convention": "per_component", "sigma": 1.3, "rho": rho}}
        found = _posted(client, "/v1/compare/zeta_dp_means", {**body, "order": 2.0})["published"][0]
        with mpmath.workdps(60):
            x, y = mpmath.mpf(first[0]), mpmath.mpf(first[1]) - mpmath.mpf(body["second"][0][1])
            r = mpmath.mpf(rho)
            exact = (x * x + y * y - 2 * r * x * y) / ((1 - r * r) * mpmath.mpf(1.3) ** 2)
            assert exact <= found["proven"] <= exact * (1 + 1e-13 + 1e-14 / mpmath.sqrt(1 - r * r))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"second": [[1.0, 0.0], [1.0, 0.0]]}, "second: must be as long as first (1 coordinates), got 2"),
        ({"first": []}, "first"),
        ({"order": 1.0}, "order: must be > 1, got 1.0"),
        ({"noise": {"convention": "covariance", "v_real": 1.0, "v_imag": 1.0, "covariance": 0.0}}, "convention"),
        ({"first": [[1e51, 0.0]]}, "first[0][0]: must be <= 1e+50"),
    ],
)
def test_bad_means_are_refused(client, change, text):
    body = {"first": [[3.0, 0.0]], "second": [[1.0, 0.0]], "noise": TOTAL, "order": 2.0, **change}
    assert text in problem(client.post("/v1/compare/zeta_dp_means", json=body))["detail"]


def test_absurd_means_are_answered_without_nan(client):
    for sigma, value in itertools.product((1e-49, 1e50), (0.0, 5e-324, 1e50)):
        body = {"first": [[value, -value]], "second": [[-value, value]], "noise": {**TOTAL, "sigma": sigma}, "order": 1e6}
        assert float(_posted(client, "/v1/compare/zeta_dp_means", body)["published"][0]["proven"]) >= 0.0


def test_the_gradient_bounds_the_sensitivity_only_times_the_diameter(client):
    body = {"gradient_bound": 1.0, "domain_diameter": 10.0, "noise": {"convention": "per_component", "sigma": 10.0}, "deltas": [1e-5]}
    sensitivity, mu = _posted(client, "/v1/compare/zeta_dp_lipschitz", body)["published"]
    assert (sensitivity["printed"], sensitivity["proven"], sensitivity["direction"]) == (1.0, pytest.approx(10.0, rel=1e-15), "overclaims")
    assert (mu["printed"], mu["proven"]) == (pytest.approx(0.1, rel=1e-15), pytest.approx(1.0, rel=1e-13))
    assert mu["epsilon"][0]["proven"] == pytest.approx(4.3771780956812, rel=1e-11)


def test_a_small_domain_makes_the_printed_sensitivity_loose(client):
    body = {"gradient_bound": 2.0, "domain_diameter": 0.25, "noise": TOTAL}
    assert [found["direction"] for found in _posted(client, "/v1/compare/zeta_dp_lipschitz", body)["published"]] == ["loose", "loose"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"domain_diameter": 0.0}, "domain_diameter: must be >= 1e-50, got 0.0"),
        ({"gradient_bound": 1e50}, "gradient_bound * domain_diameter"),
    ],
)
def test_bad_domains_are_refused(client, change, text):
    body = {"gradient_bound": 1.0, "domain_diameter": 10.0, "noise": TOTAL, **change}
    assert text in problem(client.post("/v1/compare/zeta_dp_lipschitz", json=body))["detail"]
