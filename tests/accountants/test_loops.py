"""The compiled loops against NumPy's, which other tests hold against many digits; and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.accountants.engines import needs_a_compiler
from tests.accountants.references import group, poisson, replaced, reverse
from zetadp.accountants.densities import heights, loops
from zetadp.accountants.densities.heights import Integrand
from zetadp.accountants.densities.loops import Ends, Ratio, Spaced
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.nodes import Nodes

pytestmark = needs_a_compiler
PAIRS = {
    "remove": poisson(0.01, 1.0),
    "add": reverse(poisson(0.3, 0.7)),
    "sparse": poisson(1e-6, 2.0),
    "replaced": replaced(0.1, 0.8),
    "group": group(0.02, 0.5, 4),
}
HEIGHTS = np.array([0.3, 5.0, 80.0])


@pytest.fixture
def both(monkeypatch):
    """Asks both engines the same."""

    def asked(question):
        compiled = question()
        with monkeypatch.context() as patch:
            for module in (loops, heights):
                patch.setattr(module, "COMPILED", None)
            return compiled, question()

    return asked


def close(one, other, rel=1e-11):
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rel, atol=1e-300)


@pytest.mark.parametrize("name", PAIRS)
def test_both_find_the_same_over_the_nodes(both, name):
    upper, lower, at = Ratio(PAIRS[name].upper), Ratio(PAIRS[name].lower), Spaced(-9.0, 0.07, 400)
    grids = both(lambda: loops.line_grid(upper, lower, at))
    for one, other in zip(*grids, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-19)
    grid = grids[1]
    for tilt in (0.1, 3.0, 40.0):
        close(*both(lambda tilt=tilt: loops.cumulants(grid, tilt)), rel=1e-7)
        close(*both(lambda tilt=tilt: loops.slopes(grid, tilt)), rel=1e-7)
        close(*both(lambda tilt=tilt: loops.valley(upper, lower, at, tilt)), rel=1e-9)
    tilts, ends = np.array([0.1, 3.0, 9.0]), Ends((-40.0, -41.0), (-3.0, 2.0), (0.1, 0.2))
    np.testing.assert_allclose(*both(lambda: loops.log_moment_upper(grid, tilts, ends, 1e-9)), rtol=1e-12, atol=1e-14)
    close(*both(lambda: upper.log(at.nodes)))
    close(*both(lambda: upper.log_at(1.7)))
    close(*both(lambda: lower.log_error(-9.0, 19.0)))


@pytest.mark.parametrize("name", PAIRS)
def test_both_find_the_same_at_the_heights(both, name):
    upper, lower, at = Ratio(PAIRS[name].upper), Ratio(PAIRS[name].lower), Spaced(-9.0, 0.07, 300)
    shifts = [0.1, 0.4, 0.2, 0.2, 0.5, 0.05]
    close(*both(lambda: loops.log_decay(upper, lower, at, 2.0, HEIGHTS, shifts, -30.0)), rel=1e-12)
    compiled, plain = both(lambda: loops.line_nodes(upper, lower, at, 0.3, 2.0, 1e-15))
    assert compiled.loss.size == plain.loss.size < at.number
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-14)
    for number in (1, 2, 3, 31, 32, 33, 1000):
        line, other = both(lambda number=number: heights.sum_on_line(plain, 2.0, 0.3, number))
        assert line.minus_one.shape == other.minus_one.shape == (number,)
        assert np.all(np.abs(line.minus_one - other.minus_one) <= line.error + other.error)
        close(line.error, other.error, rel=0.3)


def test_both_bound_the_decay_of_a_mixture_whose_nodes_are_too_many_to_keep(both):
    copies = Mixture((0.1, *(0.001 for _ in range(900))), tuple(0.005 * j for j in range(901)))
    upper, lower, at = Ratio(copies), Ratio(Mixture((1.0,), (0.0,))), Spaced(-9.0, 0.01, 2300)
    assert at.number * 2 * len(copies.shifts) > 4_000_000
    close(*both(lambda: loops.log_decay(upper, lower, at, 2.0, HEIGHTS[:2], [0.02, 0.05], -30.0)), rel=1e-11)


@pytest.mark.parametrize(("count", "gaussian"), [(1, 0.0), (300, 0.0), (10**9, 0.3)])
def test_both_add_up_the_same_integrand(both, count, gaussian):
    nodes = loops.line_nodes(Ratio(PAIRS["remove"].upper), Ratio(PAIRS["remove"].lower), Spaced(-9.0, 0.07, 300), 0.3, 2.0, 1e-25)
    line = heights.sum_on_line(nodes, 2.0, 0.3, 200)
    one, other = both(lambda: Integrand(2.0, 0.3, 200, gaussian, [(count, line), (count, line)]))
    assert one.log_size == pytest.approx(other.log_size, rel=1e-13)
    # Bounds on rounding, not rounding itself: they are made of the same parts.
    close(one.rounding, other.rounding, rel=1.0)
    close(one.phase_rounding, other.phase_rounding, rel=1e-6)
    for epsilon in (0.0, 1.3, 40.0):
        allowed = sum(found.rounding + epsilon * found.phase_rounding for found in (one, other))
        assert abs(one.sums(epsilon)[0] - other.sums(epsilon)[0]) <= allowed
        assert abs(one.sums(epsilon)[1] - other.sums(epsilon)[1]) <= 100.0 * allowed


def test_arrays_that_do_not_fit_are_refused():
    packed, three, four = Ratio(PAIRS["remove"].upper).packed, np.zeros(3), np.zeros(4)
    nodes, lines = loops.COMPILED, heights.COMPILED
    for misfit in (
        lambda: nodes.line_grid(packed, packed, 0.0, 1.0, 0.0, three, three, four, three),
        lambda: nodes.line_grid(packed[:5], packed, 0.0, 1.0, 0.0, three, three, three, three),
        lambda: nodes.log_ratio(packed, three, four),
        lambda: nodes.log_ratio_at(packed[:-1], 1.0),
        lambda: nodes.log_ratio_error(packed[:-1], 1.0, 2.0),
        lambda: nodes.cumulants(three, four, three, 1.0),
        lambda: nodes.slopes(three, four, three, 1.0),
        lambda: nodes.slopes(three[:1], three[:1], three[:1], 1.0),
        lambda: nodes.valley(packed, packed, 0.0, 1.0, 0, 1.0),
        lambda: nodes.log_moment_upper(three, three, four, *(0.0,) * 7, three),
        lambda: nodes.log_decay(packed, packed, 0.0, 1.0, 9, 1.0, 0.0, three, four, 0.0, three),
        lambda: nodes.line_nodes(packed, packed, 0.0, 1.0, 0.1, 1.0, 0.0, 0.0, three.astype(complex), four.astype(complex), three, three),
        lambda: lines.sum_on_line(three, three, three, three, 0.0, 1.0, 1.0, three.astype(complex), three),
        lambda: lines.add_power(three, three, 1.0, three, three, three),
        lambda: lines.integrand(1.0, 1.0, 0.0, three, four, three),
        lambda: lines.sums(three, four, 1.0, 1.0),
    ):
        with pytest.raises(ValueError, match="other sizes"):
            misfit()


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_never_leaves_the_loops(wrong):
    """NumPy is told to raise where an operation is undefined or overflows; the loops look at what they add up."""
    ratio, at = Ratio(PAIRS["remove"].upper), Spaced(-9.0, 0.5, 40)
    nodes = loops.line_nodes(ratio, Ratio(PAIRS["remove"].lower), at, 0.3, 2.0, 0.0)
    grid = loops.line_grid(ratio, Ratio(PAIRS["remove"].lower), at)
    grid.loss[3] = wrong
    assert loops.cumulants(grid, 1.0) == (math.inf,) * 3
    broken = nodes.loss.copy()
    broken[3] = wrong
    for question in (
        lambda: loops.line_grid(ratio, ratio, Spaced(wrong, 0.5, 40)),
        lambda: ratio.log_at(wrong),
        lambda: loops.log_moment_upper(grid, np.array([1.0]), Ends((-9.0, -9.0), (0.0, 0.0), (1.0, 1.0)), 0.0),
        lambda: loops.log_decay(ratio, ratio, at, wrong, HEIGHTS, [0.1, 0.1, 0.1], 0.0),
        lambda: loops.line_nodes(ratio, ratio, at, 0.3, wrong, 0.0),
        lambda: heights.sum_on_line(nodes._replace(loss=broken), 2.0, 0.3, 9),
        lambda: heights.sum_on_line(nodes._replace(quadrature=wrong), 2.0, 0.3, 9),
        lambda: Integrand(2.0, 0.3, 9, wrong, []),
        lambda: Integrand(2.0, 0.3, 9, 0.1, []).sums(wrong),
    ):
        with pytest.raises(FloatingPointError):
            question()


def test_nothing_is_added_over_no_nodes():
    nothing = np.zeros(0)
    line = heights.sum_on_line(Nodes(nothing.astype(complex), nothing.astype(complex), nothing, nothing, 0.25), 1.0, 1.0, 5)
    assert line.minus_one.tolist() == [0j] * 5
    assert line.error.tolist() == [0.25] * 5
