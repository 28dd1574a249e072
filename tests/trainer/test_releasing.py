r"""From clipped sums to releases: complex views of real vectors, the joint vector of adaptive clipping, and the bound that it moves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.selection import thinned
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, RandomStream, Sensitivity
from zetadp.mechanisms.declared.correlated import Buffer
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling import grid_normal, kernel
from zetadp.mechanisms.sampling.grid import FEW
from zetadp.trainer.engine import TorchSource
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.noise.bands import BandedSums
from zetadp.trainer.engine.noise.buffers import BufferedSums
from zetadp.trainer.engine.noise.inverse_bands import InverseBandedSums
from zetadp.trainer.engine.noise.noise_watch import NoiseWatch
from zetadp.trainer.engine.noise.releasing import LARGEST_BOUND, gradient, query, release
from zetadp.trainer.engine.noise.weighted import CorrelatedSums
from zetadp.trainer.specs.descent import Cosine, FallingSchedule, StepDecay
from zetadp.trainer.specs.execution_plan import AdaptiveClipping, FlatClipping, ScheduledClipping
from zetadp.trainer.specs.strategy import BandedStrategy, BufferedNoise, LambdaNoise

CPU = torch.device("cpu")
ADAPTIVE = AdaptiveClipping(initial_bound=2.0, quantile=0.8, learning_rate=0.2, count_share=0.1)
ONE = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")
TAKEN_BACK = LambdaNoise(decay=0.5).planned(9, 9)
BAND = BandedStrategy(coefficients=(0.75, 0.375, 0.25))
BUFFERED = BufferedNoise(buffers=(Buffer(weight=0.4, decay=0.7), Buffer(weight=0.1, decay=0.95))).planned(9, 9)


@dataclass(frozen=True)
class _Sum:
    total: Tensor
    within: int


def _source(seed: int = 3) -> TorchSource:
    return TorchSource(RandomStream.from_seed(seed, "releasing"), torch.device("cpu"))


def _clipped(gradients: Tensor, bound: float) -> _Sum:
    norms = gradients.norm(dim=1)
    factors = (bound / norms).clamp(max=1.0)
    return _Sum((factors[:, None] * gradients).sum(dim=0), int((norms <= bound).sum()))


@pytest.mark.parametrize("coordinates", thinned([1, 2, 7, 1001], every=2))
@pytest.mark.parametrize("kind", [Gaussian, ComplexGaussian])
def test_noise_is_on_every_real_coordinate_of_odd_and_even_vectors(kind: type[Gaussian | ComplexGaussian], coordinates: int) -> None:
    source, mechanism = _source(), kind(std=0.5, sensitivity=ONE)
    noise = torch.stack([release(mechanism, torch.zeros(coordinates), source) for _ in range(4000 // coordinates + 10)])
    assert noise.shape[1] == coordinates
    tolerance = 6.0 / math.sqrt(2.0 * noise.numel())
    assert noise.square().mean().sqrt().item() == pytest.approx(0.5, rel=tolerance)
    # The last one too, which a zero was paired with.
    last = noise[:, -1]
    assert last.square().mean().sqrt().item() == pytest.approx(0.5, rel=6.0 / math.sqrt(2.0 * len(last)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_laplace_noise_has_its_scale_on_every_coordinate(dtype: torch.dtype) -> None:
    mechanism = Laplace(scale=0.5, sensitivity=Sensitivity(l1=1.0, adjacency="add_remove", unit="record"))
    noise = release(mechanism, torch.zeros(40_000, dtype=dtype), _source())
    assert (noise.dtype, noise.shape) == (dtype, (40_000,))
    # |x| has mean b and standard deviation b; x^2 has mean 2 b^2, where normal noise of that mean size has 1.57 b^2.
    assert noise.abs().mean().item() == pytest.approx(0.5, rel=6.0 / math.sqrt(40_000))
    assert noise.double().square().mean().item() == pytest.approx(0.5, rel=6.0 * math.sqrt(5.0 / 40_000))


def test_a_release_is_the_vector_with_noise_in_its_own_order() -> None:
    vector = torch.arange(7.0)
    mechanism = ComplexGaussian(std=1e-6, sensitivity=ONE)
    assert torch.allclose(release(mechanism, vector, _source()), vector, atol=1e-5)


@pytest.mark.parametrize("length", [0.1, 0.999, 1.0, 1.001, 50.0])
def test_one_unit_moves_the_joint_vector_by_at_most_one_whatever_the_bound(length: float) -> None:
    bound = 3.7
    others = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    one = torch.ones(1, 5, dtype=torch.float64) * (length * bound / math.sqrt(5.0))
    with_it = query(ADAPTIVE, _clipped(torch.cat((others, one)), bound), 7, bound)
    without = query(ADAPTIVE, _clipped(others, bound), 6, bound)
    moved = (with_it - without).norm().item()
    assert moved <= 1.0 + 1e-12
    # A unit at the bound moves it by exactly 1: the mechanism's sensitivity isn't larger than need be.
    assert length != 1.0 or moved == pytest.approx(1.0, rel=1e-12)


def test_without_noise_the_joint_vector_gives_the_mean_gradient_and_the_fraction_back() -> None:
    gradients = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    clipped = _clipped(gradients, 2.0)
    found = gradient(ADAPTIVE, query(ADAPTIVE, clipped, 40, 2.0), 40, 2.0)
    assert torch.allclose(found.values.double(), clipped.total / 40, rtol=1e-6)
    assert found.next_bound == pytest.approx(2.0 * math.exp(-0.2 * (clipped.within / 40 - 0.8)), rel=1e-12)


def test_the_divisor_of_the_fraction_is_public() -> None:
    # 30 units where 40 were expected, all within: (30 - 15) / 40 + 1/2.
    found = gradient(ADAPTIVE, query(ADAPTIVE, _Sum(torch.zeros(5), 30), 30, 2.0), 40, 2.0)
    assert found.next_bound == pytest.approx(2.0 * math.exp(-0.2 * (0.875 - 0.8)), rel=1e-12)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_bound_follows_the_quantile_of_the_norms(quantile: float) -> None:
    # 100 units' norms, Poisson samples of 50, noise of 0.5 on the joint vector, 300 steps from a bound 20 times too large.
    generator = torch.Generator().manual_seed(5)
    norms = torch.linspace(0.5, 1.5, 100, dtype=torch.float64)
    directions = torch.nn.functional.normalize(torch.randn(100, 6, dtype=torch.float64, generator=generator), dim=1)
    clipping = AdaptiveClipping(initial_bound=20.0, quantile=quantile, learning_rate=0.2, count_share=0.2)
    mechanism, source, bound = ComplexGaussian(std=0.5, sensitivity=ONE), _source(), clipping.bound
    later: list[float] = []
    for step in range(300):
        rows = torch.rand(100, generator=generator) < 0.5
        sample = (norms[:, None] * directions)[rows]
        bound = gradient(
            clipping, release(mechanism, query(clipping, _clipped(sample, bound), len(sample), bound), source), 50, bound
        ).next_bound
        later += [bound] if step >= 150 else []
    # The quantile of these norms is 0.5 + quantile; the mean over 150 correlated steps wanders by about a twentieth.
    assert sum(later) / len(later) == pytest.approx(0.5 + quantile, abs=0.12)


def test_an_adaptive_bound_stays_in_float32s_range() -> None:
    found = gradient(ADAPTIVE, torch.tensor([0.0, -1e9], dtype=torch.float64), 1, LARGEST_BOUND)
    assert found.next_bound == LARGEST_BOUND


def test_flat_clipping_releases_the_sum_itself_and_keeps_its_bound() -> None:
    clipping, clipped = FlatClipping(bound=2.0), _Sum(torch.arange(3.0), 1)
    assert query(clipping, clipped, 5, 2.0) is clipped.total
    found = gradient(clipping, clipped.total, 4, 2.0)
    assert (found.values.tolist(), found.next_bound) == ([0.0, 0.25, 0.5], 2.0)


@pytest.mark.parametrize("schedule", [Cosine(final_share=0.25), StepDecay(after=(1, 2), gamma=0.5)])
def test_a_scheduled_bound_is_a_function_of_the_step_that_no_unit_moves_a_release_beyond(schedule: FallingSchedule) -> None:
    clipping = ScheduledClipping(initial_bound=2.0, schedule=schedule, steps=3)
    bounds = [clipping.bound_in(step) for step in range(1, 5)]
    cosine = [2.0, 2.0 * (0.25 + 0.75 * 0.75), 2.0 * (0.25 + 0.75 * 0.25)]
    expected = cosine if isinstance(schedule, Cosine) else [2.0, 1.0, 0.5]
    assert bounds == pytest.approx([*expected, expected[-1]], rel=1e-12)
    assert clipping.bound == bounds[0]
    unit = torch.full((4,), 3.0, dtype=torch.float64)
    for bound in bounds:
        vector = query(clipping, _clipped(unit[None], bound), 1, bound)
        assert float(vector.norm()) == pytest.approx(clipping.sensitivity, rel=1e-12)
        # Back in the gradient's units, the noise of 1 on the release with it.
        found = gradient(clipping, vector + torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64), 10, bound)
        assert found.values.tolist() == pytest.approx([0.15 * bound, 0.05 * bound, 0.05 * bound, 0.05 * bound], rel=1e-6)


PARTED = [Gaussian(std=2.0, sensitivity=ONE), ComplexGaussian(std=2.0, sensitivity=ONE)]
WHOLE = [ComplexGaussian(std_real=2.0, std_imag=1.5, sensitivity=ONE), ComplexGaussian(std=2.0, correlation=0.5, sensitivity=ONE)]


def _let_kernel_release(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many pieces in one call, as if it couldn't decide a number of the next."""
    whole = kernel.released_over

    def some(*given: Any) -> tuple[int, int, int]:
        *before, together, value, by, watched, recursion = given
        most = pieces * together * (1 + together % 2)
        if most and len(value) > most + FEW:
            value = value[:most]
            if recursion is not None:
                *rule, earlier, single, bound, weight, keeps_sum, kept = recursion
                recursion = (*rule, tuple(one[:most] for one in earlier), single, bound, weight, keeps_sum, kept[:most])
        return whole(*before, together, value, by, watched, recursion) if most else (0, given[0][1], given[1][1])

    monkeypatch.setattr(kernel, "released_over", some)


@pytest.mark.parametrize("numbers", thinned([40, 66, 67, 116, 117, 133, 200, 201, 215, 216, 217, 1001], every=5))
@pytest.mark.parametrize("together", [25, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mechanism", [*PARTED, *WHOLE], ids=["real", "circular", "uneven", "correlated"])
def test_a_release_over_its_vector_is_the_release_to_the_bit(
    mechanism: Gaussian | ComplexGaussian, dtype: torch.dtype, together: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one part or in many, the last of which may be longer, so that none is of few numbers; what is watched is the whole noise."""
    _let_kernel_release(0, monkeypatch)
    assert releasing.PART // 2 % grid_normal.TOGETHER == 0  # short vectors are taken in halves of parts
    monkeypatch.setattr(releasing, "PART", 100)
    monkeypatch.setattr(grid_normal, "TOGETHER", together)
    watch, sizes = NoiseWatch(mechanism), []
    seen = watch.see_part

    def noted(before: Tensor, after: Tensor, first: int) -> None:
        sizes.append(len(before))
        seen(before, after, first)

    monkeypatch.setattr(watch, "see_part", noted)
    vector = 50.0 * torch.randn(numbers, generator=torch.Generator().manual_seed(numbers), dtype=dtype)
    expected = release(mechanism, vector, _source())
    own = vector.clone()
    found = releasing.released_over(mechanism, own, _source(), watch, 0)
    assert torch.equal(found, expected)
    # Some of these seeds have numbers of the rest in several parts.
    for seed in range(20):
        assert torch.equal(
            releasing.released_over(mechanism, vector.clone(), _source(seed), None, 0), release(mechanism, vector, _source(seed))
        )
    in_parts, longest = mechanism in PARTED and numbers > 66, 100 if numbers > 200 else 50
    assert (found.data_ptr() == own.data_ptr()) == in_parts
    assert not in_parts or (min(sizes) > 16 and max(sizes) <= longest + 16 and sum(sizes) == numbers)
    of_whole = NoiseWatch(mechanism)
    of_whole.see(vector, expected)
    assert watch.numbers == of_whole.numbers
    assert asdict(watch._sums) == pytest.approx(asdict(of_whole._sums), rel=1e-5)


@pytest.mark.parametrize("numbers", [67, 117, 133, 201, 216, 1000, 1001])
@pytest.mark.parametrize("together", [25, 50])
@pytest.mark.parametrize("pieces", [0, 1, 2, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mechanism", PARTED, ids=["real", "circular"])
def test_a_release_in_one_call_is_that_in_parts(
    mechanism: Gaussian | ComplexGaussian, dtype: torch.dtype, pieces: int, together: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, and so is what is watched, wherever the kernel leaves off; the next numbers come from the same place."""
    monkeypatch.setattr(releasing, "PART", 100)
    monkeypatch.setattr(grid_normal, "TOGETHER", together)

    def released(watch: NoiseWatch) -> tuple[list[Tensor], bytes]:
        stream, draws = RandomStream.from_seed(numbers, "in one call"), torch.Generator().manual_seed(numbers)
        source = TorchSource(stream, CPU)
        # An odd number of words ends within a block: the second release is in parts, whatever the kernel can.
        vectors = [torch.randn(numbers, generator=draws, dtype=dtype) for _ in range(2)]
        found = [releasing.released_over(mechanism, vector, source, watch, 0) for vector in vectors]
        return found, stream.key()

    whole, parted = NoiseWatch(mechanism), NoiseWatch(mechanism)
    _let_kernel_release(pieces, monkeypatch)
    found, behind = released(whole)
    _let_kernel_release(0, monkeypatch)
    expected, key = released(parted)
    assert all(map(torch.equal, found, expected))
    assert behind == key
    assert whole.numbers == parted.numbers
    assert asdict(whole._sums) == pytest.approx(asdict(parted._sums), rel=1e-5)
    for one, other in zip(whole._products.values(), parted._products.values(), strict=True):
        assert asdict(one) == pytest.approx(asdict(other), rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("numbers", [67, 117, 216, 1000, 1001])
@pytest.mark.parametrize("pieces", [0, 1, 2, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "make",
    [
        lambda one, count: InverseBandedSums(TAKEN_BACK, one, count, 9),
        lambda one, count: BandedSums(BAND, one, count),
        lambda one, count: BufferedSums(BUFFERED, one, count, 9),
    ],
    ids=["taken back", "band", "buffered"],
)
@pytest.mark.parametrize("mechanism", PARTED, ids=["real", "circular"])
def test_what_a_strategy_makes_of_a_sum_is_released_over_it_as_by_itself(
    mechanism: Gaussian | ComplexGaussian,
    make: Callable[[Gaussian | ComplexGaussian, int], CorrelatedSums],
    dtype: torch.dtype,
    pieces: int,
    numbers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the bit, step after step, over the memory of earlier ones, wherever the kernel leaves off; and it is watched as well."""
    monkeypatch.setattr(releasing, "PART", 100)
    monkeypatch.setattr(grid_normal, "TOGETHER", 25)
    _let_kernel_release(pieces, monkeypatch)

    def run(release: Callable[..., Tensor]) -> tuple[list[Tensor], NoiseWatch]:
        sums, watch, draws = make(mechanism, numbers), NoiseWatch(mechanism), torch.Generator().manual_seed(numbers)
        found: list[Tensor] = []
        for step in range(1, 6):
            total = torch.randn(numbers, generator=draws, dtype=dtype)
            with sums.encoding(step, total) as encoding:
                released = release(mechanism, total, _source(step), watch, 0, encoding)
            found += [released.clone(), sums.decoded(released, torch.float32).clone()]
        return found, watch

    (found, watch), (expected, of_whole) = run(releasing.released_over), run(releasing.released_whole)
    assert {one.dtype for one in found[::2]} == {dtype}
    assert all(map(torch.equal, found, expected))
    assert watch.numbers == of_whole.numbers
    assert watch.is_as_claimed
    assert asdict(watch._sums) == pytest.approx(asdict(of_whole._sums), rel=1e-5)


@pytest.mark.parametrize("mechanism", PARTED, ids=["real", "circular"])
def test_noise_that_comes_again_is_seen_in_releases_of_one_call(mechanism: Gaussian | ComplexGaussian) -> None:
    for repeats in (False, True):
        watch = NoiseWatch(mechanism)
        for step in range(4):
            releasing.released_over(mechanism, torch.zeros(releasing.PART), _source(0 if repeats else step), watch, 0)
        assert watch.is_as_claimed != repeats


@pytest.mark.parametrize("mechanism", PARTED, ids=["real", "circular"])
def test_broken_noise_of_a_part_is_seen(mechanism: Gaussian | ComplexGaussian, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "PART", 1000)
    _let_kernel_release(0, monkeypatch)
    right, parts = releasing._released_part, itertools.count()

    def other(_mechanism: Gaussian | ComplexGaussian, part: Tensor, source: TorchSource, length: int) -> Tensor:
        return part.clone() if next(parts) % 4 == 3 else right(mechanism, part, source, length)

    for broken in (False, True):
        if broken:
            monkeypatch.setattr(releasing, "_released_part", other)
        watch = NoiseWatch(mechanism)
        for _ in range(10):
            releasing.released_over(mechanism, torch.zeros(4000), TorchSource(RandomStream.from_operating_system(), CPU), watch, 0)
        assert watch.is_as_claimed != broken


def test_what_is_not_finite_is_refused_in_a_later_part_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "PART", 100)
    monkeypatch.setattr(grid_normal, "TOGETHER", 100)
    vector = torch.zeros(1000)
    vector[777] = math.nan
    watch = NoiseWatch(PARTED[0])
    with pytest.raises(InvalidParameter, match="finite in every coordinate"):
        releasing.released_over(PARTED[0], vector, _source(), watch, 0)
    # The parts before it weren't released, and right noise of later releases is no violation.
    for seed in range(10):
        releasing.released_over(PARTED[0], torch.zeros(1000), _source(seed), watch, 0)
    assert watch.is_as_claimed
