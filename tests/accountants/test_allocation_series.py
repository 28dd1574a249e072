"""The curve of an allocation's sum as a series and as an integral along a cut, against sums over all noise and 30-digit integrals."""

from __future__ import annotations

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import special

from tests.accountants.test_allocation import gaussian
from tests.selection import thinned
from zetadp.accountants import RandomlyAllocated, profile
from zetadp.accountants.allocation import far
from zetadp.accountants.allocation.curve import AllocationCurve, OneOrder, curve_of
from zetadp.accountants.allocation.far import CallsBeyond
from zetadp.accountants.allocation.grid_part import STRETCH
from zetadp.accountants.allocation.path import Path, split_at
from zetadp.accountants.allocation.path import transform as next_to_the_cut
from zetadp.accountants.allocation.ratio import Ratio
from zetadp.accountants.allocation.series import calls_near, puts_near
from zetadp.accountants.allocation.series_part import SeriesPart, shared_ratio
from zetadp.accountants.allocation.summand import ETA
from zetadp.accountants.densities import GAUSSIAN, LAPLACE
from zetadp.accountants.densities.mixtures import Mixture

ONE = Ratio((1.0,), (1.0,))
MILD = Ratio((1.0,), (0.4,))
MIXED = Ratio((0.7, 0.3), (0.5, 1.1))
PITCH, COUNT, STEP = 1.0 / 1024.0, 2**20, 0.125


def one_call(ratio, y):
    """E[(X - y)_+] in closed form, y > 0, for a ratio of one component."""
    (d,) = ratio.moves
    z = np.log(y) / d + 0.5 * d
    return special.ndtr(d - z) - y * special.ndtr(-z)


def four_calls(ratio, k):
    """E[(S - k)_+] for four copies, by the trapezoid rule in three standard normals, which converges like e^{-1/step^2}."""
    z = np.arange(-8.5, 12.0, STEP)
    weights, x = STEP * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), ratio.at(z)
    y = k - (x[:, None, None] + x[None, :, None] + x[None, None, :])
    values = np.where(y > 0.0, one_call(ratio, np.maximum(y, 1e-300)), 1.0 - y)
    return float(np.einsum("ijk,i,j,k", values, weights, weights, weights))


@functools.cache
def law(ratio, steps):
    """Probabilities of S on a lattice: samples of the density of X, which all its derivatives leave at 0, convolved."""
    x = PITCH * np.arange(1, COUNT)
    table = np.linspace(-12.0, 14.0, 1_000_001)
    z = np.interp(x, ratio.at(table), table)
    w, d = np.asarray(ratio.weights), np.asarray(ratio.moves)
    rise = np.exp(np.outer(z, d) - 0.5 * d * d) @ (w * d)
    density = np.append(0.0, PITCH * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / rise)
    spectrum = np.fft.rfft(np.append(density, np.zeros_like(density)))
    masses = np.fft.irfft(spectrum**steps)
    # Rounding leaves some 3e-20 of either sign in each of two million places, by processor, and far away it would add up.
    return np.where(np.abs(masses) > 3e-19, masses, 0.0)


def sum_calls(ratio, steps, k):
    """E[(S - k)_+]: a sum over the lattice, what it is off by at the kink in second order, and one ratio beyond the lattice."""
    masses, x = law(ratio, steps), PITCH * np.arange(2 * COUNT)
    share = math.ceil(k / PITCH) - k / PITCH
    density = float(np.interp(k, x, masses)) / PITCH
    z, (w, d) = ratio.inverse(float(x[-1]) / 2.0), (np.asarray(ratio.weights), np.asarray(ratio.moves))
    beyond = steps * (float(w @ special.ndtr(d - z)) + (steps - 1.0 - k) * float(special.ndtr(-z)))
    return float(masses @ np.maximum(x - k, 0.0)) + PITCH**2 * (share * share - share + 1.0 / 6.0) / 2.0 * density + beyond


def sum_puts(ratio, steps, k):
    masses, x = law(ratio, steps), PITCH * np.arange(2 * COUNT)
    share = k / PITCH - math.floor(k / PITCH)
    density = float(np.interp(k, x, masses)) / PITCH
    return float(masses @ np.maximum(k - x, 0.0)) + PITCH**2 * (share * share - share + 1.0 / 6.0) / 2.0 * density


def checked(found, truth, chosen, relative):
    for i in chosen.astype(int):
        k = found.first + found.step * i
        value = truth(k)
        assert found.lower[i] * (1.0 - relative) <= value <= found.upper[i] * (1.0 + relative)
        assert found.upper[i] <= found.lower[i] * (1.0 + 1e-2)


def test_four_ratios_are_a_sum_over_all_noise():
    near = calls_near(MILD, 4)
    puts = puts_near(MILD, 4, -1.5, 2.0, 4.1)
    checked(near, lambda k: four_calls(MILD, k), np.linspace(0, len(near.upper) - 1, 4), 1e-9)
    checked(puts, lambda k: four_calls(MILD, k) + k - 4.0, np.linspace(1000, len(puts.upper) - 1, 4), 1e-9)


@pytest.mark.parametrize("ratio", thinned([ONE, MILD, MIXED], every=3), ids=str)
def test_calls_near_the_mean_are_those_of_a_convolution(ratio):
    found = calls_near(ratio, 30)
    checked(found, lambda k: sum_calls(ratio, 30, k), np.linspace(0, 0.8 * len(found.upper), 6), 2e-7)


@pytest.mark.parametrize("ratio", thinned([ONE, MILD, MIXED], every=3), ids=str)
def test_puts_are_those_of_a_convolution(ratio):
    spread = math.sqrt(12.0 * ratio.variance)
    found = puts_near(ratio, 12, -1.5 / spread, 12.0 - 3.0 * spread, 12.1)
    checked(found, lambda k: sum_puts(ratio, 12, k), np.linspace(0.4 * len(found.upper), len(found.upper) - 1, 6), 2e-7)


@pytest.mark.parametrize("k", [70.0, 120.0])
def test_calls_far_away_are_those_of_a_convolution(k):
    truth = sum_calls(ONE, 12, k)
    pieces = list(CallsBeyond(ONE, 12, k, math.log(truth), math.log(truth) - 2.0))
    assert pieces
    checked(pieces[0], lambda at: sum_calls(ONE, 12, at), np.linspace(0, len(pieces[0].upper) - 1, 4), 2e-6)


@pytest.mark.parametrize(("move", "k"), [(0.2, 5.0), (0.1, 5.0), (0.1, 5.4)])
def test_calls_along_a_line_are_a_sum_over_all_noise(move, k):
    ratio = Ratio((1.0,), (move,))
    value = math.log(four_calls(ratio, k))
    assert not far._end(ratio, 4, k, value)[1]
    (piece, *_) = CallsBeyond(ratio, 4, k, value, value - 4.0)
    checked(piece, lambda at: four_calls(ratio, at), np.linspace(0, len(piece.upper) - 1, 3), 1e-10)


@pytest.mark.parametrize("k", [40.0, 42.0])
def test_calls_along_a_line_are_those_of_a_convolution(k):
    value = math.log(sum_calls(MILD, 30, k))
    assert not far._end(MILD, 30, k, value)[1]
    (piece, *_) = CallsBeyond(MILD, 30, k, value, value - 2.0)
    last = np.flatnonzero(piece.upper > 1e-6)[-1]
    checked(piece, lambda at: sum_calls(MILD, 30, at), np.linspace(0, last, 5), 3e-6)


@pytest.mark.parametrize("ratio", [MILD, Ratio((1.0,), (0.1,))], ids=str)
def test_no_grid_is_needed_where_tails_are_light(ratio):
    order = curve_of(GAUSSIAN, ratio.moves[0], 100)._forward
    order.at(np.array([1e30]), np.zeros(1))
    assert all(isinstance(part, SeriesPart) for part in order._parts)


@pytest.mark.parametrize("s", [0.4 + 0.01j, 0.4 + 0.5j, 0.4 + 3.0j])
def test_the_transform_next_to_the_cut_is_that_of_a_turned_line(s):
    path = Path(MILD, split_at(MILD, 0.4), 0.4)
    found = next_to_the_cut(path, np.array([s]))
    truth = transform(MILD, mpmath.mpc(s), 3.0)
    assert abs(complex(found.real[0], found.imaginary[0]) - truth) <= found.real_error + found.off[0] <= 1e-8
    assert abs(truth) <= path.bound(0.4)


def test_pieces_far_away_follow_each_other_and_know_their_slopes_to_the_end():
    pieces = list(CallsBeyond(ONE, 12, 70.0, (value := math.log(sum_calls(ONE, 12, 70.0))), value - 25.0))
    assert len(pieces) > 3
    for one, other in itertools.pairwise(pieces):
        assert other.first == one.first + one.step * (len(one.upper) - 1)
        assert other.lower[0] <= one.upper[-1] <= other.upper[0] * (1.0 + 1e-8)
    for one in pieces:
        assert np.all(one.upper - one.lower <= 1e-7 * one.upper)
        assert np.all(one.doubts <= 1e-5 * one.slopes)


@pytest.mark.parametrize("steps", [200, 1000])
def test_a_curve_is_the_same_whatever_was_asked_of_it_before(steps):
    epsilons = np.array([0.3, 0.9, 2.0])
    alone, asked = (AllocationCurve(GAUSSIAN, 1.1, steps) for _ in range(2))
    for epsilon in (0.0, 0.5, 1.0, 4.0):
        asked.forward(np.array([epsilon])), asked.backward(np.array([epsilon / 10.0]))
    for one, other in ((alone.forward(epsilons), asked.forward(epsilons)), (alone.backward(epsilons), asked.backward(epsilons))):
        for kind in ("lower", "upper", "tail", "doubt"):
            assert np.array_equal(getattr(one, kind), getattr(other, kind))


@pytest.mark.parametrize("ratio", [ONE, MIXED], ids=str)
def test_slopes_are_how_fast_the_values_change(ratio):
    near = calls_near(ratio, 50)
    far_away = CallsBeyond(ratio, 50, 4000.0, -32.0, -60.0)
    on_a_line = CallsBeyond(MILD, 30, 45.0, math.log(sum_calls(MILD, 30, 45.0)), -22.0)
    for found in (near, puts_near(ratio, 50, -0.3, 30.0, 45.0), next(far_away), next(on_a_line)):
        middle = 0.5 * (found.upper + found.lower)
        between = np.abs(np.diff(middle)) / found.step
        slack = found.doubts[1:] + found.doubts[:-1] + 4.0 * np.max(found.upper - found.lower) / found.step
        assert np.all(between <= np.maximum(found.slopes[1:], found.slopes[:-1]) + slack)
        assert np.all(between >= np.minimum(found.slopes[1:], found.slopes[:-1]) - slack)


def transform(ratio, s, angle):
    """E e^{sX} to 25 digits, along the line through ``angle`` i."""
    with mpmath.workdps(30):

        def inner(z):
            turned = mpmath.mpc(z, angle)
            x = sum(w * mpmath.exp(d * turned - mpmath.mpf(d) ** 2 / 2) for w, d in zip(ratio.weights, ratio.moves, strict=True))
            return mpmath.exp(s * x - turned**2 / 2) / mpmath.sqrt(2 * mpmath.pi)

        return complex(mpmath.quad(inner, [-11, -5, -2, 0, 1, 2, 3, 4, 5, 6, 8, 11]))


@pytest.mark.parametrize("ratio", thinned([ONE, MILD, MIXED], every=3), ids=str)
@pytest.mark.parametrize(("tilt", "y"), [(-0.05, 0.0), (-0.05, 1.7), (-2.0, 0.6), (-0.3, 6.0)])
def test_transforms_are_as_exact_as_they_say(ratio, tilt, y):
    truth = transform(ratio, mpmath.mpc(tilt, y), 0.4)
    for nodes in (ratio.nodes(tilt, max(y, 1e-3), 10_000), ratio.turned_nodes(tilt)):
        found, error = nodes.transform(np.array([0.0, y]))
        assert abs(found[1] - truth) <= error < 1e-12
    found, errors = ratio.turned_nodes(tilt).minus_one(np.array([y]))
    assert abs(found[0] - (truth - 1.0)) <= errors[0] + 1e-16
    assert errors[0] < 1e-12


@pytest.mark.parametrize("ratio", [ONE, MILD, MIXED], ids=str)
@pytest.mark.parametrize("tilt", [-0.5, -0.02])
def test_bounds_on_the_modulus_hold_from_there_on(ratio, tilt):
    nodes = ratio.turned_nodes(tilt)
    for y in (0.3, 1.0, 4.0):
        beyond = np.abs(nodes.transform(y * np.geomspace(1.0, 30.0, 40))[0])
        assert math.log(float(beyond.max())) <= ratio.log_modulus(tilt, y)
        assert math.log(float(beyond[0])) <= ratio.log_far_modulus(tilt, y)
    assert ratio.log_modulus(tilt, 4.0) < ratio.log_modulus(tilt, 1.0) < 0.0


@pytest.mark.parametrize("ratio", [ONE, MILD], ids=str)
def test_moments_are_bounded_from_above(ratio):
    for tilt in (-3.0, -0.2, 0.0):
        truth = math.log(transform(ratio, mpmath.mpf(tilt), 0.0).real)
        assert truth <= float(ratio.log_moments(np.array([tilt]))[0]) <= truth + 0.1


@pytest.mark.parametrize("rho", [0.3, 0.02, 1e-3])
def test_the_transform_on_the_cut_is_that_of_a_turned_line(rho):
    panel = far._panel(ONE, 1, math.log(rho) - 0.2, math.log(rho) + 0.2, (0.0, 0.0))
    for i in (0, 7, 15):
        truth = transform(ONE, mpmath.mpf(float(panel.rho[i])), 2.4).imag
        assert abs(panel.imaginary[i] - truth) <= panel.doubts[i]
        assert panel.doubts[i] <= 1e-8 * abs(truth) + 1e-300


@pytest.mark.parametrize("largest", [0.3, 0.02])
def test_the_path_bounds_the_transform_off_the_cut(largest):
    bound = Path(ONE, split_at(ONE, largest), largest).bound(largest, 0.5)
    for angle, share in itertools.product((-0.5, -0.2, 0.1, 0.5), (1.0, 0.4)):
        s = share * largest * mpmath.expjpi(angle / math.pi)
        # From the upper side: a line at a height at which the exponent falls for this angle.
        assert abs(transform(ONE, s, math.pi - angle if angle < 0.0 else 2.3)) <= bound


def test_what_is_below_the_smallest_rho_is_bounded():
    rho = math.exp(-4.0 * 1.0 - 4.0)
    bound = far._below(ONE, 1, rho, 0.0)
    panels = [far._panel(ONE, 1, math.log(rho) - 0.6 * (n + 1), math.log(rho) - 0.6 * n, (0.0, 0.0)) for n in range(6)]
    value = sum(float((one.weights * np.abs(one.imaginary) / one.rho).sum()) for one in panels)
    assert value <= bound < 1e-12


@pytest.mark.parametrize(
    ("copies", "steps"),
    thinned([(Mixture((1.0,), (1.0,)), 40), (Mixture((1.0,), (0.5,)), 12), (Mixture((0.9, 0.1), (0.6, 1.0)), 25)], every=3),
    ids=str,
)
def test_series_and_grids_exclude_each_other_nowhere(copies, steps, monkeypatch):
    shares = Mixture(copies.weights, tuple(shift / copies.shifts[-1] for shift in copies.shifts))
    epsilons = np.linspace(0.0, 1.5, 40)
    series = curve_of(GAUSSIAN, copies.shifts[-1], steps, shares)
    series.forward(epsilons)
    assert isinstance(series._forward._parts[0], SeriesPart)
    monkeypatch.setattr("zetadp.accountants.allocation.curve.shared_ratio", lambda *_: None)
    grid = curve_of(GAUSSIAN, copies.shifts[-1] * (1.0 + 1e-10), steps, shares)
    assert not any(isinstance(part, SeriesPart) for order in (grid._forward, grid._backward) for part in order._parts)
    for one, other in ((series.forward(epsilons), grid.forward(epsilons)), (series.backward(epsilons), grid.backward(epsilons))):
        seen = other.upper > 1e-20
        assert np.all(one.lower[seen] <= other.upper[seen] * (1.0 + 1e-8))
        assert np.all(other.lower[seen] <= one.upper[seen] * (1.0 + 1e-8))
        assert np.all(one.tail[seen] - one.doubt[seen] <= (other.tail + other.doubt)[seen] * 1.02 + 1e-12)


def test_only_sums_of_several_ratios_of_gaussian_noise_have_a_series():
    copies = Mixture((1.0,), (1.0,))
    assert shared_ratio(GAUSSIAN, copies, 3) is None
    assert shared_ratio(LAPLACE, copies, 4) is None
    assert shared_ratio(GAUSSIAN, copies, 4).ratio == ONE


@pytest.mark.parametrize("is_forward", [True, False])
@pytest.mark.parametrize(("weights", "moves"), [((1.0,), (0.4,)), ((0.8, 0.2), (0.2, 0.4))])
def test_one_series_bounds_four_copies_of_all_ratios_that_it_serves(weights, moves, is_forward):
    shared = shared_ratio(GAUSSIAN, Mixture(weights, moves), 4)
    found = calls_near(shared.ratio, 4) if is_forward else puts_near(shared.ratio, 4, -1.0, 1.5, 4.1)
    part = SeriesPart(found, shared, 4, is_forward, 1.0)
    levels = np.linspace(0.1, 1.5, 4)
    upper, (lower, slopes, doubts) = part.upper(levels) / ETA, part.lower(levels)
    assert np.all(upper <= lower / ETA * (1.0 + 1e-4))
    for share in (-STRETCH, STRETCH):
        moved = Ratio(weights, tuple(move * (1.0 + share) for move in moves))
        for i, level in enumerate(levels):
            k = 4.0 + level if is_forward else 4.0 - level
            nearby = np.array([0.0, -1e-3, 1e-3])
            values = [mixed_calls(moved, k + (step if is_forward else -step)) - (0.0 if is_forward else 4.0 - k + step) for step in nearby]
            lines = lower[i] / ETA - slopes[i] * nearby - doubts[i] * np.abs(nearby)
            assert values[0] <= upper[i] * (1.0 + 1e-10)
            assert np.all(lines <= np.array(values) * (1.0 + 1e-9))


def mixed_calls(ratio, k):
    """E[(S - k)_+] for four copies of any ratio, the last integral by its place on the line."""
    w, d = np.asarray(ratio.weights), np.asarray(ratio.moves)
    if len(w) == 1:
        return four_calls(ratio, k)
    z = np.arange(-8.5, 8.6, STEP)
    masses, x = STEP * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), ratio.at(z)
    y = (k - (x[:, None, None] + x[None, :, None] + x[None, None, :])).ravel()
    table = np.linspace(-12.0, 12.0, 2_000_001)
    ends = np.interp(np.log(np.maximum(y, 1e-300)), np.log(ratio.at(table)), table)
    values = np.where(y > 0.0, special.ndtr(d - ends[:, None]) @ w - y * special.ndtr(-ends), 1.0 - y)
    return float(np.einsum("ijk,i,j,k", values.reshape([len(z)] * 3), masses, masses, masses))


def test_parts_of_a_curve_meet():
    for order in (curve_of(GAUSSIAN, 1.0, 200)._forward, curve_of(GAUSSIAN, 1.0, 200)._backward):
        assert isinstance(order, OneOrder)
        order.at(np.array([1e30 if order._is_forward else 200.0]), np.zeros(1))
        last = min(order._parts[-1].last, 0.9 * 200.0 if order is curve_of(GAUSSIAN, 1.0, 200)._backward else math.inf)
        levels = np.linspace(0.0, min(last, 2000.0), 4001)
        found = order.at(levels, np.zeros_like(levels))
        seen = found.upper > 1e-130
        assert np.all(found.lower[seen] >= found.upper[seen] * (1.0 - 1e-4))


@pytest.mark.parametrize(
    ("steps", "std", "delta"), [(8, 1.569, 1e-10), (8, 1.569, 1e-12), (9, 1.545, 1e-13), (37, 1.869, 6.7e-15), (7, 0.932, 2e-14)]
)
def test_a_curve_has_no_gap_between_its_series_and_the_line(steps, std, delta):
    found = profile(RandomlyAllocated(steps=steps, event=gaussian(std))).epsilon(delta)
    assert found.upper - found.lower < 2e-7 * found.upper


def test_a_moment_that_is_too_large_for_a_float_is_no_bound():
    assert Path(ONE, 4.0, 1.0).bound(1.0) < math.inf
    assert Path(ONE, 4.0, 1.0).bound(700.0) == math.inf
