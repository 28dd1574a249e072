r"""Banded noise: sums that are exact on the grid and within their sensitivity, noise with the covariance that follows, empty bands."""

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
from zetadp.accountants.events import RandomlyAllocated, Release, Repeated
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, RandomStream, Sensitivity
from zetadp.mechanisms.sampling.grid import STEP
from zetadp.trainer import FederatedZetaDpSgd, ZetaDpSgd
from zetadp.trainer.engine import TorchSource
from zetadp.trainer.engine.noise import bands, releasing
from zetadp.trainer.engine.noise.bands import BandedSums
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping, L1Clipping, clipped_sensitivity
from zetadp.trainer.specs.sampling import CyclicAllocation, CyclicPoissonSampling, PoissonSampling, RandomAllocation, Sampling
from zetadp.trainer.specs.strategy import BandedNoise, BandedStrategy, GivenBands

CPU = torch.device("cpu")
BOUND = 0.7
SENSITIVITY = Sensitivity(l2=BOUND, adjacency="add_remove", unit="record")
STRATEGY = BandedNoise(bands=3).planned(10, 3)
TIGHT = BandedStrategy(coefficients=(0.5, 0.5, 0.5, 0.5))
"""Whose squares add up to 1 exactly."""
NOISES = [Gaussian(std=1.9, sensitivity=SENSITIVITY), ComplexGaussian(std=0.3, sensitivity=SENSITIVITY)]
NAMES = ["real", "complex"]


class _NoNoise:
    """Where noise on the grid would come from: none, so that what is released shows what was added to it, to the bit."""

    def __init__(self) -> None:
        self._source = TorchSource(RandomStream.from_seed(1, "not used"), CPU)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def released_normal(self, value: Tensor, factor: float, largest: float, _scale: float) -> Tensor:
        return self._source.released(value, torch.zeros(value.shape, dtype=torch.float64), factor, largest, 1.0)


def _rows(mechanism: ComplexGaussian | Gaussian, sums: list[Tensor]) -> np.ndarray[Any, Any]:
    """What the mechanism's noise is added to, in units of the noise: all steps' numbers, multiples of the grid's step."""
    banded, source = BandedSums(TIGHT, mechanism, len(sums[0])), _NoNoise()
    found = [
        releasing.release(mechanism, encoded(banded, step, total), source)  # type: ignore[arg-type]
        for step, total in enumerate(sums, 1)
    ]
    return torch.stack(found).numpy()


def _moved(mechanism: ComplexGaussian | Gaussian, coordinates: int, seed: int) -> float:
    """How far one unit's contribution in one turn moves everything that is released, in units of what the accounting allows."""
    generator = torch.Generator().manual_seed(seed)
    others = [torch.randn(coordinates, generator=generator, dtype=torch.float64) for _ in range(5)]
    # Alike in every coordinate, the direction in which rounding adds up most; others lie where it goes the unit's way.
    own = torch.full((coordinates,), BOUND / math.sqrt(coordinates), dtype=torch.float64)
    with_unit = [total + own if step == 1 else total for step, total in enumerate(others)]
    apart = _rows(mechanism, with_unit) - _rows(mechanism, others)
    steps = np.rint(apart / STEP)
    assert np.array_equal(steps * STEP, apart)
    # Whole numbers: no rounding in this sum of squares.
    square = sum(int(one) ** 2 for one in steps.reshape(-1))
    return math.sqrt(Fraction(square)) * STEP / mechanism.least_distance()


@pytest.mark.parametrize("mechanism", NOISES, ids=NAMES)
@pytest.mark.parametrize("coordinates", [1, 16, 17, 1000])
def test_a_unit_moves_all_releases_of_its_turn_together_by_its_sensitivity_at_most(
    mechanism: ComplexGaussian | Gaussian, coordinates: int
) -> None:
    for seed in range(5):
        assert 0.999 < _moved(mechanism, coordinates, seed) <= 1.0


def test_without_the_contraction_a_unit_moves_them_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "contraction", lambda *_given: 1.0)
    assert max(_moved(NOISES[0], 1, seed) for seed in range(40)) > 1.0


def test_weighted_sums_are_exact() -> None:
    banded = BandedSums(STRATEGY, NOISES[0], 50)
    generator = torch.Generator().manual_seed(3)
    # Some too long for the noise to hide: they are held.
    totals = [torch.randn(50, generator=generator, dtype=torch.float64) * 10.0**power for power in (-3, 2, 9, 0, 1)]
    rows = [encoded(banded, step, total) for step, total in enumerate(totals, 1)]
    again = BandedSums(STRATEGY, NOISES[0], 50)
    held: list[list[Fraction]] = []
    for step, (total, row) in enumerate(zip(totals, rows, strict=True), 1):
        _ = encoded(again, step, total)
        held.insert(0, [Fraction(one) for one in again._sums.all[0].tolist()])
        for place in range(50):
            parts = zip(STRATEGY.coefficients, held, strict=False)
            exact = sum(Fraction(coefficient) * past[place] for coefficient, past in parts)
            assert Fraction(float(row[place])) == exact


@pytest.mark.parametrize("mechanism", NOISES, ids=NAMES)
def test_gradients_follow_from_what_was_released(mechanism: ComplexGaussian | Gaussian) -> None:
    banded, generator = BandedSums(STRATEGY, mechanism, 11), torch.Generator().manual_seed(5)
    for step in range(1, 8):
        total = torch.randn(11, generator=generator)
        assert torch.allclose(banded.decoded(encoded(banded, step, total), torch.float64), total.double(), atol=1e-6)


def test_a_step_that_does_not_follow_begins_an_empty_band() -> None:
    banded, fresh = (BandedSums(STRATEGY, NOISES[0], 9) for _ in range(2))
    total, other = torch.full((9,), 0.25), torch.full((9,), 0.5)
    _ = banded.decoded(encoded(banded, 1, total) + 1.0, torch.float64)
    first, second = encoded(banded, 3, other), encoded(fresh, 3, other)
    assert torch.equal(first, second)
    assert torch.equal(banded.decoded(first, torch.float64), fresh.decoded(second, torch.float64))


# The noise of gradients


STEPS, COORDINATES = 5, 20_000


def check_covariance(gradients: list[Tensor], std: float, strategy: BandedStrategy) -> None:
    """Of the noise of different steps in one real component: std^2 C^-1 C^-T, within six standard errors, 6 % of it here."""
    inverse = np.linalg.inv(sum(value * np.eye(STEPS, k=-lag) for lag, value in enumerate(strategy.coefficients)))
    expected = std**2 * inverse @ inverse.T
    numbers = torch.stack(gradients).numpy()
    found = numbers @ numbers.T / numbers.shape[1]
    spread = np.sqrt((expected**2 + np.outer(expected.diagonal(), expected.diagonal())) / numbers.shape[1])
    assert np.all(np.abs(found - expected) <= 6.0 * spread)


def _noise(mechanism: ComplexGaussian | Gaussian, factor: float = 1.0) -> list[Tensor]:
    drawn = mechanism.scaled(factor)
    banded, found = BandedSums(STRATEGY, mechanism, COORDINATES), []
    for step in range(1, STEPS + 1):
        source = TorchSource(RandomStream.from_seed(step, "bands"), CPU)
        found.append(banded.decoded(releasing.release(drawn, encoded(banded, step, torch.zeros(COORDINATES)), source), torch.float64))
    return found


@pytest.mark.parametrize("mechanism", NOISES, ids=NAMES)
def test_the_noise_of_gradients_is_correlated_as_the_strategy_says(mechanism: ComplexGaussian | Gaussian) -> None:
    check_covariance(_noise(mechanism), mechanism.noise_scale, STRATEGY)


def test_an_optimizer_is_told_the_standard_deviation_of_gradients() -> None:
    last = _noise(NOISES[0])[-1]
    assert float(last.square().mean().sqrt()) == pytest.approx(STRATEGY.gradient_noise(STEPS) * NOISES[0].noise_scale, rel=0.03)


@pytest.mark.parametrize("factor", [1 / 1.3, 1.3])
def test_noise_that_is_thirty_per_cent_off_is_rejected(factor: float) -> None:
    with pytest.raises(AssertionError):
        check_covariance(_noise(NOISES[0], factor), NOISES[0].noise_scale, STRATEGY)


def test_independent_noise_is_rejected() -> None:
    sources = [TorchSource(RandomStream.from_seed(step, "bands"), CPU) for step in range(STEPS)]
    drawn = [NOISES[0].release(torch.zeros(COORDINATES, dtype=torch.float64), source) for source in sources]
    with pytest.raises(AssertionError):
        check_covariance(drawn, NOISES[0].noise_scale, STRATEGY)


# What is proved, and what is refused


def _plan(sampling: Sampling, strategy: BandedStrategy = STRATEGY, **changes: Any) -> ExecutionPlan:
    clipping = FlatClipping(bound=BOUND)
    sensitivity = clipped_sensitivity(clipping, SENSITIVITY.adjacency, "record")
    given: dict[str, Any] = {"clipping": clipping, "mechanism": Gaussian(std=1.0, sensitivity=sensitivity)} | changes
    return ExecutionPlan.model_validate({"sampling": sampling, "steps": 10, "delta": 1e-5, "strategy": strategy} | given)


def _cyclic(groups: int) -> CyclicPoissonSampling:
    return CyclicPoissonSampling(records=100, expected_batch_size=5, groups=groups, seed=0)


@pytest.mark.parametrize("groups", [3, 4])
def test_a_units_turn_costs_one_release_whatever_the_band(groups: int) -> None:
    alone = ExecutionPlan.model_validate(dict(_plan(_cyclic(groups))) | {"strategy": None})
    assert _plan(_cyclic(groups)).event == alone.event


def test_an_epoch_of_turns_costs_one_allocation_of_a_release_whatever_the_band() -> None:
    allocated = CyclicAllocation(records=100, expected_batch_size=5, groups=4, seed=0)
    plan = _plan(allocated, steps=41)
    once = RandomlyAllocated(steps=5, event=Release(mechanism=plan.mechanism))
    # Of 5 turns of 4 groups: the third epoch has only begun.
    assert plan.event == Repeated(count=3, event=once)
    assert plan.event_after(20) == Repeated(count=1, event=once)


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        (PoissonSampling(records=100, expected_batch_size=5), "at least 3 groups, got 'poisson'"),
        (RandomAllocation(records=100, expected_batch_size=5), "got 'random_allocation'"),
        (_cyclic(2), "got 'cyclic_poisson with 2 groups'"),
        (CyclicAllocation(records=100, expected_batch_size=5, groups=2, seed=0), "got 'cyclic_allocation with 2 groups'"),
    ],
)
def test_a_unit_that_may_come_back_into_the_band_is_refused(sampling: Sampling, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        _plan(sampling)


def test_as_two_sampled_releases_an_overlapping_turn_would_be_sold_too_cheaply() -> None:
    # Two bands and no turns, everybody in every sample: contributions g and g move two releases by c_0 g and (c_0 + c_1) g.
    first, second = BandedNoise(bands=2).planned(10, 2).coefficients
    assert math.hypot(first, first + second) > 1.1 * math.sqrt(2.0)


@pytest.mark.parametrize(
    "mechanism",
    [
        ComplexGaussian(std=1.0, correlation=0.3, sensitivity=SENSITIVITY),
        ComplexGaussian(std_real=1.0, std_imag=2.0, sensitivity=SENSITIVITY),
    ],
    ids=["correlated", "uneven"],
)
def test_noise_that_is_rounded_in_other_coordinates_is_refused(mechanism: ComplexGaussian) -> None:
    with pytest.raises(ValidationError, match="gaussian, or circular complex_gaussian, for correlated noise"):
        _plan(_cyclic(3), mechanism=mechanism)


def test_laplace_noise_is_refused() -> None:
    clipping = L1Clipping(bound=1.0)
    laplace = Laplace(scale=1.0, sensitivity=clipped_sensitivity(clipping, SENSITIVITY.adjacency, "record"))
    with pytest.raises(ValidationError, match="for correlated noise, got 'laplace'"):
        _plan(_cyclic(3), clipping=clipping, mechanism=laplace)


@pytest.mark.parametrize(
    ("coefficients", "told"),
    [
        ((0.8125, 0.59375), "such that their squares add up to at most 1"),
        ((0.5, 0.625), "none above the one before"),
        ((0.0, 0.0), "c_0 > 0"),
        ((0.5, -0.1), "greater than or equal to 0"),
        ((0.8, 0.1), "multiples of 2\\^-10"),
        ((0.5,), "at least 2 items"),
    ],
)
def test_coefficients_that_nothing_is_proved_of_are_refused(coefficients: tuple[float, ...], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        BandedStrategy(coefficients=coefficients)


@pytest.mark.parametrize("count", [2, 3, 10, 64])
def test_planned_coefficients_have_a_length_of_almost_one_and_not_more(count: int) -> None:
    for planned in (BandedNoise(bands=count).planned(10, count), GivenBands(coefficients=(3.0, *[1.0] * (count - 1))).planned(10, count)):
        square = sum(Fraction(one) ** 2 for one in planned.coefficients)
        assert 0.99 < square <= 1
        assert planned.bands == count


def test_a_federation_with_poisson_samples_is_refused(spec_json: dict[str, Any]) -> None:
    document = {key: value for key, value in spec_json.items() if key != "optimizer"} | {"algorithm": "federated_zeta_dp_sgd"}
    document |= {"nodes": 2, "distribution_seed": 1, "server": {"kind": "sgd", "learning_rate": 0.1}}
    with pytest.raises(ValidationError, match="cyclic_poisson or cyclic_allocation with at least 3 groups, got 'federated_poisson'"):
        FederatedZetaDpSgd.model_validate(document | {"noise": {"kind": "banded", "bands": 3}}).plan()


def test_a_spec_without_bands_keeps_its_bytes(spec_json: dict[str, Any]) -> None:
    spec = ZetaDpSgd.model_validate(spec_json)
    assert not {"noise", "sampling"} & set(spec.model_dump(mode="json"))
    assert "strategy" not in spec.plan().model_dump_json()
