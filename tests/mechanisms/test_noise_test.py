"""The test of drawn noise: it passes what the mechanisms draw, and rejects another scale, a bare component, foreign correlations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.selection import thinned
from zetadp.mechanisms import Adjacency, ComplexGaussian, Gaussian, Laplace, NumpySource, Sensitivity, noise_test
from zetadp.mechanisms.noise_test import (
    SMALLEST_COUNT,
    NoiseSums,
    Products,
    are_sums_of_fair_signs,
    are_unrelated,
    has_claimed_scale,
    largest_sum,
)

L2 = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
L1 = Sensitivity(l1=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
DRAWS = 2000
CIRCULAR = ComplexGaussian(std=3.0, sensitivity=L2)
UNEVEN = ComplexGaussian(std_real=2.0, std_imag=0.5, correlation=-0.6, sensitivity=L2)


def drawn(mechanism: Gaussian | ComplexGaussian | Laplace, seed: int, draws: int = DRAWS) -> NoiseSums:
    zero = np.zeros(draws, dtype=np.complex128 if mechanism.is_complex else np.float64)
    return sums(mechanism.release(zero, NumpySource.from_seed(seed)), absolute=isinstance(mechanism, Laplace))


def sums(noise: NDArray[Any], *, absolute: bool = False) -> NoiseSums:
    if absolute:
        return NoiseSums(len(noise), float(np.abs(noise).sum()))
    if not np.iscomplexobj(noise):
        return NoiseSums(len(noise), float((noise**2).sum()))
    real, imaginary = np.real(noise), np.imag(noise)
    return NoiseSums(len(noise), float((real**2).sum()), float((imaginary**2).sum()), float((real * imaginary).sum()))


@pytest.mark.parametrize(
    "mechanism", [Gaussian(std=0.01, sensitivity=L2), Laplace(scale=7.0, sensitivity=L1), CIRCULAR, UNEVEN], ids=lambda one: one.kind
)
def test_own_noise_passes_and_noise_of_another_scale_does_not(mechanism: Gaussian | ComplexGaussian | Laplace) -> None:
    for seed in range(20):
        own = drawn(mechanism, seed)
        assert has_claimed_scale(mechanism, own)
        assert not has_claimed_scale(mechanism.scaled(1.0 / 0.7), own)
        assert not has_claimed_scale(mechanism.scaled(1.0 / 1.3), own)


def test_noise_on_the_real_components_alone_is_rejected() -> None:
    noise = np.random.default_rng(0).normal(scale=3.0, size=DRAWS)
    assert not has_claimed_scale(CIRCULAR, sums(noise.astype(np.complex128)))
    assert not has_claimed_scale(CIRCULAR, sums(1j * noise))
    # The same power on the real components alone, and half of it on each.
    assert not has_claimed_scale(CIRCULAR, sums(np.sqrt(2.0) * noise.astype(np.complex128)))
    halves = np.random.default_rng(1).normal(scale=3.0 / np.sqrt(2.0), size=(2, DRAWS))
    assert not has_claimed_scale(CIRCULAR, sums(halves[0] + 1j * halves[1]))


def test_components_that_say_the_same_are_rejected() -> None:
    noise = np.random.default_rng(0).normal(scale=3.0, size=DRAWS)
    assert not has_claimed_scale(CIRCULAR, sums(noise + 1j * noise))
    opposite = ComplexGaussian(std_real=2.0, std_imag=0.5, correlation=0.6, sensitivity=L2)
    assert not has_claimed_scale(opposite, drawn(UNEVEN, 0))


def test_what_is_not_a_number_is_rejected_and_too_few_numbers_say_nothing() -> None:
    gaussian = Gaussian(std=1.0, sensitivity=L2)
    assert not has_claimed_scale(gaussian, NoiseSums(DRAWS, float("nan")))
    assert not has_claimed_scale(gaussian, NoiseSums(DRAWS, float("inf")))
    assert has_claimed_scale(gaussian, NoiseSums(SMALLEST_COUNT - 1, 0.0))
    assert not has_claimed_scale(gaussian, NoiseSums(SMALLEST_COUNT, 0.0))


@pytest.mark.parametrize("count", [10**3, 10**6, 10**9, 10**12])
def test_bounds_close_in_on_the_claim(count: int) -> None:
    gaussian = Gaussian(std=1.0, sensitivity=L2)
    width = 17.0 / float(np.sqrt(count)) + 2e-4
    assert has_claimed_scale(gaussian, NoiseSums(count, float(count)))
    assert not has_claimed_scale(gaussian, NoiseSums(count, count * (1.0 + width)))
    assert not has_claimed_scale(gaussian, NoiseSums(count, count * (1.0 - width)))


def products(first: NDArray[Any], second: NDArray[Any]) -> Products:
    if not np.iscomplexobj(first):
        return Products(len(first), float(first @ second))
    (u, v), (x, y) = ((np.real(one), np.imag(one)) for one in (first, second))
    return Products(len(first), float(u @ x), float(v @ y), float(u @ y), float(v @ x))


@pytest.mark.parametrize(
    "mechanism", thinned([Gaussian(std=0.01, sensitivity=L2), CIRCULAR, UNEVEN], every=2), ids=["real", "circular", "uneven"]
)
@pytest.mark.parametrize("share", thinned([1.0, -1.0, 0.5, -0.5], every=2))
def test_draws_that_others_are_part_of_are_rejected(mechanism: Gaussian | ComplexGaussian, share: float) -> None:
    zero = np.zeros(DRAWS, dtype=np.complex128 if mechanism.is_complex else np.float64)
    for seed in range(20):
        source = NumpySource.from_seed(seed)
        one, other = mechanism.release(zero, source), mechanism.release(zero, source)
        assert are_unrelated(mechanism, products(one, other))
        mixed = share * one + (1.0 - share**2) ** 0.5 * other
        assert not are_unrelated(mechanism, products(one, mixed))


@pytest.mark.parametrize("mechanism", [CIRCULAR, UNEVEN], ids=["circular", "uneven"])
@pytest.mark.parametrize("pair", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_one_component_that_repeats_one_of_the_other_draws_is_rejected(mechanism: ComplexGaussian, pair: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    white = rng.normal(size=(2, 2, DRAWS))
    white[1, pair[1]] = white[0, pair[0]]
    (std_real, std_imag), rho = mechanism.stds, mechanism.correlation
    one, other = (std_real * u + 1j * std_imag * (rho * u + (1.0 - rho**2) ** 0.5 * w) for u, w in white)
    assert has_claimed_scale(mechanism, sums(one))
    assert has_claimed_scale(mechanism, sums(other))
    assert not are_unrelated(mechanism, products(one, other))


def test_signs_of_laplace_noise_are_counted() -> None:
    laplace = Laplace(scale=7.0, sensitivity=L1)
    assert are_unrelated(laplace, Products(2400, 480.0))
    assert not are_unrelated(laplace, Products(2400, 500.0))
    assert not are_unrelated(laplace, Products(2400, -500.0))


def test_no_products_say_nothing_and_few_or_undefined_ones_never_too_much() -> None:
    gaussian = Gaussian(std=1.0, sensitivity=L2)
    assert are_unrelated(gaussian, Products())
    assert are_unrelated(gaussian, Products(1, 40.0))
    assert not are_unrelated(gaussian, Products(1, 120.0))
    assert not are_unrelated(gaussian, Products(DRAWS, float("nan")))


@pytest.mark.parametrize("count", thinned([1, 2, 5, 20, 100, 2400], every=2))
def test_no_chain_of_products_exceeds_its_bound_more_often_than_is_claimed(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_test, "_TAIL", tail := 0.01)
    rng = np.random.default_rng(count)
    bound, trials = largest_sum(count), 10_000
    draws = rng.normal(size=(trials, count + 1))
    chain = (draws[:, 1:] * draws[:, :-1]).sum(axis=1)
    pairs = (draws[:, 1:] * rng.normal(size=(trials, count))).sum(axis=1)
    for found in (chain, pairs):
        # Chernoff's bound is loose by more than the trials' own chance.
        assert np.mean(found > bound) <= tail
        assert np.mean(-found > bound) <= tail


@pytest.mark.parametrize("signs", [1, 2, 5, 40])
def test_squares_of_sums_of_fair_signs_fail_no_more_often_than_is_claimed(signs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_test, "_TAIL", tail := 0.01)
    sums = np.random.default_rng(signs).choice([-1.0, 1.0], size=(2000, 50, signs)).sum(axis=2)
    squares = (sums**2).sum(axis=1) / signs
    assert np.mean([not are_sums_of_fair_signs(NoiseSums(50, found)) for found in squares.tolist()]) <= 2.0 * tail


def test_squares_of_sums_of_fair_signs_that_hold_together_or_cancel_are_rejected() -> None:
    assert all(are_sums_of_fair_signs(NoiseSums(1000, 1000.0 * share)) for share in (0.8, 1.0, 1.3))
    assert not any(are_sums_of_fair_signs(NoiseSums(1000, 1000.0 * share)) for share in (0.0, 0.4, 1.6, float("nan"), float("inf")))
    assert are_sums_of_fair_signs(NoiseSums(SMALLEST_COUNT - 1, 0.0))
