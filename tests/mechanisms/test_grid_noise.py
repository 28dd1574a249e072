"""Noise on a grid: its law exactly, its slow ways forced, the distance of neighbours on it, and nothing of a value in its lowest bits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from tests.selection import chosen, thinned
from zetadp.mechanisms import ComplexGaussian, Gaussian, InvalidParameter, LocalGaussian, NumpySource, RandomStream, Sensitivity
from zetadp.mechanisms.sampling import grid_laplace, grid_normal, kernel
from zetadp.mechanisms.sampling.grid import STEP, contraction, largest, rounding
from zetadp.mechanisms.sampling.lazy_bits import bits_below

ONE = Sensitivity(l2=1.0, l1=1.0, adjacency="add_remove", unit="record")
UNLIKELY = 1e-6
"""Of a right sampler; seeds are fixed."""
GOLDEN_NORMAL = [1579684389, -3712930693, -859691644, 311544651]
GOLDEN_LAPLACE = [-2053704054, 5926720510, 24670031765, -5591951778]
GOLDEN_SUM = -47610598661
"""From the words of AES-256-CTR: integers, the same on every machine and in every version."""


def cells(numbers: np.ndarray) -> np.ndarray:
    """The integers behind numbers on the grid; fails where one isn't on it."""
    found = numbers / STEP - 0.5
    assert np.array_equal(found, np.rint(found))
    return found.astype(np.int64)


def p_value(drawn: np.ndarray, expected: np.ndarray) -> float:
    """Chi-square of counts of the classes 0, 1, ...; rare classes are put together."""
    counts = np.bincount(drawn, minlength=len(expected))[: len(expected)]
    often = expected > 10.0
    observed, wanted = np.append(counts[often], counts[~often].sum()), np.append(expected[often], expected[~often].sum())
    kept = wanted > 0.0
    return float(stats.chi2.sf(((observed[kept] - wanted[kept]) ** 2 / wanted[kept]).sum(), kept.sum() - 1))


def classes(drawn: np.ndarray, bits: int, reach: int) -> np.ndarray:
    """Cells of 2^-bits between -reach and reach, numbered from 1; 0 and the last are what lies beyond."""
    half = reach << bits
    return np.clip((drawn >> (32 - bits)) + half + 1, 0, 2 * half + 1)


def law(cdf, bits: int, reach: int) -> np.ndarray:
    edges = np.arange(-(reach << bits), (reach << bits) + 1) / 2.0**bits
    inner = np.where(edges[:-1] >= 0.0, cdf(-edges[:-1]) - cdf(-edges[1:]), cdf(edges[1:]) - cdf(edges[:-1]))
    return np.concatenate([[cdf(edges[0])], inner, [cdf(edges[0])]])


# What the chi-square tests can see


@pytest.mark.parametrize("bits", [4, 8, 12])
@pytest.mark.parametrize("count", chosen([2_000_000, 50_000_000], [2_000_000]))
def test_normal_noise_has_its_law(count, bits):
    stream = RandomStream.from_seed(bits, "law of the normal grid")
    drawn = np.concatenate([classes(cells(stream.grid_normal(500_000)), bits, 5) for _ in range(count // 500_000)])
    assert p_value(drawn, count * law(stats.norm.cdf, bits, 5)) > UNLIKELY


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_the_same_test_catches_noise_that_is_one_percent_off(factor):
    stream = RandomStream.from_seed(1, "law of the normal grid")
    drawn = np.floor(factor * stream.grid_normal(2_000_000) / STEP).astype(np.int64)
    assert p_value(classes(drawn, 4, 5), 2_000_000 * law(stats.norm.cdf, 4, 5)) < UNLIKELY


@pytest.mark.parametrize("bits", [4, 8])
def test_laplace_noise_has_its_law(bits):
    drawn = cells(RandomStream.from_seed(bits, "law of the Laplace grid").grid_laplace(1_000_000))
    assert p_value(classes(drawn, bits, 10), 1_000_000 * law(stats.laplace.cdf, bits, 10)) > UNLIKELY


def test_the_lowest_digits_are_even():
    """Within 2^-24 deviations the density is flat: the last 8 binary digits are as likely as each other."""
    for drawn in (RandomStream.from_seed(3, "digits").grid_normal(500_000), RandomStream.from_seed(3, "digits").grid_laplace(500_000)):
        assert p_value(cells(drawn) & 255, np.full(256, 500_000 / 256.0)) > UNLIKELY


# What lies above the rectangles, which one draw in 600 comes to


def test_the_table_lies_under_the_density_and_its_envelope_above():
    table = grid_normal.table()
    heights = np.diff(table.ends, prepend=0)
    with mpmath.workdps(40):
        for number in [*range(0, 2048, 97), 2047]:
            left, right = (2 * mpmath.npdf(mpmath.mpf(number + end) / 256) * 2**31 for end in (0, 1))
            assert table.rectangles[number] <= right <= left <= table.rectangles[number] + heights[number]
        for octave in range(60):
            assert 2 * mpmath.npdf(8 + octave) * 2**39 < mpmath.mpf(2) ** -(octave + 1)
    assert 1.0 - int(table.rectangles.sum()) / grid_normal.TOTAL == pytest.approx(1.0 / 641.7, rel=1e-3)


def test_no_column_beyond_the_rest_is_ever_its_own():
    assert not (grid_normal.table().columns[2049:] >> np.uint64(16)).any()


def test_the_rest_has_its_law():
    drawn = grid_normal.draw_rest(1_000_000, RandomStream.from_seed(5, "rest").fill)
    edges = np.arange(8 * 2**10 + 1) / 2.0**10
    masses = np.diff(2.0 * stats.norm.cdf(edges)) - np.repeat(grid_normal.table().rectangles / grid_normal.TOTAL, 4) / 4.0
    assert p_value(drawn >> 22, 1_000_000 * masses / masses.sum()) > UNLIKELY


def words(value: int):
    """A source of random bits that gives these 64 again and again."""
    return lambda target: target.view("<u8").fill(value) if target.dtype == np.dtype("<u8") else target.fill(value & 0xFFFFFFFF)


@pytest.fixture(params=["compiled", "NumPy"])
def _way(request, monkeypatch):
    """Either kernel."""
    if request.param == "NumPy":
        monkeypatch.setattr(kernel, "COMPILED", None)
    elif kernel.COMPILED is None:
        pytest.skip("no compiled kernel: NumPy is all there is")


def verdicts_of(cell: int, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel says of this cell with each of these words to compare."""
    table = grid_normal.table()
    given, inside = np.zeros((4, len(drawn)), np.uint64), min(cell >> 24, 2048)
    given[0] = (int(table.ends[inside]) - 1) << table.shift
    given[1], given[2] = (cell & 0xFFFFFFFF) << 32, drawn
    cells, verdicts, undecided = kernel.rest(given, table.ends, table.rectangles, table.shift)
    assert undecided == (verdicts == kernel.UNDECIDED).sum()
    return cells, verdicts


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("cell", thinned([0, 1, (1 << 24) - 1, 1 << 24, 5 << 30, (8 << 32) - 1], every=3))
def test_slow_and_fast_comparisons_agree(cell):
    drawn = (np.random.default_rng(cell).random(40) * 2.0**64).astype(np.uint64)
    cells, verdicts = verdicts_of(cell, drawn)
    assert (cells == cell).all()
    assert verdicts.tolist() == [grid_normal.is_below(int(word), cell, words(0)) for word in drawn]


@pytest.mark.usefixtures("_way")
def test_what_is_near_and_what_lies_in_the_tail_is_decided_slowly():
    table, cell = grid_normal.table(), (5 << 30) + (1 << 23)
    density, inside = 2.0**32 * stats.norm.pdf((cell + 0.5) * STEP), cell >> 24
    probability = (density - table.rectangles[inside]) / (table.ends[inside] - table.ends[inside - 1])
    near = np.array([probability * 2.0**64 + apart * 2.0**64 for apart in (-(2.0**-20), 0.0, 2.0**-20)]).astype(np.uint64)
    assert verdicts_of(cell, near)[1].tolist() == [kernel.ACCEPTED, kernel.UNDECIDED, kernel.REJECTED]
    cells, verdicts = verdicts_of((8 << 32) + 17, near)
    assert (cells == (8 << 32) + 17).all()
    assert (verdicts == kernel.UNDECIDED).all()


@pytest.mark.parametrize("cell", [8 << 32, (9 << 32) + 17, (9 << 32) + (1 << 31)])
def test_a_cell_of_the_tail_is_taken_with_its_share_of_the_envelope(cell):
    octave = (cell >> 32) - 8
    probability = stats.norm.pdf((cell + 0.5) * STEP) * 2.0 ** (32 + 9 + octave)
    below, above = (int(probability * (1.0 + apart) * 2.0**64) for apart in (-1e-9, 1e-9))
    assert grid_normal.is_below(below, cell, words(0))
    assert not grid_normal.is_below(above, cell, words(0))


def test_a_proposed_cell_of_the_tail_moves_on_by_octaves(monkeypatch):
    """Forced: one proposal in 10^9 lies there."""
    monkeypatch.setattr(
        kernel, "rest", lambda given, *_: (np.full(given.shape[1], (8 << 32) + 3), np.full(given.shape[1], -1, np.int8), given.shape[1])
    )
    monkeypatch.setattr(grid_normal, "is_below", lambda _word, _cell, _fill: True)
    assert grid_normal.draw_rest(2, words(0b1000)).tolist() == [(11 << 32) + 3] * 2


def test_undecided_comparisons_go_to_as_many_digits_as_it_takes():
    third = Fraction(1, 3)
    asked: list[int] = []

    def probability(of):
        asked.append(of.prec)
        return of.mpf(1) / 3

    first = int(third * 2**64)
    assert bits_below(first, 64, probability, words(0))  # 0.0101...01 and then zeros lies below
    assert not bits_below(first, 64, probability, words(2**64 - 1))
    assert asked == [128, 192, 128, 192]


def test_the_tail_has_no_end():
    """Every further deviation is reached by one more fair coin."""
    coins = iter([0, 0, 1 << 5])

    def fill(target):
        target.fill(next(coins))

    assert grid_normal._octaves(0, fill) == 64 + 64 + 64 + 5 - 64 + 64
    assert grid_normal._octaves(8, words(0)) == 3
    assert grid_laplace._beyond(2**32 - 1, words(0)) == 0


def test_laplace_passes_its_last_digit_when_the_bits_say_so():
    given = iter([0, 0, 0, 2**64 - 1, 2**64 - 1])
    assert grid_laplace._beyond(0, lambda target: target.fill(next(given))) >= 1


# The same bits everywhere


@pytest.mark.parametrize("kind", thinned([np.float64, np.float32, np.float16], every=2))
@pytest.mark.parametrize("count", thinned([5, 40, 100_000], every=2))
@pytest.mark.usefixtures("_way")
def test_drawn_into_the_release_numbers_are_those_that_are_drawn_before_it(count, kind):
    value = np.random.default_rng(1).normal(size=(count, 2)).astype(kind)
    noise = RandomStream.from_seed(7, "same bits").grid_normal(2 * count).reshape(count, 2)
    released = RandomStream.from_seed(7, "same bits").released_normal(value, 0.7, 3.0, 2.0)
    assert released.dtype == kind
    assert np.array_equal(released, kernel.released(value, noise, 0.7, 3.0, 2.0))


@pytest.mark.parametrize("broken", thinned([math.nan, math.inf, -math.inf], every=2))
@pytest.mark.parametrize("place", thinned([0, 40_000, 99_999], every=2))
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.usefixtures("_way")
def test_one_number_that_is_not_finite_is_seen_wherever_it_stands(kind, place, broken):
    value = np.full(100_000, np.finfo(kind).max, kind)
    value[::3] = np.finfo(kind).smallest_subnormal
    source, gaussian = NumpySource.from_seed(1), Gaussian(std=1.0, sensitivity=ONE)
    with np.errstate(over="ignore"):
        assert np.isfinite(gaussian.release(value, source)).all()
        value[place] = broken
        with pytest.raises(InvalidParameter, match="finite in every coordinate"):
            gaussian.release(value, source)


def test_a_seed_gives_the_same_numbers_on_every_machine():
    normals, laplace = RandomStream.from_seed(1, "golden").grid_normal(4000), RandomStream.from_seed(1, "golden").grid_laplace(4)
    assert cells(normals[[0, 1, 2, 3999]]).tolist() == GOLDEN_NORMAL
    assert cells(laplace).tolist() == GOLDEN_LAPLACE
    assert int(cells(normals).sum()) == GOLDEN_SUM


# Distances


def on_grid(value, mechanism):
    """What noise is added to, in units of the noise's scale."""
    source = NumpySource(RandomStream.from_seed(1, "unused"))
    source.released_normal = lambda given, *scales: kernel.released(given, np.zeros(given.shape), *scales)
    source.standard_laplace = np.zeros
    return mechanism.release(value, source)


@pytest.mark.parametrize("seed", thinned(range(20), every=4))
@pytest.mark.parametrize("coordinates", [1, 3, 40, 3000])
def test_neighbours_on_the_grid_are_no_further_apart_than_is_accounted(coordinates, seed):
    generator = np.random.default_rng(seed)
    std, l2 = 10.0 ** generator.uniform(-3, 3, size=2)
    others = generator.normal(size=coordinates) * 10.0 ** generator.uniform(-2, 4) * l2
    move = generator.normal(size=coordinates)
    gaussian = Gaussian(std=std, sensitivity=Sensitivity(l2=l2, adjacency="add_remove", unit="record"))
    apart = move * (l2 * (1.0 - 1e-13) / np.linalg.norm(move))
    one, other = on_grid(others, gaussian), on_grid(others + apart, gaussian)
    # The sum itself is rounded here, before the release: by a part in 2^53 of the others.
    slack = 2.0**-52 * float(np.linalg.norm(others))
    kept = contraction(l2 / std, coordinates, "l2")
    assert kept * np.linalg.norm(other - one) <= l2 * (1.0 + 1e-12) + slack


def test_without_the_contraction_they_would_be():
    """A move of 20.3 steps a coordinate is rounded to one of 21."""
    coordinates, apart = 10_000, 20.3 * STEP
    distance = apart * coordinates**0.5
    value = np.full(coordinates, 0.5 * STEP * (1.0 - 1e-6))
    moved = np.linalg.norm(np.rint((value + apart) / STEP) - np.rint(value / STEP)) * STEP
    gaussian = Gaussian(std=1.0, sensitivity=Sensitivity(l2=distance, adjacency="add_remove", unit="record"))
    kept = contraction(distance, coordinates, "l2")
    assert moved > distance
    assert kept * np.linalg.norm(on_grid(value + apart, gaussian) - on_grid(value, gaussian)) <= distance


def test_noise_that_is_too_large_for_the_grid_is_refused():
    huge = Gaussian(std=1e12, sensitivity=ONE)
    with pytest.raises(InvalidParameter, match="sensitivity / scale >= "):
        huge.release(np.zeros(5), NumpySource.from_seed(1))
    assert rounding(17) == 1.25 * STEP
    assert contraction(1.0, 10**6, "l2") > 1.0 - 3e-7


def test_large_values_are_held_and_few_numbers_may_be_larger():
    gaussian = Gaussian(std=1.0, sensitivity=ONE)
    assert np.abs(gaussian.release(np.full(17, 1e9), NumpySource.from_seed(1)) - largest(17)).max() < 20.0
    assert np.abs(gaussian.release(np.full(16, 1e9), NumpySource.from_seed(1)) - 1e9).max() < 20.0
    assert np.isfinite(gaussian.release(np.full(16, -1.7e308), NumpySource.from_seed(1))).all()


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_few_numbers_come_out_as_many_do(kind):
    value, noise = np.arange(40).astype(kind) * 3 - 60, RandomStream.from_seed(3, "few").grid_normal(40)
    few = [kernel.released(value[start : start + 8], noise[start : start + 8], 0.25, 2.0, 3.5) for start in range(0, 40, 8)]
    many = kernel.released(value, noise, 0.25, 2.0, 3.5)
    assert np.array_equal(np.concatenate(few), many)
    assert few[0].dtype == many.dtype


@pytest.mark.parametrize("rho", [0.0, 0.3, -0.99])
def test_complex_noise_has_its_covariance_on_the_grid(rho):
    parts = {"std_real": 2.0, "std_imag": 0.5} if rho else {"std": 2.0}
    mechanism = ComplexGaussian(**parts, correlation=rho, sensitivity=ONE)
    noise = mechanism.release(np.full(200_000, 3.0 - 4.0j), NumpySource.from_seed(4)) - (3.0 - 4.0j)
    found, (std_real, std_imag) = np.cov(noise.real, noise.imag), mechanism.stds
    wanted = np.array([[std_real**2, rho * std_real * std_imag], [rho * std_real * std_imag, std_imag**2]])
    assert np.abs(found - wanted).max() <= 6.0 * std_real**2 * math.sqrt(2.0 / 200_000)
    assert np.abs(noise.mean()) <= 6.0 * std_real / math.sqrt(100_000)


def test_a_box_far_from_zero_is_as_good_as_one_at_zero():
    far = LocalGaussian.for_box(1e9, 1e9 + 1.0, 3, 2.0, "record")
    noise = far.release(np.full((50_000, 3), 1e9 + 0.25), NumpySource.from_seed(2)) - (1e9 + 0.25)
    assert noise.std() == pytest.approx(2.0, rel=0.02)
    assert abs(noise.mean()) < 6.0 * 2.0 / math.sqrt(150_000)
