r"""Banded inverse noise: a recursion within its sensitivity over all turns of a unit, noise with the covariance that follows."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.trainer.encodings import encoded
from zetadp.accountants.events import Release
from zetadp.mechanisms import ComplexGaussian, Gaussian, RandomStream, Sensitivity
from zetadp.mechanisms.declared.correlated import Buffer
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling import grid
from zetadp.trainer.engine import TorchSource
from zetadp.trainer.engine.noise import buffers, releasing
from zetadp.trainer.engine.noise.inverse_bands import InverseBandedSums
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping, clipped_sensitivity
from zetadp.trainer.specs.sampling import CyclicPoissonSampling, PoissonSampling, Sampling
from zetadp.trainer.specs.strategy import BandedInverseNoise, BandedInverseStrategy, BufferedNoise, LambdaNoise

CPU = torch.device("cpu")
BOUND = 0.7
SENSITIVITY = Sensitivity(l2=BOUND, adjacency="add_remove", unit="record")
STEPS, GROUPS = 12, 4
ROOT = BandedInverseNoise(bands=3).planned(STEPS, GROUPS)
OWN = BandedInverseNoise(coefficients=(0.6, 0.2)).planned(STEPS, GROUPS)
NOISES = [Gaussian(std=1.9, sensitivity=SENSITIVITY), ComplexGaussian(std=0.3, sensitivity=SENSITIVITY)]
NAMES = ["real", "complex"]


def _inverse(strategy: BandedInverseStrategy, steps: int = STEPS) -> np.ndarray[Any, Any]:
    """C^-1 without c_0: the banded matrix, of which all else is made here by dense algebra."""
    return np.eye(steps) - sum(value * np.eye(steps, k=-lag) for lag, value in enumerate(strategy.coefficients, 1))


def _dense(strategy: BandedInverseStrategy, steps: int = STEPS) -> np.ndarray[Any, Any]:
    """The strategy's matrix, c_0 included."""
    return strategy.weight * np.linalg.inv(_inverse(strategy, steps))


def test_the_square_root_of_the_inverse_squares_to_the_matrix_of_differences() -> None:
    strategy = BandedInverseNoise(bands=STEPS - 1).planned(STEPS, GROUPS)
    assert np.allclose(_inverse(strategy) @ _inverse(strategy), np.eye(STEPS) - np.eye(STEPS, k=-1), atol=1e-15)
    assert strategy.coefficients[:4] == (1 / 2, 1 / 8, 1 / 16, 5 / 128)


def test_the_square_roots_coefficients_serve_any_number_of_bands_over_long_runs() -> None:
    for bands in range(1, 65):
        assert BandedInverseNoise(bands=bands).planned(20_000, 100).weight > 0.0


def _largest(strategy: BandedInverseStrategy, steps: int, groups: int) -> float:
    """Over all patterns of turns at least ``groups`` apart, c_0 aside; C isn't negative, so equal contributions of one sign are worst."""
    matrix, best = np.linalg.inv(_inverse(strategy, steps)), 0.0
    for size in range(1, -(-steps // groups) + 1):
        for turns in combinations(range(steps), size):
            if all(later - before >= groups for before, later in pairwise(turns)):
                best = max(best, float(np.linalg.norm(matrix[:, turns].sum(1))))
    return best


@pytest.mark.parametrize("noise", [{"bands": 1}, {"bands": 4}, {"coefficients": (0.6, 0.2)}, {"coefficients": (1.0,)}])
@pytest.mark.parametrize(("steps", "groups"), [(9, 1), (12, 4), (13, 3), (5, 7)])
def test_the_sensitivity_is_the_largest_over_all_patterns_and_never_below_it(noise: dict[str, Any], steps: int, groups: int) -> None:
    strategy = BandedInverseNoise.model_validate(noise).planned(steps, groups)
    found, largest = strategy.sensitivity(steps, groups), _largest(strategy, steps, groups)
    assert largest <= found * (1.0 + 1e-14)  # what dense algebra may be off by
    assert found == pytest.approx(largest, rel=1e-9)


@pytest.mark.parametrize("strategy", [ROOT, OWN])
def test_what_noise_is_added_to_is_the_matrix_times_the_sums(strategy: BandedInverseStrategy) -> None:
    generator = torch.Generator().manual_seed(1)
    totals = [torch.randn(9, generator=generator, dtype=torch.float64) for _ in range(STEPS)]
    sums = InverseBandedSums(strategy, NOISES[0], 9, STEPS)
    rows = torch.stack([encoded(sums, step, total) for step, total in enumerate(totals, 1)])
    assert np.allclose(rows.numpy(), _dense(strategy) @ torch.stack(totals).numpy(), rtol=1e-6)


def _error(strategy: BandedInverseStrategy, coordinates: int) -> float:
    """How far rounding moves all of the run's rows apart, in units of the noise (proofs/banded_sums.md, 6); one number more is padding."""
    column = float(np.linalg.inv(_inverse(strategy))[:, 0].sum())
    each = strategy.weight * ((4 * strategy.bands + 5) * column + 3) * 2.0**-37
    return (each + grid.rounding(coordinates + 1)) * math.sqrt(STEPS * (coordinates + 1))


def _moved(strategy: BandedInverseStrategy, coordinates: int, first: int) -> float:
    """How far a unit whose turns begin after ``first`` steps moves all rows together, summed exactly, in units of its bound."""
    generator = torch.Generator().manual_seed(2)
    others = [torch.randn(coordinates, generator=generator, dtype=torch.float64) for _ in range(STEPS)]
    own = torch.full((coordinates,), BOUND / math.sqrt(coordinates), dtype=torch.float64)
    turns = range(first, STEPS, GROUPS)
    without, beside = (InverseBandedSums(strategy, NOISES[0], coordinates, STEPS) for _ in range(2))
    square = Fraction(0)
    for step, total in enumerate(others):
        rows = encoded(without, step + 1, total), encoded(beside, step + 1, total + own if step in turns else total)
        square += sum((Fraction(one) - Fraction(other)) ** 2 for one, other in zip(*(row.tolist() for row in rows), strict=True))
    return math.sqrt(square) / BOUND


@pytest.mark.parametrize("strategy", [ROOT, OWN])
@pytest.mark.parametrize("coordinates", [1, 500])
def test_a_unit_moves_all_releases_of_the_run_together_by_its_sensitivity_less_the_rounding(
    strategy: BandedInverseStrategy, coordinates: int
) -> None:
    lost = _error(strategy, coordinates) * NOISES[0].noise_scale / BOUND
    assert lost > 1e-9
    for first in range(GROUPS):
        whole = float(np.linalg.norm(_dense(strategy)[:, first::GROUPS].sum(1)))
        assert whole <= 1.0
        # A hundredth of what rounding takes: many times what float64 may lose here.
        assert _moved(strategy, coordinates, first) == pytest.approx((1.0 - lost) * whole, abs=0.01 * lost)


def test_without_the_contraction_a_unit_moves_them_further(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = _moved(ROOT, 500, 0)
    monkeypatch.setattr(buffers, "contraction", lambda *_given: 1.0)
    assert _moved(ROOT, 500, 0) > with_it * (1.0 + 0.9 * _error(ROOT, 500) * NOISES[0].noise_scale / BOUND)


@pytest.mark.parametrize("mechanism", NOISES, ids=NAMES)
@pytest.mark.parametrize("strategy", [ROOT, OWN])
def test_gradients_follow_from_what_was_released(strategy: BandedInverseStrategy, mechanism: ComplexGaussian | Gaussian) -> None:
    sums, generator = InverseBandedSums(strategy, mechanism, 11, STEPS), torch.Generator().manual_seed(5)
    for step in range(1, STEPS + 1):
        total = torch.randn(11, generator=generator)
        assert torch.allclose(sums.decoded(encoded(sums, step, total), torch.float64), total.double(), atol=1e-6)


def test_a_step_that_does_not_follow_begins_anew() -> None:
    sums, fresh = (InverseBandedSums(OWN, NOISES[0], 9, STEPS) for _ in range(2))
    total, other = torch.full((9,), 0.25), torch.full((9,), 0.5)
    for step in (1, 2):
        _ = sums.decoded(encoded(sums, step, total) + 1.0, torch.float64)
    first, second = encoded(sums, 4, other), encoded(fresh, 4, other)
    assert torch.equal(first, second)
    assert torch.equal(sums.decoded(first, torch.float64), fresh.decoded(second, torch.float64))


def test_numbers_that_are_too_long_for_the_noise_to_hide_are_held() -> None:
    sums = InverseBandedSums(ROOT, NOISES[0], 20, STEPS)
    largest = 2.0 ** (math.frexp(NOISES[0].noise_scale)[1] - 1 + 16)
    for step in range(1, STEPS + 1):
        assert float(encoded(sums, step, torch.full((20,), 1e30)).max()) == largest * ROOT.weight


def check_covariance(gradients: list[Tensor], std: float, strategy: BandedInverseStrategy) -> None:
    """Of the noise of different steps in one real component: std^2 C^-1 C^-T, within six standard errors, 6 % of it here."""
    inverse = _inverse(strategy)[: len(gradients), : len(gradients)] / strategy.weight
    expected = std**2 * inverse @ inverse.T
    numbers = torch.stack(gradients).numpy()
    found = numbers @ numbers.T / numbers.shape[1]
    spread = np.sqrt((expected**2 + np.outer(expected.diagonal(), expected.diagonal())) / numbers.shape[1])
    assert np.all(np.abs(found - expected) <= 6.0 * spread)


def _noise(strategy: BandedInverseStrategy, mechanism: ComplexGaussian | Gaussian, factor: float = 1.0) -> list[Tensor]:
    drawn, sums = mechanism.scaled(factor), InverseBandedSums(strategy, mechanism, 20_000, STEPS)
    found: list[Tensor] = []
    for step in range(1, 6):
        source = TorchSource(RandomStream.from_seed(step, "inverse bands"), CPU)
        found.append(sums.decoded(releasing.release(drawn, encoded(sums, step, torch.zeros(20_000)), source), torch.float64))
    return found


@pytest.mark.parametrize("mechanism", NOISES, ids=NAMES)
@pytest.mark.parametrize("strategy", [ROOT, OWN])
def test_the_noise_of_gradients_is_correlated_as_the_strategy_says(
    strategy: BandedInverseStrategy, mechanism: ComplexGaussian | Gaussian
) -> None:
    check_covariance(_noise(strategy, mechanism), mechanism.noise_scale, strategy)
    for factor in (1 / 1.3, 1.3):
        with pytest.raises(AssertionError):
            check_covariance(_noise(strategy, mechanism, factor), mechanism.noise_scale, strategy)


@pytest.mark.parametrize("strategy", [ROOT, OWN])
def test_an_optimizer_is_told_the_standard_deviation_of_gradients(strategy: BandedInverseStrategy) -> None:
    last = _noise(strategy, NOISES[0])[-1]
    assert float(last.square().mean().sqrt()) == pytest.approx(strategy.gradient_noise(5) * NOISES[0].noise_scale, rel=0.03)
    exact = [float(np.linalg.norm(_inverse(strategy)[:count, :count][-1])) / strategy.weight for count in (1, 2, 5)]
    assert [strategy.gradient_noise(count) for count in (1, 2, 5)] == pytest.approx(exact, rel=1e-12)


def test_one_band_is_lambda_cgd() -> None:
    one = BandedInverseNoise(coefficients=(0.8,)).planned(STEPS, GROUPS)
    assert one == LambdaNoise(decay=0.8).planned(STEPS, GROUPS)
    same = BufferedNoise(buffers=(Buffer(weight=0.8, decay=0.8),)).planned(STEPS, GROUPS)
    assert one.weight == same.weight
    assert one.gradient_noise(STEPS) == pytest.approx(same.gradient_noise(STEPS), rel=1e-12)


def _plan(sampling: Sampling, strategy: BandedInverseStrategy, **changes: Any) -> ExecutionPlan:
    clipping = FlatClipping(bound=BOUND)
    sensitivity = clipped_sensitivity(clipping, SENSITIVITY.adjacency, "record")
    given: dict[str, Any] = {"steps": STEPS, "mechanism": Gaussian(std=1.0, sensitivity=sensitivity)} | changes
    return ExecutionPlan(sampling=sampling, clipping=clipping, delta=1e-5, strategy=strategy, **given)


def _cyclic(groups: int) -> CyclicPoissonSampling:
    return CyclicPoissonSampling(records=100, expected_batch_size=5, groups=groups, seed=0)


def test_the_whole_run_is_one_release_without_amplification() -> None:
    plan = _plan(_cyclic(GROUPS), ROOT)
    assert plan.event == plan.event_after(1) == Release(mechanism=plan.mechanism)
    assert plan.cut_to(5).event == plan.event


@pytest.mark.parametrize(
    ("sampling", "strategy", "changes", "told"),
    [
        (PoissonSampling(records=100, expected_batch_size=5), ROOT, {}, "cyclic_poisson or cyclic_allocation with at least 1 groups"),
        (_cyclic(GROUPS - 1), ROOT, {}, "weight must be at most 1 over the strategy's sensitivity for 12 steps and 3 groups"),
        (_cyclic(GROUPS), ROOT, {"steps": STEPS + GROUPS}, "for 16 steps and 4 groups"),
        (_cyclic(GROUPS), BandedInverseStrategy(weight=0.1, coefficients=ROOT.coefficients), {}, "a multiple of 2\\^-20"),
        (
            _cyclic(GROUPS),
            BandedInverseStrategy(weight=0.125, coefficients=(0.25, 0.5)),
            {},
            "strategy.coefficients must be such that no column",
        ),
        (_cyclic(GROUPS), ROOT, {"mechanism": ComplexGaussian(std=1.0, correlation=0.3, sensitivity=SENSITIVITY)}, "for correlated noise"),
    ],
)
def test_plans_for_which_nothing_is_proved_are_refused(
    sampling: Sampling, strategy: BandedInverseStrategy, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        _plan(sampling, strategy, **changes)


def test_a_column_that_rises_late_is_refused_for_long_runs_alone() -> None:
    noise = BandedInverseNoise(coefficients=(0.5, 0.0, 0.3))
    assert noise.planned(3, 1).weight > 0.0
    with pytest.raises(
        InvalidParameter, match=r"noise\.coefficients must be such that no column of the strategy matrix rises within 4 steps"
    ):
        noise.planned(4, 1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "exactly one of bands and coefficients"),
        ({"bands": 2, "coefficients": [0.5]}, "exactly one of bands and coefficients"),
        ({"coefficients": [0.75, 0.5]}, "noise.coefficients must be numbers that add up to at most 1"),
        ({"coefficients": [-0.5]}, "greater than or equal to 0"),
        ({"bands": 65}, "less than or equal to 64"),
    ],
)
def test_noise_that_no_strategy_follows_from_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        BandedInverseNoise.model_validate(given)
