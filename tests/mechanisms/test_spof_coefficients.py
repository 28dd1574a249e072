from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from tests.golden.oracles import oracle_rows
from zetadp.accountants import Grouped, Release, Repeated, profile
from zetadp.mechanisms import InvalidParameter, NumpySource, Sensitivity, SpofCoefficients
from zetadp.mechanisms.analysis.cross_entropy import Expansion, softplus


def _noise(**changes):
    fields = {"dimension": 3, "expansion_point": 0.4, "stabilisation": 2.5, "scale": 2.0}
    given = {"l1": 3.0, "adjacency": "replace_one", "unit": "record"} | changes.pop("sensitivity", {})
    return SpofCoefficients(**(fields | changes), sensitivity=Sensitivity(**given))


@pytest.mark.parametrize("a", [-1e3, 0.0, 0.9057, 1e6])
@pytest.mark.parametrize("c", [-3.0, 0.0, 17.5])
def test_epsilon_is_the_dimension_over_the_scale_whatever_the_public_numbers(a, c):
    assert _noise(expansion_point=a, stabilisation=c).privacy_loss().pure_epsilon == 1.5


@pytest.mark.parametrize(("inputs", "oracle"), oracle_rows("spof_actual_eps"))
def test_algorithm_1s_scale_on_the_right_coefficients_costs_what_it_should(inputs, oracle):
    epsilon, n = float(inputs["eps"]), 14
    noise = _noise(dimension=n, stabilisation=0.0, scale=1.5 * n / (math.sqrt(2.0) * epsilon), sensitivity={"l1": float(n)})
    assert noise.privacy_loss().pure_epsilon == pytest.approx(float(oracle["value"]["correct_coeffs"]), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-20, 0.1, 1.0, 3.0, 7.7, 1e20])
@pytest.mark.parametrize("n", [1, 14, 49, 10**6])
def test_calibrated_noise_never_exceeds_its_epsilon(n, epsilon):
    found = SpofCoefficients.for_epsilon(n, 0.0, 0.0, epsilon, "record").privacy_loss().pure_epsilon
    assert epsilon * (1.0 - 1e-15) <= found <= epsilon


def test_the_release_gives_back_a_noisy_record():
    noise, records = _noise(), np.linspace(0.0, 1.0, 12).reshape(4, 3)
    released = noise.release(records, NumpySource.from_seed(1))
    drawn = 2.0 * NumpySource.from_seed(1).standard_laplace((4, 3))
    np.testing.assert_allclose(noise.recovered(released), records + drawn, rtol=0.0, atol=2e-8)  # both on the noise's grid


def test_the_perturbed_polynomial_is_the_loss_of_the_noisy_record():
    noise, x, z = _noise(), np.array([0.2, 0.5, 1.0]), np.array([-0.3, 0.1, 0.8])
    released = noise.release(x, NumpySource.from_seed(2))
    recovered = noise.recovered(released)
    for feature in range(3):
        expansion = Expansion(noise.expansion_point, noise.stabilisation)
        constant = expansion.coefficients(recovered[feature])[0]
        assert noise.polynomial(released, z)[feature] == pytest.approx(
            expansion.value(recovered[feature], z[feature]) - constant, rel=1e-12
        )


def test_without_noise_the_polynomial_has_the_losss_gradient():
    # At z + c = a the expansion and softplus(z + c) - x (z + c) agree in value and slope.
    noise, x = _noise(scale=1e-40), 0.7
    at = noise.expansion_point - noise.stabilisation
    coefficient = noise.release(np.full(3, x), NumpySource.from_seed(3))[0]
    step = 1e-5
    slope = (noise.polynomial(coefficient, at + step) - noise.polynomial(coefficient, at - step)) / (2.0 * step)
    truth = (softplus(noise.expansion_point + step) - softplus(noise.expansion_point - step)) / (2.0 * step) - x
    assert slope == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize("outside", [-1e-300, 1.0 + 2.0**-52, 5.0])
def test_a_feature_outside_the_box_is_refused(outside):
    with pytest.raises(InvalidParameter, match=r"within \[0.0, 1.0\]"):
        _noise().release(np.array([[0.5, 0.5, 0.5], [0.5, outside, 0.5]]), NumpySource.from_seed(1))


@pytest.mark.parametrize("shape", [(), (2,), (3, 2)])
def test_values_of_another_shape_are_refused(shape):
    with pytest.raises(InvalidParameter, match="3 coordinates along its last axis"):
        _noise().release(np.zeros(shape), NumpySource.from_seed(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimension": 0}, "greater than or equal to 1"),
        ({"expansion_point": 1e7}, "less than or equal to 1000000"),
        ({"expansion_point": math.nan}, "finite number"),
        ({"stabilisation": -1e7}, "greater than or equal to -1000000"),
        ({"stabilisation": "c_j h_j(x)"}, "valid number"),
        ({"scale": 0.0}, "greater than or equal to"),
        ({"lower": 0.1}, "less than or equal to 0"),
        ({"upper": 255.0}, "less than or equal to 1"),
        ({"sensitivity": {"l1": 2.999}}, "sensitivity.l1 must be at least"),
        ({"sensitivity": {"l1": None, "l2": 3.0}}, "sensitivity.l1 must be given"),
        ({"sensitivity": {"adjacency": "add_remove"}}, "sensitivity.adjacency must be replace_one"),
        ({"sensitivity": {"l1_contribution": 3.0}}, "l1_contribution must be absent"),
    ],
)
def test_what_would_not_be_private_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        _noise(**changes)


def test_every_release_and_every_row_of_a_user_is_counted():
    release = Release(mechanism=_noise())
    assert profile(Repeated(event=release, count=4)).epsilon(1e-30).upper == pytest.approx(6.0, rel=1e-12)
    assert profile(Grouped(event=release, size=5, unit="user")).epsilon(1e-30).upper == pytest.approx(7.5, rel=1e-12)


def test_one_feature_is_one_share_of_the_whole():
    one = _noise().coordinate()
    assert (one.dimension, one.scale, one.expansion_point, one.stabilisation) == (1, 2.0, 0.4, 2.5)
    assert one.privacy_loss().pure_epsilon == 0.5
