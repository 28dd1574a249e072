r"""Buffered noise: sums within their sensitivity over all turns of a unit, noise with the covariance that follows, empty buffers."""

from __future__ import annotations

import math
from fractions import Fraction
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
from zetadp.mechanisms.sampling import grid
from zetadp.trainer.engine import TorchSource
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.noise.buffers import BufferedSums
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping, clipped_sensitivity
from zetadp.trainer.specs.sampling import CyclicPoissonSampling, PoissonSampling, Sampling
from zetadp.trainer.specs.strategy import BufferedNoise, BufferedStrategy

CPU = torch.device("cpu")
BOUND = 0.7
SENSITIVITY = Sensitivity(l2=BOUND, adjacency="add_remove", unit="record")
STEPS, GROUPS = 12, 4
ONE = BufferedNoise(buffers=(Buffer(weight=0.8, decay=0.8),)).planned(STEPS, GROUPS)
TWO = BufferedNoise(buffers=(Buffer(weight=0.3, decay=0.95), Buffer(weight=0.4, decay=0.5))).planned(STEPS, GROUPS)
NOISES = [Gaussian(std=1.9, sensitivity=SENSITIVITY), ComplexGaussian(std=0.3, sensitivity=SENSITIVITY)]
NAMES = ["real", "complex"]


def _dense(strategy: BufferedStrategy) -> np.ndarray[Any, Any]:
    """The strategy's matrix, c_0 included."""
    column = [1.0, *(sum(one.weight * one.decay ** (lag - 1) for one in strategy.buffers) for lag in range(1, STEPS))]
    return strategy.weight * sum(value * np.eye(STEPS, k=-lag) for lag, value in enumerate(column))


@pytest.mark.parametrize("strategy", [ONE, TWO])
def test_what_noise_is_added_to_is_the_matrix_times_the_sums(strategy: BufferedStrategy) -> None:
    generator = torch.Generator().manual_seed(1)
    totals = [torch.randn(9, generator=generator, dtype=torch.float64) for _ in range(STEPS)]
    sums = BufferedSums(strategy, NOISES[0], 9, STEPS)
    rows = torch.stack([encoded(sums, step, total) for step, total in enumerate(totals, 1)])
    assert np.allclose(rows.numpy(), _dense(strategy) @ torch.stack(totals).numpy(), rtol=1e-6)


def _error(strategy: BufferedStrategy, coordinates: int) -> float:
    """How far rounding moves all of the run's rows apart, in units of the noise (proofs/banded_sums.md, 5); one number more is padding."""
    kept = sum(one.weight * min(STEPS, 1.0 / (1.0 - one.decay)) for one in strategy.buffers)
    each = (strategy.weight * (2.0 + 8.25 * kept) + 6 * len(strategy.buffers) + 5) * 2.0**-37
    return (each + grid.rounding(coordinates + 1)) * math.sqrt(STEPS * (coordinates + 1))


def _moved(strategy: BufferedStrategy, coordinates: int, first: int) -> Fraction:
    """The square of how far a unit whose turns begin after ``first`` steps moves all rows together, in exact arithmetic."""
    generator = torch.Generator().manual_seed(2)
    others = [torch.randn(coordinates, generator=generator, dtype=torch.float64) for _ in range(STEPS)]
    own = torch.full((coordinates,), BOUND / math.sqrt(coordinates), dtype=torch.float64)
    turns = range(first, STEPS, GROUPS)
    without, beside = (BufferedSums(strategy, NOISES[0], coordinates, STEPS) for _ in range(2))
    square = Fraction(0)
    for step, total in enumerate(others):
        rows = encoded(without, step + 1, total), encoded(beside, step + 1, total + own if step in turns else total)
        square += sum((Fraction(one) - Fraction(other)) ** 2 for one, other in zip(*(row.tolist() for row in rows), strict=True))
    return square


@pytest.mark.parametrize("strategy", [ONE, TWO])
@pytest.mark.parametrize("coordinates", [1, 500])
def test_a_unit_moves_all_releases_of_the_run_together_by_its_sensitivity_less_the_rounding(
    strategy: BufferedStrategy, coordinates: int
) -> None:
    lost = _error(strategy, coordinates) * NOISES[0].noise_scale / BOUND
    assert lost > 1e-9
    for first in range(GROUPS):
        whole = float(np.linalg.norm(_dense(strategy)[:, first::GROUPS].sum(1)))
        moved = math.sqrt(_moved(strategy, coordinates, first)) / BOUND
        assert whole <= 1.0
        # A hundredth of what rounding takes: many times what float64 may lose here.
        assert moved == pytest.approx((1.0 - lost) * whole, abs=0.01 * lost)


@pytest.mark.parametrize("mechanism", NOISES, ids=NAMES)
@pytest.mark.parametrize("strategy", [ONE, TWO])
def test_gradients_follow_from_what_was_released(strategy: BufferedStrategy, mechanism: ComplexGaussian | Gaussian) -> None:
    sums, generator = BufferedSums(strategy, mechanism, 11, STEPS), torch.Generator().manual_seed(5)
    for step in range(1, STEPS + 1):
        total = torch.randn(11, generator=generator)
        assert torch.allclose(sums.decoded(encoded(sums, step, total), torch.float64), total.double(), atol=1e-6)


def test_a_step_that_does_not_follow_begins_with_empty_buffers() -> None:
    sums, fresh = (BufferedSums(TWO, NOISES[0], 9, STEPS) for _ in range(2))
    total, other = torch.full((9,), 0.25), torch.full((9,), 0.5)
    for step in (1, 2):
        _ = sums.decoded(encoded(sums, step, total) + 1.0, torch.float64)
    first, second = encoded(sums, 4, other), encoded(fresh, 4, other)
    assert torch.equal(first, second)
    assert torch.equal(sums.decoded(first, torch.float64), fresh.decoded(second, torch.float64))


def check_covariance(gradients: list[Tensor], std: float, strategy: BufferedStrategy) -> None:
    """Of the noise of different steps in one real component: std^2 C^-1 C^-T, within six standard errors, 6 % of it here."""
    inverse = np.linalg.inv(_dense(strategy))[: len(gradients), : len(gradients)]
    expected = std**2 * inverse @ inverse.T
    numbers = torch.stack(gradients).numpy()
    found = numbers @ numbers.T / numbers.shape[1]
    spread = np.sqrt((expected**2 + np.outer(expected.diagonal(), expected.diagonal())) / numbers.shape[1])
    assert np.all(np.abs(found - expected) <= 6.0 * spread)


def _noise(strategy: BufferedStrategy, mechanism: ComplexGaussian | Gaussian, factor: float = 1.0) -> list[Tensor]:
    drawn, sums = mechanism.scaled(factor), BufferedSums(strategy, mechanism, 20_000, STEPS)
    found: list[Tensor] = []
    for step in range(1, 6):
        source = TorchSource(RandomStream.from_seed(step, "buffers"), CPU)
        found.append(sums.decoded(releasing.release(drawn, encoded(sums, step, torch.zeros(20_000)), source), torch.float64))
    return found


@pytest.mark.parametrize("mechanism", NOISES, ids=NAMES)
@pytest.mark.parametrize("strategy", [ONE, TWO])
def test_the_noise_of_gradients_is_correlated_as_the_strategy_says(
    strategy: BufferedStrategy, mechanism: ComplexGaussian | Gaussian
) -> None:
    check_covariance(_noise(strategy, mechanism), mechanism.noise_scale, strategy)
    for factor in (1 / 1.3, 1.3):
        with pytest.raises(AssertionError):
            check_covariance(_noise(strategy, mechanism, factor), mechanism.noise_scale, strategy)


@pytest.mark.parametrize("strategy", [ONE, TWO])
def test_an_optimizer_is_told_the_standard_deviation_of_gradients(strategy: BufferedStrategy) -> None:
    last = _noise(strategy, NOISES[0])[-1]
    assert float(last.square().mean().sqrt()) == pytest.approx(strategy.gradient_noise(5) * NOISES[0].noise_scale, rel=0.03)


def test_one_buffer_whose_weight_is_its_decay_takes_back_a_share_of_the_last_steps_noise() -> None:
    noise = _noise(ONE, NOISES[0])
    first, second = (ONE.weight * one for one in noise[:2])
    drawn = NOISES[0].release(torch.zeros(20_000, dtype=torch.float64), TorchSource(RandomStream.from_seed(2, "buffers"), CPU))
    assert torch.allclose(second, drawn - 0.8 * first, atol=1e-4)


def _plan(sampling: Sampling, strategy: BufferedStrategy, **changes: Any) -> ExecutionPlan:
    clipping = FlatClipping(bound=BOUND)
    sensitivity = clipped_sensitivity(clipping, SENSITIVITY.adjacency, "record")
    given: dict[str, Any] = {"steps": STEPS, "mechanism": Gaussian(std=1.0, sensitivity=sensitivity)} | changes
    return ExecutionPlan(sampling=sampling, clipping=clipping, delta=1e-5, strategy=strategy, **given)


def _cyclic(groups: int) -> CyclicPoissonSampling:
    return CyclicPoissonSampling(records=100, expected_batch_size=5, groups=groups, seed=0)


def test_the_whole_run_is_one_release_without_amplification() -> None:
    plan = _plan(_cyclic(GROUPS), ONE)
    assert plan.event == plan.event_after(1) == Release(mechanism=plan.mechanism)
    assert plan.cut_to(5).event == plan.event


def test_the_weight_is_one_over_the_declared_sensitivity() -> None:
    for strategy in (ONE, TWO):
        column = np.linalg.norm(_dense(strategy)[:, ::GROUPS].sum(1))
        assert 1.0 - 1e-5 < column <= 1.0


@pytest.mark.parametrize(
    ("sampling", "strategy", "changes", "told"),
    [
        (PoissonSampling(records=100, expected_batch_size=5), ONE, {}, "cyclic_poisson or cyclic_allocation with at least 1 groups"),
        (_cyclic(GROUPS - 1), ONE, {}, "weight must be at most 1 over the strategy's sensitivity for 12 steps and 3 groups"),
        (_cyclic(GROUPS), ONE, {"steps": STEPS + GROUPS}, "for 16 steps and 4 groups"),
        (_cyclic(GROUPS), BufferedStrategy(weight=0.1, buffers=ONE.buffers), {}, "a multiple of 2\\^-20"),
        (_cyclic(GROUPS), ONE, {"mechanism": ComplexGaussian(std=1.0, correlation=0.3, sensitivity=SENSITIVITY)}, "for correlated noise"),
    ],
)
def test_plans_for_which_nothing_is_proved_are_refused(
    sampling: Sampling, strategy: BufferedStrategy, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=told):
        _plan(sampling, strategy, **changes)


def test_buffers_whose_weights_add_up_to_more_than_1_are_refused_by_their_name() -> None:
    two = (Buffer(weight=0.9, decay=0.5), Buffer(weight=0.9, decay=0.25))
    with pytest.raises(ValidationError, match=r"noise.buffers must be of weights that add up to at most 1, got \[0.9, 0.9\]"):
        BufferedNoise(buffers=two)
    with pytest.raises(ValidationError, match=r"strategy.buffers must be of weights that add up to at most 1, got \[0.9, 0.9\]"):
        BufferedStrategy(weight=0.125, buffers=two)
    # At most 1 is enough for columns that fall, whatever the decays are.
    whole = BufferedNoise(buffers=(Buffer(weight=0.75, decay=1.0), Buffer(weight=0.25, decay=1.0))).planned(STEPS, GROUPS)
    assert whole.weight > 0.0
