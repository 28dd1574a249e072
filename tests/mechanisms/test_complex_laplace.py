r"""Laplace noise on complex values: it is the real mechanism on their parts, and which norm of a move it needs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import kstest

from tests.mechanisms.test_laplace import _two_coordinate_delta
from zetadp.accountants import profile
from zetadp.accountants.calibration import calibrate_scale
from zetadp.accountants.events import PoissonSampled, Release, Repeated
from zetadp.mechanisms import ComplexLaplace, InvalidParameter, Laplace, NumpySource, RandomStream, Sensitivity

UNIT = Sensitivity(l1=1.0, adjacency="add_remove", unit="record")


def source(seed: int = 1) -> NumpySource:
    return NumpySource(RandomStream.from_seed(seed, "complex laplace"))


def test_both_parts_of_what_is_added_are_independent_laplace_variables():
    value = np.full(20_000, 3.0 - 2.0j)
    noise = ComplexLaplace(scale=0.5, sensitivity=UNIT).release(value, source()) - value
    for part in (noise.real, noise.imag):
        assert kstest(part, "laplace", args=(0.0, 0.5)).pvalue > 1e-6
    assert abs(np.corrcoef(noise.real, noise.imag)[0, 1]) < 0.04
    assert abs(np.corrcoef(abs(noise.real), abs(noise.imag))[0, 1]) < 0.04


def test_a_real_value_gets_no_complex_noise_and_a_complex_one_no_real_noise():
    with pytest.raises(InvalidParameter, match="complex for this mechanism"):
        ComplexLaplace.example().release(np.zeros(3), source())
    with pytest.raises(InvalidParameter, match="real for this mechanism"):
        Laplace.example().release(np.zeros(3, dtype=complex), source())


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.2])
def test_a_diagonal_move_of_modulus_one_loses_more_than_its_modulus_says_and_no_more_than_its_l1_norm(epsilon):
    move = math.sqrt(0.5)  # of either part
    real = _two_coordinate_delta(move, move, epsilon)
    stated = ComplexLaplace(scale=1.0, sensitivity=Sensitivity(l1=2.0 * move, adjacency="add_remove", unit="record"))
    assert real <= math.exp(stated.privacy_loss().log_delta(epsilon))
    if epsilon > 1.0:
        assert real > 0.0  # calibrated to the modulus, this delta would be claimed to be 0
        assert ComplexLaplace(scale=1.0, sensitivity=UNIT).privacy_loss().log_delta(epsilon) == -math.inf


def test_the_l1_norm_lies_between_the_moduli_and_what_the_proof_allows():
    generator = np.random.default_rng(2)
    for count in (1, 3, 10):
        moves = generator.normal(size=(500, count)) + 1j * generator.normal(size=(500, count))
        l1 = (abs(moves.real) + abs(moves.imag)).sum(axis=1)
        moduli, l2 = abs(moves).sum(axis=1), np.linalg.norm(moves, axis=1)
        assert (moduli <= l1).all()
        assert (l1 <= math.sqrt(2.0) * moduli * (1.0 + 1e-12)).all()
        assert (l1 <= math.sqrt(2.0 * count) * l2 * (1.0 + 1e-12)).all()


def test_the_circular_law_has_three_quarters_of_the_variance_where_moduli_are_bounded():
    # A modulus of law Gamma(2, b) and any angle; its log density changes by at most the move's modulus over b.
    generator = np.random.default_rng(3)
    z = generator.gamma(2.0, 1.0, 200_000) * np.exp(2j * np.pi * generator.random(200_000))
    assert np.mean(abs(z) ** 2) == pytest.approx(6.0, rel=0.02)
    assert np.max(abs(abs(z - 1.0) - abs(z))) <= 1.0 + 1e-12
    calibrated = ComplexLaplace(scale=math.sqrt(2.0), sensitivity=Sensitivity(l1=math.sqrt(2.0), adjacency="add_remove", unit="record"))
    assert 4.0 * calibrated.scale**2 * 0.75 == pytest.approx(6.0)


def test_it_is_accounted_for_and_calibrated_as_the_real_one():
    def event(kind, scale):
        release = Release(mechanism=kind(scale=scale, sensitivity=UNIT))
        return Repeated(count=10, event=PoissonSampled(probability=0.1, event=release))

    assert profile(event(ComplexLaplace, 2.0)).epsilon(1e-5) == profile(event(Laplace, 2.0)).epsilon(1e-5)
    factor = calibrate_scale(event(ComplexLaplace, 1.0), epsilon=1.0, delta=1e-5)
    assert 0.999 <= profile(event(ComplexLaplace, factor)).epsilon(1e-5).upper <= 1.0


@pytest.mark.parametrize("sensitivity", [{"l2": 1.0}, {"l1": 1.0, "l2": 1.0, "l2_real": 0.5}])
def test_it_needs_the_l1_norm_and_no_bounds_on_parts(sensitivity):
    with pytest.raises(ValidationError, match="sensitivity"):
        ComplexLaplace(scale=1.0, sensitivity=Sensitivity(adjacency="add_remove", unit="record", **sensitivity))
