"""What every mechanism promises, run over the registry."""

from __future__ import annotations

import math
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from zetadp.mechanisms import MECHANISMS, AnyMechanism, InvalidParameter, NumpySource

EXAMPLES = [pytest.param(kind.example(), id=kind.kind_name()) for kind in MECHANISMS]
ADAPTER: TypeAdapter[AnyMechanism] = TypeAdapter(AnyMechanism)


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_json_round_trip_is_exact(mechanism):
    odd = mechanism.scaled(1 / 3)
    assert ADAPTER.validate_json(odd.model_dump_json()) == odd


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_unknown_fields_are_refused(mechanism):
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(mechanism).model_validate({**mechanism.model_dump(exclude_none=True), "sigma": 1.0})


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_values_are_frozen(mechanism):
    with pytest.raises(ValidationError, match="frozen"):
        mechanism.sensitivity = None


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_scaling_multiplies_the_noise_and_keeps_the_sensitivity(mechanism):
    assert mechanism.scaled(3.0).noise_scale == pytest.approx(3.0 * mechanism.noise_scale, rel=1e-15)
    assert mechanism.scaled(3.0).sensitivity == mechanism.sensitivity


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_more_noise_means_less_loss(mechanism):
    assert mechanism.scaled(2.0).privacy_loss().log_delta(0.1) < mechanism.privacy_loss().log_delta(0.1)


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_delta_falls_with_epsilon(mechanism):
    deltas = [mechanism.privacy_loss().log_delta(epsilon) for epsilon in np.linspace(0.0, 5.0, 51)]
    assert all(later <= earlier for earlier, later in pairwise(deltas))


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_renyi_divergence_grows_with_the_order(mechanism):
    values = [mechanism.privacy_loss().renyi(order) for order in (1.001, 1.5, 2.0, 10.0, 1000.0)]
    assert values == sorted(values)


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_release_has_the_shape_of_its_value_and_moves_every_coordinate(mechanism):
    value = mechanism.example_value()
    released = mechanism.release(value, NumpySource.from_operating_system())
    assert released.shape == value.shape
    assert np.all(released != value)
    if mechanism.is_complex:
        assert np.all(released.imag != value.imag)


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_values_of_the_other_kind_are_refused(mechanism):
    value = mechanism.example_value()
    other = value.real if mechanism.is_complex else value.astype(complex)
    with pytest.raises(InvalidParameter, match="for this mechanism"):
        mechanism.release(other, NumpySource.from_operating_system())


@pytest.mark.parametrize("mechanism", EXAMPLES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(mechanism, bad):
    value = mechanism.example_value()
    value.flat[0] = bad
    with pytest.raises(InvalidParameter, match="finite in every coordinate"):
        mechanism.release(value, NumpySource.from_operating_system())


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_values_of_more_digits_than_double_precision_are_refused(mechanism):
    """They would be lost without a word."""
    value = mechanism.example_value()
    finer = value.astype(np.clongdouble if mechanism.is_complex else np.longdouble)
    with pytest.raises(InvalidParameter, match="value must be numbers of at most float64, none of them masked"):
        mechanism.release(finer, NumpySource.from_seed(1))


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_masked_values_are_refused(mechanism):
    """A sum leaves what is under the mask as it is: the record itself, without noise."""
    value = np.ma.masked_array(mechanism.example_value(), mask=True)
    with pytest.raises(InvalidParameter, match="got 'MaskedArray of"):
        mechanism.release(value, NumpySource.from_seed(1))


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_proof_sources_and_summary_exist(mechanism):
    facts = mechanism.FACTS
    proof = files("zetadp.mechanisms").joinpath("proofs", facts.proof).read_text(encoding="utf-8")
    assert "**Claim.**" in proof
    assert "**Proof.**" in proof
    assert facts.summary
    assert facts.sources
    assert facts.assumptions


@pytest.mark.parametrize("mechanism", EXAMPLES)
def test_the_derivation_ends_at_the_privacy_loss(mechanism):
    loss = mechanism.privacy_loss()
    assert mechanism.derivation()[-1].value in (loss.gdp_mu, loss.pure_epsilon)
