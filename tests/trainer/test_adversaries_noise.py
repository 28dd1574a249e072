"""Broken noise against the run's own test of it, at a claim of epsilon 4: repeated, of other sign or scale. Right noise passes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.selection import chosen, thinned
from tests.trainer.broken_noise import (
    BROKEN,
    CANCELLING,
    CIRCULAR,
    DELTA,
    FAR,
    FIXED,
    GAUSSIAN,
    L2,
    LAPLACE,
    LOOPS,
    MECHANISMS,
    NAMES,
    RELEASE,
    ROUND,
    SHAPES,
    UNEVEN,
    Noise,
    Release,
    Stuck,
    halves,
    honest,
    looped,
    steps,
    watched,
)
from zetadp import accountants
from zetadp.mechanisms import (
    Adjacency,
    ComplexGaussian,
    Gaussian,
    LocalGaussian,
    RandomStream,
    Sensitivity,
)
from zetadp.mechanisms.sampling import kernel
from zetadp.trainer.engine import (
    Alone,
    NoiseWatch,
    SeededRandomness,
    TorchSource,
)
from zetadp.trainer.engine.noise import added_up, noise_watch, releasing, watched_parts
from zetadp.trainer.engine.noise.added_up import AddedUp
from zetadp.trainer.engine.noise.randomness import Randomness
from zetadp.trainer.engine.noise.watched_parts import Passes


# By default one kind of noise at one of the shapes: every mechanism is watched by itself below.
@pytest.mark.parametrize(("kind", "shape"), chosen(LOOPS, LOOPS[2:3]))
class TestTheLoop:
    @pytest.mark.parametrize("broken", thinned(BROKEN, every=2))
    def test_finds_every_broken_release(
        self, kind: type[Any], shape: tuple[int, int], broken: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(releasing, "release", Release(BROKEN[broken]))
        watch, _ = looped(kind, shape, [SeededRandomness(1)])
        assert watch.findings(Alone(), torch.device("cpu")).status == "violated"

    def test_passes_right_noise_at_the_claimed_epsilon(self, kind: type[Any], shape: tuple[int, int]) -> None:
        watch, plan = looped(kind, shape, [SeededRandomness(1)])
        assert watch.findings(Alone(), torch.device("cpu")).status == "consistent"
        assert 3.5 < accountants.profile(plan.event).epsilon_upper(DELTA) <= 4.0

    def test_finds_streams_that_serve_two_steps(self, kind: type[Any], shape: tuple[int, int]) -> None:
        watch, _ = looped(kind, shape, [Stuck(SeededRandomness(1), lambda step: (step + 1) // 2)])
        assert not watch.is_as_claimed

    def test_looks_at_every_site_of_a_federation(self, kind: type[Any], shape: tuple[int, int]) -> None:
        right: list[Randomness] = [SeededRandomness(seed) for seed in range(3)]
        assert looped(kind, shape, right)[0].is_as_claimed
        # Each site repeats itself; or all sites draw the same, new in every step.
        assert not looped(kind, shape, [Stuck(site, lambda step: (step + 1) // 2) for site in right])[0].is_as_claimed
        assert not looped(kind, shape, [SeededRandomness(0)] * 3)[0].is_as_claimed


FOUND = [
    pytest.param(mechanism, broken, shape, id=f"{name}-{broken}-{shape}")
    for mechanism, name in zip(MECHANISMS, NAMES, strict=True)
    for broken in (*BROKEN, *FIXED)
    for shape in SHAPES
    # Of 12 complex draws a step there are too few for sums over releases (``SMALLEST_COUNT``), and products see the last release alone.
    if not (isinstance(mechanism, ComplexGaussian) and shape == SHAPES[1] and broken in ("every third noise", "every fifth noise"))
]


@pytest.mark.parametrize(("mechanism", "broken", "shape"), chosen(FOUND, [one for one in FOUND if one.values[2] == SHAPES[0]][::2]))
def test_every_mechanism_s_broken_noise_is_found(mechanism: Noise, broken: str, shape: tuple[int, int]) -> None:
    for seed in range(5):
        assert not watched(mechanism, (BROKEN | FIXED)[broken], shape, seed).is_as_claimed


@pytest.mark.parametrize(("mechanism", "broken"), thinned(itertools.product(MECHANISMS, CANCELLING), every=3))
def test_noise_that_cancels_itself_at_any_distance_is_found_over_more_numbers(mechanism: Noise, broken: str) -> None:
    assert watched(mechanism, honest, (400, 488)).is_as_claimed
    assert not watched(mechanism, CANCELLING[broken], (400, 488)).is_as_claimed


@pytest.mark.parametrize("numbers", thinned([97, 98, 99, 100], every=2))
@pytest.mark.parametrize("mechanism", thinned([GAUSSIAN, CIRCULAR, LAPLACE], every=3), ids=["real", "circular", "laplace"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_halves_of_any_length_are_found_at_either_middle(mechanism: Noise, numbers: int, sign: float) -> None:
    def from_the_earlier_middle(noise: Tensor, _before: Sequence[Tensor]) -> Tensor:
        half = len(noise) // 2
        return torch.cat((noise[:half], sign * noise[:half], noise[2 * half :]))

    assert not watched(mechanism, halves(sign), (60, numbers)).is_as_claimed
    assert not watched(mechanism, from_the_earlier_middle, (60, numbers)).is_as_claimed


# Uneven noise takes longest; by default it passes with one seed each in the tests of very uneven noise and of long vectors.
@pytest.mark.parametrize("mechanism", chosen(MECHANISMS, [GAUSSIAN, CIRCULAR]), ids=NAMES)
def test_right_noise_passes_with_every_seed(mechanism: Noise) -> None:
    for seed in range(60):
        assert watched(mechanism, honest, SHAPES[seed % 2], seed).is_as_claimed
    for shape in [(1, 1), (1, 2), (3, 5), (400, 1), (2, 250_001)]:
        assert watched(mechanism, honest, shape).is_as_claimed


@pytest.mark.parametrize("correlation", thinned([0.0, 0.99, -0.9999], every=3))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_very_uneven_noise_keeps_its_digits(correlation: float, dtype: torch.dtype) -> None:
    mechanism = ComplexGaussian(std_real=1.0, std_imag=1e-3, correlation=correlation, sensitivity=L2)
    watch = NoiseWatch(mechanism)
    source = TorchSource(RandomStream.from_seed(4, "noise"), torch.device("cpu"))
    for _ in range(3):
        zero = torch.zeros(500_000, dtype=dtype)
        watch.see(zero, RELEASE(mechanism, zero, source))
    assert watch.is_as_claimed
    assert not watched(mechanism, steps(1.0, always=False), (40, 60)).is_as_claimed


def test_the_blocks_of_a_long_vector_are_one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_watch, "BLOCK", 7)
    for mechanism in MECHANISMS:
        assert watched(mechanism, honest, (10, 241)).is_as_claimed
        assert not watched(mechanism, halves(1.0), (10, 241)).is_as_claimed
        assert not watched(mechanism, steps(1.0, always=False), (10, 241)).is_as_claimed


def test_releases_of_several_lengths_and_of_more_numbers_than_are_added_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (added_up.FIRST, 50):
        monkeypatch.setattr(added_up, "FIRST", first)
        for mechanism in MECHANISMS:
            source, watch = TorchSource(RandomStream.from_seed(4, "noise"), torch.device("cpu")), NoiseWatch(mechanism)
            for number in range(90):
                zero = torch.zeros(60 if number % 40 < 20 else 80)
                watch.see(zero, RELEASE(mechanism, zero, source))
            assert watch.is_as_claimed
        assert not watched(GAUSSIAN, FAR["every third noise"], (100, 60)).is_as_claimed


@pytest.mark.parametrize("numbers", thinned([1, 2, 7, 100, 4096, 9001], every=3))
@pytest.mark.parametrize(
    "mechanism", thinned([GAUSSIAN, CIRCULAR, ROUND, UNEVEN], every=2), ids=["real", "circular", "nearly circular", "uneven"]
)
def test_one_pass_of_the_kernel_sums_up_what_several_do(mechanism: Noise, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel.COMPILED is None:
        pytest.skip("no compiled kernel: torch's own sums are all there is")
    generator = torch.Generator().manual_seed(numbers)
    releases = [(torch.randn(numbers, generator=generator), torch.randn(numbers, generator=generator)) for _ in range(5)]
    seen: list[list[float]] = []
    for compiled in (kernel.COMPILED, None):
        monkeypatch.setattr(kernel, "COMPILED", compiled)
        watch = NoiseWatch(mechanism)
        for place, (vector, released) in zip((0, 0, 0, 1, 1), releases, strict=True):
            watch.see(vector, released, place)
        watch._add()
        seen.append([value for one in (watch._sums, *watch._products.values()) for value in asdict(one).values()])
    assert seen[0] == pytest.approx(seen[1], rel=1e-5, abs=1e-5 * numbers)
    assert seen[0][0] == 5 * (numbers if mechanism is GAUSSIAN else numbers // 2)


def test_the_contraction_of_a_release_is_no_other_scale() -> None:
    # Noise that is large for its sensitivity is wider by 2 %: 10^5 numbers would tell.
    wide = Gaussian(std=1.0, sensitivity=Sensitivity(l2=1e-5, adjacency=Adjacency.ADD_REMOVE, unit="record"))
    numbers = 200_000
    share = 1.0 / wide.contracted_to(numbers)
    assert 1.01 < share < 1.02
    watch, zero = NoiseWatch(wide), torch.zeros(numbers, dtype=torch.float64)
    released = wide.release(zero, TorchSource(RandomStream.from_seed(1, "noise"), torch.device("cpu")))
    watch.see(zero, released)
    assert watch.is_as_claimed
    # Beyond that share it is another scale.
    watch = NoiseWatch(wide)
    watch.see(zero, released * 1.03)
    assert not watch.is_as_claimed


def test_sums_that_a_release_would_hold_are_no_violation() -> None:
    vector = torch.full((4000,), 2.0**20)
    for mechanism in (GAUSSIAN, CIRCULAR):
        held = releasing.held(mechanism, vector.clone())
        assert held.max() < 2.0**18 * mechanism.noise_scale
        watch = NoiseWatch(mechanism)
        watch.see(held, releasing.release(mechanism, held, TorchSource(RandomStream.from_seed(1, "noise"), torch.device("cpu"))))
        assert watch.is_as_claimed
    few = vector[:10]
    assert torch.equal(releasing.held(GAUSSIAN, few.clone()), few)


def test_a_byte_a_number_of_the_last_noise_is_kept_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = 3.0 * torch.randn(4, 5000, generator=torch.Generator().manual_seed(1))
    vectors[-1, :3] = torch.tensor([math.nan, math.inf, -1e30])
    expected = (vectors[-1] * (watched_parts.STEPS / 3.0)).nan_to_num(nan=-127.0).clamp(-127.0, 127.0).trunc()
    for compiled in {kernel.COMPILED, None}:
        monkeypatch.setattr(kernel, "COMPILED", compiled)
        watch = NoiseWatch(GAUSSIAN)
        for released in vectors:
            watch.see(torch.zeros(5000), released)
        assert [kept.data_ptr() for kept in watch.__dict__.values() if isinstance(kept, Tensor)] == []
        assert watch._last[0].dtype == torch.int8
        assert torch.equal(watch._last[0].float(), expected)
        assert not watch.is_as_claimed


@pytest.mark.parametrize("mechanism", thinned([GAUSSIAN, CIRCULAR, ROUND], every=2), ids=["real", "circular", "nearly circular"])
@pytest.mark.parametrize("numbers", thinned([2, 7, 100, 9001], every=2))
def test_rounded_noise_never_makes_a_product_longer(mechanism: Gaussian | ComplexGaussian, numbers: int) -> None:
    """Sums of absolute products with what is kept are at most those with the noise itself, and nearly as large where noise comes again."""
    noise = torch.randn(numbers, generator=torch.Generator().manual_seed(numbers)) * mechanism.noise_scale
    passes = Passes.of(mechanism, AddedUp())
    assert passes is not None
    kept = passes.restored(passes.rounded(noise))
    assert (kept.abs() <= noise.abs() * (1.0 + 1e-6)).all()
    assert (kept * noise >= 0.0).all()
    assert numbers < 100 or float(kept @ noise) > 0.96 * float(noise @ noise)


@pytest.mark.parametrize("size", thinned([2, 10, 4096, 5000], every=2))
@pytest.mark.parametrize("mechanism", thinned([GAUSSIAN, CIRCULAR, ROUND], every=2), ids=["real", "circular", "nearly circular"])
def test_parts_of_a_release_are_looked_at_as_the_whole(mechanism: Noise, size: int) -> None:
    generator, seen = torch.Generator().manual_seed(size), []
    releases = [torch.randn(2, numbers, generator=generator) for numbers in (5000, 5000, 4999, 4999)]
    for step in (size, 5000):
        watch = NoiseWatch(mechanism)
        for vector, released in releases:
            watch.begin(vector, 0)
            for first in range(0, len(vector), step):
                watch.see_part(vector[first : first + step], released[first : first + step], first)
            watch.end(0)
        watch._add()
        sums = (watch._sums, *watch._products.values(), *watch._added.sums())
        seen.append([value for one in sums for value in asdict(one).values()])
    assert seen[0] == pytest.approx(seen[1], rel=1e-5, abs=1e-3)
    assert seen[0][0] == (19_998 if mechanism is GAUSSIAN else 9998)


@pytest.mark.parametrize("rows", [60, 61])
def test_noise_that_all_rows_share_is_found(rows: int) -> None:
    sensitivity = Sensitivity(l2=7.0, adjacency=Adjacency.REPLACE_ONE, unit="record")
    mechanism = LocalGaussian(lower=0.0, upper=1.0, dimension=40, std=3.0, sensitivity=sensitivity)
    drawn = torch.randn(rows, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * mechanism.std
    for noise, right in [(drawn, True), (drawn[:1].expand(rows, 40), False)]:
        watch = NoiseWatch(mechanism)
        watch.see(torch.zeros(rows, 40, dtype=torch.float64), noise)
        assert watch.is_as_claimed == right


def test_what_leaves_the_release_is_looked_at_and_not_what_was_drawn() -> None:
    # Right draws that the sum swallows: float32 keeps nothing of noise of 1 beside 1e9.
    watch, source = NoiseWatch(GAUSSIAN), TorchSource(RandomStream.from_seed(1, "noise"), torch.device("cpu"))
    vector = torch.full((2400,), 1e9)
    watch.see(vector, RELEASE(GAUSSIAN, vector, source))
    assert not watch.is_as_claimed
