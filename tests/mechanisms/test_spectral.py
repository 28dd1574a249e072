"""The spectral mechanism: what it accepts, what it releases, what it states."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from zetadp.accountants import PoissonSampled, Release, Repeated
from zetadp.accountants.routes.auto import AutoAccountant
from zetadp.mechanisms import Gaussian, InvalidParameter, NumpySource, Sensitivity, Spectral
from zetadp.mechanisms.published import spectral_dp

SENSITIVITY = Sensitivity(l2=2.0, adjacency="add_remove", unit="record")


def _spectral(shape=(8,), kept=(3,), std=0.5, sensitivity=SENSITIVITY):
    return Spectral(shape=shape, kept=kept, std=std, sensitivity=sensitivity)


@pytest.mark.parametrize("kept", [(1,), (3,), (8,)])
def test_mu_is_the_sensitivity_over_std_whatever_is_kept(kept):
    assert _spectral(kept=kept).privacy_loss().gdp_mu == 4.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kept": [9]}, "kept must be at least 1 and at most the axis length"),
        ({"kept": [0]}, "greater than or equal to 1"),
        ({"kept": [2, 2]}, "kept must be one number for each axis"),
        ({"shape": [2, 2, 2], "kept": [1, 1, 1]}, "at most 2 items"),
        ({"shape": [], "kept": []}, "at least 1 item"),
        ({"shape": [2**40]}, "less than or equal to"),
        ({"kept": [1.5]}, "valid integer"),
        ({"std": 0.0}, "greater than or equal to 0.0000"),
        ({"std": math.inf}, "finite"),
        ({"sensitivity": {"l1": 1.0, "adjacency": "add_remove", "unit": "record"}}, "sensitivity.l2 must be given"),
        ({"sensitivity": {"l2": 1.0, "l2_real": 1.0, "adjacency": "add_remove", "unit": "record"}}, "absent for a real mechanism"),
    ],
)
def test_mechanisms_that_make_no_sense_are_refused(fields, message):
    valid = {"kind": "spectral", "shape": [8], "kept": [3], "std": 1.0, "sensitivity": SENSITIVITY.model_dump(exclude_none=True)}
    with pytest.raises(ValidationError, match=message):
        Spectral.model_validate({**valid, **fields})


@pytest.mark.parametrize("shape", [(7,), (8, 1), (), (9, 8, 7)])
def test_values_of_another_shape_are_refused(shape):
    with pytest.raises(InvalidParameter, match="value must be of trailing shape \\[8\\]"):
        _spectral().release(np.zeros(shape), NumpySource.from_seed(1))


def test_complex_values_are_refused_before_their_shape_is_looked_at():
    with pytest.raises(InvalidParameter, match="real for this mechanism"):
        _spectral().release(np.zeros(7, dtype=complex), NumpySource.from_seed(1))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(bad):
    value = np.zeros((2, 8))
    value[1, 3] = bad
    with pytest.raises(InvalidParameter, match="finite in every coordinate"):
        _spectral().release(value, NumpySource.from_seed(1))


@pytest.mark.parametrize(("shape", "kept"), [((8,), (3,)), ((9,), (5,)), ((8,), (4,)), ((4, 6), (2, 3)), ((5, 5), (5, 1))])
def test_a_release_is_the_projected_value_plus_the_projected_noise(shape, kept):
    mechanism = _spectral(shape, kept)
    value = np.random.default_rng(1).normal(size=(3, *shape))
    noise = 0.5 * NumpySource.from_seed(2).standard_normal(value.shape)
    expected = mechanism.low_pass.project(value) + mechanism.low_pass.project(noise)
    np.testing.assert_allclose(mechanism.release(value, NumpySource.from_seed(2)), expected, atol=1e-13)


@pytest.mark.parametrize(("shape", "kept"), [((8,), (3,)), ((9,), (2,)), ((4, 6), (2, 3))])
def test_what_the_filter_drops_does_not_reach_the_release(shape, kept):
    mechanism = _spectral(shape, kept)
    value = np.random.default_rng(1).normal(size=shape)
    dropped = 1e6 * (value - mechanism.low_pass.project(value))
    plain, loud = (mechanism.release(v, NumpySource.from_seed(2)) for v in (value, value + dropped))
    np.testing.assert_allclose(plain, loud, atol=1e-8)


def test_a_release_has_no_energy_outside_the_kept_bins():
    mechanism = _spectral((8, 9), (3, 4))
    released = mechanism.release(np.random.default_rng(1).normal(size=(5, 8, 9)), NumpySource.from_seed(3))
    spectrum = np.fft.fftn(released, axes=(-2, -1), norm="ortho")
    kept = np.minimum(np.arange(8), 8 - np.arange(8))[:, None] < 3
    kept = kept & (np.minimum(np.arange(9), 9 - np.arange(9))[None, :] < 4)
    assert np.abs(spectrum[:, ~kept]).max() < 1e-14
    assert np.abs(spectrum[:, kept]).min() > 1e-4


def test_axes_before_the_last_get_independent_noise():
    released = _spectral((8,), (8,)).release(np.zeros((2, 3, 8)), NumpySource.from_seed(4))
    rows = released.reshape(6, 8)
    assert len({row.tobytes() for row in rows}) == 6


def test_accountants_take_it_for_the_gaussian_mechanism_it_is():
    pair = _spectral(std=4.0), Gaussian(std=4.0, sensitivity=SENSITIVITY)
    events = [Repeated(count=100, event=PoissonSampled(probability=0.01, event=Release(mechanism=mechanism))) for mechanism in pair]
    found = [AutoAccountant().profile(event).epsilon(1e-5).upper for event in events]
    assert found[0] == found[1]


def test_scaling_keeps_the_filter():
    scaled = _spectral((4, 6), (2, 3)).scaled(2.0)
    assert (scaled.std, scaled.shape, scaled.kept) == (1.0, (4, 6), (2, 3))


def test_the_derivation_shows_how_many_dimensions_are_kept():
    steps = {step.symbol: step.value for step in _spectral((6, 10), (2, 4)).derivation()}
    assert (steps["kept_dimensions"], steps["mu"]) == (21.0, 4.0)


def test_the_printed_perturbation_releases_the_odd_part_exactly_and_this_one_does_not():
    # Algorithm 1 as printed: real noise on the coefficients, mask index < K, real part (errata P1).
    length, kept = 16, 8
    odd = np.sin(2 * np.pi * np.arange(length) / length) / math.sqrt(length / 2)

    def odd_part(signal):
        return 0.5 * (signal - np.roll(signal[::-1], 1))

    def printed(query):
        noise = NumpySource.from_seed(5).standard_normal((length,)) / spectral_dp.algorithm_1_gdp_mu(1.0)
        return np.fft.ifft((np.fft.fft(query, norm="ortho") + noise) * (np.arange(length) < kept), norm="ortho").real

    mechanism = _spectral((length,), (kept,), std=1.0)
    np.testing.assert_allclose(odd_part(printed(odd)), 0.5 * odd, atol=1e-15)
    assert np.abs(odd_part(mechanism.release(odd, NumpySource.from_seed(5))) - odd).max() > 0.1


def test_a_torch_source_releases_the_same():
    torch = pytest.importorskip("torch")
    from zetadp.mechanisms.sampling.source import RandomStream
    from zetadp.trainer.engine.noise.torch_source import TorchSource

    for shape, kept in (((8,), (3,)), ((9,), (5,)), ((6, 10), (2, 4)), ((7, 8), (7, 4))):
        mechanism = _spectral(shape, kept)
        value = np.random.default_rng(6).normal(size=(2, *shape))
        source = TorchSource(RandomStream.from_seed(7, "noise"), torch.device("cpu"))
        released = mechanism.release(torch.from_numpy(value), source)
        np.testing.assert_allclose(released.numpy(), mechanism.release(value, NumpySource.from_seed(7)), atol=1e-13)


def test_sums_that_overflow_are_refused():
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(InvalidParameter, match="transform to be finite"):
        _spectral().release(np.full(8, 1e308), NumpySource.from_seed(1))


def test_a_narrow_value_is_projected_in_double_precision():
    value = np.random.default_rng(1).normal(size=8).astype(np.float32) * 1e6
    wide = _spectral(std=1e-9).release(value.astype(np.float64), NumpySource.from_seed(1))
    np.testing.assert_array_equal(_spectral(std=1e-9).release(value, NumpySource.from_seed(1)), wide)


def test_a_torch_source_filters_in_double_precision():
    torch = pytest.importorskip("torch")
    from zetadp.mechanisms.sampling.source import RandomStream
    from zetadp.trainer.engine.noise.torch_source import TorchSource

    source = TorchSource(RandomStream.from_seed(7, "noise"), torch.device("cpu"))
    released = _spectral().release(torch.zeros(2, 8, dtype=torch.float32), source)
    assert released.dtype == torch.float64
    with pytest.raises(InvalidParameter, match="real for this mechanism"):
        _spectral().release(torch.zeros(8, dtype=torch.cfloat), source)
