r"""What is really drawn: law, tails and independence of the noise in single precision, and that each check would see a wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from mechanisms import Adjacency, ComplexGaussian, Gaussian, InvalidParameter, NumpySource, RandomStream, Sensitivity
from mechanisms.box_muller import BLOCK_PAIRS, SinglePrecisionNormals, single_precision
from trainer.engine import TorchSource

STD, COORDINATES = 1.5, 1_000_000
TAIL_DRAWS = 40_000_000
CHANCE = 1e-6
"""Of a false alarm in each check, were the seeds not fixed."""
SENSITIVITY = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")

Numbers = NDArray[np.float32]


@cache
def _noise(seed: int = 1) -> torch.Tensor:
    source = TorchSource(RandomStream.from_seed(seed, "sampler test"), torch.device("cpu"), torch.float32)
    return ComplexGaussian(std=STD, sensitivity=SENSITIVITY).noise((COORDINATES,), source)


@cache
def _tail_counts() -> dict[float, int]:
    """Of TAIL_DRAWS standard numbers, how many lie beyond these sigmas; the bounds of 1.3 and 0.7 as small and as large a scale too."""
    stream = RandomStream.from_seed(2, "sampler test")
    levels = [level / scale for level in (4.0, 5.0) for scale in (0.7, 1.0, 1.3)]
    counts = dict.fromkeys(levels, 0)
    for _ in range(20):
        size = np.abs(stream.normal32(TAIL_DRAWS // 20, 1.0))
        far = size[size > min(levels)]
        for level in levels:
            counts[level] += int((far > level).sum())
    return counts


def _parts() -> list[Numbers]:
    return [_noise().real.numpy(), _noise().imag.numpy()]


def check_mean_and_variance(numbers: Numbers, std: float) -> None:
    """Both within the two-sided quantiles of an exact sample's."""
    wide, count = numbers.astype(np.float64) / std, numbers.size
    assert abs(wide.mean()) <= stats.norm.isf(CHANCE / 2) / math.sqrt(count)
    lower, upper = stats.chi2.ppf([CHANCE / 2, 1 - CHANCE / 2], count)
    assert lower <= (wide**2).sum() <= upper


def check_law(numbers: Numbers, std: float) -> None:
    """Kolmogorov and Smirnov's distance."""
    assert stats.kstest(numbers.astype(np.float64) / std, "norm").pvalue >= CHANCE


def check_tail(count: int, level: float) -> None:
    """How many of TAIL_DRAWS lie beyond ``level`` sigma: 2534 beyond 4 and 23 beyond 5 are expected."""
    expected = TAIL_DRAWS * 2.0 * stats.norm.sf(level)
    lower, upper = stats.poisson.ppf([CHANCE / 2, 1 - CHANCE / 2], expected)
    assert lower <= count <= upper


def check_independence(one: Numbers, other: Numbers) -> None:
    """Of the numbers and of their sizes: two components of one pair share a radius."""
    threshold = stats.norm.isf(CHANCE / 2) / math.sqrt(one.size)
    for function in (np.asarray, np.abs, np.square):
        assert abs(np.corrcoef(function(one), function(other))[0, 1]) <= threshold


@pytest.mark.parametrize("part", [0, 1])
def test_each_component_has_mean_zero_and_the_stated_deviation(part: int) -> None:
    check_mean_and_variance(_parts()[part], STD)


@pytest.mark.parametrize("part", [0, 1])
def test_each_component_is_normal(part: int) -> None:
    check_law(_parts()[part], STD)


@pytest.mark.parametrize(
    ("check", "factor"),
    [(check_law, 0.7), (check_law, 1.3), *((check_mean_and_variance, factor) for factor in (0.7, 0.99, 1.01, 1.3))],
)
def test_the_checks_reject_a_wrong_scale(check: Callable[[Numbers, float], None], factor: float) -> None:
    with pytest.raises(AssertionError):
        check(_parts()[0] * np.float32(factor), STD)


@pytest.mark.parametrize("level", [4.0, 5.0])
def test_tails_are_as_heavy_as_they_should_be(level: float) -> None:
    check_tail(_tail_counts()[level], level)


@pytest.mark.parametrize("level", [4.0, 5.0])
@pytest.mark.parametrize("scale", [0.7, 1.3])
def test_the_tail_check_rejects_a_scale_that_is_thirty_per_cent_off(level: float, scale: float) -> None:
    with pytest.raises(AssertionError):
        check_tail(_tail_counts()[level / scale], level)


@pytest.mark.parametrize("level", [4.0, 5.0])
def test_the_tail_check_rejects_a_tail_that_is_cut_off(level: float) -> None:
    with pytest.raises(AssertionError):
        check_tail(0, level)


def test_components_are_independent() -> None:
    check_independence(*_parts())


def test_neighbours_are_independent() -> None:
    for part in _parts():
        check_independence(part[:-1], part[1:])


def test_halves_of_a_block_are_independent() -> None:
    # A radius's cosine stands there in the first half and its sine in the second.
    drawn = RandomStream.from_seed(3, "sampler test").normal32(2 * BLOCK_PAIRS, 1.0)
    check_independence(drawn[:BLOCK_PAIRS], drawn[BLOCK_PAIRS:])


def test_successive_calls_are_independent() -> None:
    stream = RandomStream.from_seed(4, "sampler test")
    check_independence(stream.normal32(500_000, 1.0), stream.normal32(500_000, 1.0))


def test_the_independence_check_rejects_a_shared_radius() -> None:
    generator = np.random.default_rng(0)
    radius, angle = np.sqrt(generator.random(COORDINATES)), 2.0 * np.pi * generator.random(COORDINATES)
    with pytest.raises(AssertionError):
        check_independence((radius * np.cos(angle)).astype(np.float32), (radius * np.sin(angle)).astype(np.float32))


def test_a_seed_repeats_its_numbers_and_another_seed_has_others() -> None:
    assert torch.equal(_noise.__wrapped__(1), _noise())
    assert not bool((_noise.__wrapped__(5) == _noise()).all())


def test_keys_of_the_operating_system_never_repeat() -> None:
    one, other = (RandomStream.from_operating_system().normal32(8, 1.0) for _ in range(2))
    assert not set(one.tolist()) & set(other.tolist())


def test_no_number_is_drawn_twice_over_many_blocks() -> None:
    # 2 * 10^5 pairs of float32 collide as pairs with probability below 1e-3; one repeated block would collide wholly.
    drawn = RandomStream.from_seed(6, "sampler test").normal32(400_000, 1.0).view(np.uint64)
    assert len(np.unique(drawn)) >= len(drawn) - 1


def test_an_odd_count_and_none_are_drawn() -> None:
    stream = RandomStream.from_seed(7, "sampler test")
    assert [len(stream.normal32(count, 1.0)) for count in (0, 1, 3, 2 * BLOCK_PAIRS + 1)] == [0, 1, 3, 2 * BLOCK_PAIRS + 1]


def _from_words(radius_words: NDArray[np.uint32], angle_words: NDArray[np.uint32], more: NDArray[np.uint64] | None) -> Numbers:
    """One block from given bits."""
    left = iter(() if more is None else (more,))

    def fill(target: NDArray[np.uint64]) -> None:
        target[:] = next(left)

    out = np.empty(2 * len(radius_words), np.float32)
    scratch = np.empty(len(radius_words), np.float32)
    SinglePrecisionNormals(fill).transform(np.concatenate((radius_words, angle_words)), scratch, out, np.float32(1.0))
    return out


def _radius(numbers: Numbers) -> NDArray[np.float64]:
    return np.hypot(*numbers.astype(np.float64).reshape(2, -1))


@pytest.mark.parametrize(
    ("word", "more", "complement"),
    [
        (2**32 - 1, 0, 2.0**-96),
        (2**32 - 1, 2**32 - 1, 2.0**-64),
        (2**32 - 1, 2**64 - 1, 2.0**-32),
        (2**32 - 2, 2**63 - 1, 1.5 * 2.0**-32),
        (2**32 - 2**24, 2**64 - 1, 2.0**-8),
    ],
)
def test_the_tail_is_refined_by_further_bits(word: int, more: int, complement: float) -> None:
    drawn = _from_words(np.array([word], np.uint32), np.array([77], np.uint32), np.array([more], np.uint64))
    # Four roundings of float32, relative.
    assert _radius(drawn)[0] == pytest.approx(math.sqrt(-2.0 * math.log(complement)), rel=4 * 2.0**-24)


def test_far_tails_have_their_law() -> None:
    # Given that the word is all ones, r^2 / 2 exceeds 32 ln 2 by an exponential number: unrefined words would give one radius, 6.66.
    count = 200_000
    more = np.empty(count, np.uint64)
    RandomStream.from_seed(8, "sampler test").fill(more)
    excess = _radius(_from_words(np.full(count, 2**32 - 1, np.uint32), np.arange(count, dtype=np.uint32), more)) ** 2 / 2
    assert stats.kstest(excess - 32.0 * math.log(2.0), "expon").pvalue >= CHANCE


def test_outside_the_tail_the_radius_is_that_of_its_word() -> None:
    words = np.empty(100_000, np.uint32)
    RandomStream.from_seed(9, "sampler test").fill(words)
    words = words[words < 2**32 - 2**24]
    exact = np.sqrt(-2.0 * np.log1p(-((words | 1) * 2.0**-32)))
    # The docstring's 4e-6: rounding f at the tail's edge.
    assert np.abs(_radius(_from_words(words, words[::-1].copy(), None)) - exact).max() <= 4e-6


def test_angles_are_those_of_their_words() -> None:
    words = np.linspace(0, 2**32 - 1, 100_001).astype(np.uint32)
    drawn = _from_words(np.full(len(words), 2**31, np.uint32), words, None).astype(np.float64).reshape(2, -1)
    exact = np.pi * 2.0**-31 * (words | 1).astype(np.uint32).view(np.int32).astype(np.float64)
    difference = np.angle(np.exp(1j * (np.arctan2(drawn[1], drawn[0]) - exact)))
    # The docstring's 3e-7, and a rounding of sine and cosine.
    assert np.abs(difference).max() <= 4e-7


def test_no_word_gives_a_zero() -> None:
    corners = np.array([0, 1, 2**30, 2**31 - 1, 2**31, 2**32 - 2**24 - 1, 2**32 - 2**30], np.uint32)
    radii, angles = (grid.ravel().astype(np.uint32) for grid in np.meshgrid(corners, corners))
    drawn = _from_words(radii, angles, None)
    assert np.isfinite(drawn).all()
    assert (drawn != 0.0).all()


@pytest.mark.parametrize("std", [0.1, 1.0, 1 / 3, 1e-30, 1e30, 1 + 2.0**-30])
def test_single_precision_never_means_less_noise(std: float) -> None:
    assert std <= float(single_precision(std)) <= std * (1 + 2.0**-23)


@pytest.mark.parametrize("std", [1e-31, 1e31, math.nan])
def test_deviations_beyond_single_precision_are_refused(std: float) -> None:
    with pytest.raises(InvalidParameter, match=r"std must be in \[1e-30, 1e\+30\] for noise in single precision"):
        RandomStream.from_seed(1, "refused").normal32(4, std)


def test_noise_is_the_standard_numbers_times_the_deviation() -> None:
    one, other = (RandomStream.from_seed(10, "sampler test") for _ in range(2))
    assert np.array_equal(one.normal32(1000, 0.5), other.normal32(1000, 1.0) * np.float32(0.5))


def test_torch_and_numpy_draw_the_same_circular_noise() -> None:
    mechanism = ComplexGaussian(std=STD, sensitivity=SENSITIVITY)
    drawn = mechanism.noise((3, 2), TorchSource(RandomStream.from_seed(1, "noise"), torch.device("cpu"), torch.float64))
    assert np.array_equal(drawn.numpy(), mechanism.noise((3, 2), NumpySource.from_seed(1)))


@pytest.mark.parametrize("mechanism", [ComplexGaussian(std=STD, sensitivity=SENSITIVITY), Gaussian(std=STD, sensitivity=SENSITIVITY)])
def test_a_release_in_single_precision_stays_there(mechanism: ComplexGaussian | Gaussian) -> None:
    value = torch.zeros(5, dtype=torch.complex64 if mechanism.is_complex else torch.float32)
    source = TorchSource(RandomStream.from_seed(1, "type"), torch.device("cpu"), torch.float32)
    assert mechanism.release(value, source).dtype == value.dtype


def test_correlated_noise_in_single_precision_has_its_correlation() -> None:
    source = TorchSource(RandomStream.from_seed(11, "sampler test"), torch.device("cpu"), torch.float32)
    noise = ComplexGaussian(std_real=1.0, std_imag=2.0, correlation=0.6, sensitivity=SENSITIVITY).noise((COORDINATES,), source)
    check_mean_and_variance(noise.real.numpy(), 1.0)
    check_mean_and_variance(noise.imag.numpy(), 2.0)
    # Five standard errors of a correlation of 0.6: (1 - 0.36) / 1000.
    assert np.corrcoef(noise.real.numpy(), noise.imag.numpy())[0, 1] == pytest.approx(0.6, abs=5 * 0.64e-3)


def test_a_value_of_double_precision_is_refused_by_noise_of_single_precision() -> None:
    source = TorchSource(RandomStream.from_seed(1, "type"), torch.device("cpu"), torch.float32)
    with pytest.raises(InvalidParameter, match="of a type with no more digits than the noise"):
        ComplexGaussian(std=STD, sensitivity=SENSITIVITY).release(torch.zeros(2, dtype=torch.complex128), source)
