"""Every error that a contour bounds is made visible, and its bound left out once; truths are computed apart from the engine."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.accountants.engines import engine
from tests.accountants.events import training
from tests.accountants.references import ExactMoment, log_delta, one_sided_log_delta, poisson
from tests.selection import thinned
from zetadp.accountants.densities import heights
from zetadp.accountants.densities.transforms import MixedGaussian, TransformUnavailable
from zetadp.accountants.routes.contour.contour import ContourAccountant
from zetadp.accountants.routes.contour.inversion import Contour, Direction

__all__ = ["engine"]


def profile(event):
    return ContourAccountant().profile(event)


def direction(pair, count, improbable=60.0):
    return Direction((MixedGaussian(pair.upper, pair.lower, count, improbable),), 0.0)


def laid(pair, count, log_delta_, tolerance):
    """A contour, and the epsilon that it is for."""
    way = direction(pair, count)
    saddle = way.saddle_for(log_delta_)
    return Contour(way, saddle, log_delta_, tolerance), saddle.epsilon


def without(contour, **bounds):
    """The contour's bracket with some of its bounds left out."""
    kept = {name: getattr(contour, name) for name in bounds}
    vars(contour).update(bounds)
    found = contour._bracket(contour.centre)
    vars(contour).update(kept)
    return found


# -- aliasing (A) --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fine_values(monkeypatch):
    """Aliases and heights as coarse as asked, M itself as fine as can be."""
    values = Contour._values
    monkeypatch.setattr(Contour, "_values", lambda self, way, number, _: values(self, way, number, 1e-18))


ALIASED = [(0.3, 0.4, 200, 1e-3), (0.1, 0.5, 300, 1e-6), (0.05, 0.3, 3000, 1e-4)]


@pytest.mark.parametrize(("probability", "shift", "count", "delta"), thinned(ALIASED, every=2))
def test_aliases_are_seen_and_bounded(fine_values, monkeypatch, probability, shift, count, delta):
    pair = poisson(probability, shift)
    contour, epsilon = laid(pair, count, math.log(delta), 0.3)
    truth = one_sided_log_delta([(pair, count)], epsilon)
    low, high = contour.bracket(epsilon)
    assert low <= truth <= high
    assert contour.estimate(epsilon)[0] > truth + 1e-4
    monkeypatch.setattr(Contour, "_aliases", lambda *_: 0.0)
    contour.centre = epsilon
    assert without(contour, _log_cut=-math.inf)[0] > truth


def test_aliases_never_hide_anything(fine_values):
    """Without any bound at all the trapezoid sum of a coarse contour lies above the truth."""
    pair = poisson(0.3, 0.4)
    contour, epsilon = laid(pair, 200, math.log(1e-3), 0.3)
    for share in (0.5, 0.9, 1.0, 1.2):
        truth = one_sided_log_delta([(pair, 200)], share * epsilon)
        assert contour.estimate(share * epsilon)[0] >= truth - 1e-9


# -- cut-off (D) ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", thinned([0.2, 0.3, 0.4], every=3))
def test_cut_off_is_seen_and_bounded(fine_values, monkeypatch, share):
    pair = poisson(0.1, 0.5)
    usual, _ = laid(pair, 300, math.log(1e-6), 1e-9)
    height = share * usual._integrand.height
    monkeypatch.setattr(Contour, "_cut_off", lambda _, way, saddle, __: (height, float(way.log_decay(saddle.tilt, np.array([height]))[0])))
    contour, epsilon = laid(pair, 300, math.log(1e-6), 1e-9)
    truth = one_sided_log_delta([(pair, 300)], epsilon)
    low, high = contour.bracket(epsilon)
    assert low <= truth <= high
    # The phase at the cut decides how much is missing: somewhere near it is more than everything else.
    seen = False
    for factor in np.linspace(0.9, 1.1, 9):
        contour.centre = epsilon * float(factor)
        naive = without(contour, _log_cut=-math.inf)
        truth = one_sided_log_delta([(pair, 300)], contour.centre)
        low, high = contour._bracket(contour.centre)
        assert low <= truth <= high
        seen = seen or not naive[0] <= truth <= naive[1]
    assert seen


# -- quadrature (Q) ------------------------------------------------------------------------------------------------------------------


def test_coarse_quadrature_is_bounded(monkeypatch):
    values = Contour._values
    monkeypatch.setattr(Contour, "_values", lambda self, way, number, _: values(self, way, number, 1e-3))
    pair = poisson(0.3, 1.0)
    contour, epsilon = laid(pair, 20, math.log(1e-5), 1e-9)
    truth = one_sided_log_delta([(pair, 20)], epsilon)
    low, high = contour.bracket(epsilon)
    assert low <= truth <= high
    naive = without(contour, _rounding=0.0)
    assert not naive[0] <= truth <= naive[1]


# -- rounding (R) --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", thinned([10**9, 10**12], every=2))
def test_rounding_of_many_releases_is_seen_and_bounded(count):
    pair = poisson(1.0 / math.sqrt(count), 1.0)
    contour, epsilon = laid(pair, count, math.log(1e-5), 1e-10)
    truth = float(ExactMoment(pair.upper, pair.lower, contour.tilt).log_delta(count, epsilon, 1.6 * contour._period))
    low, high = contour.bracket(epsilon)
    assert low <= truth <= high <= low + 1e-5
    naive = without(contour, _rounding=0.0, _phase_rounding=0.0)
    assert not naive[0] <= truth <= naive[1]


def test_a_logarithm_that_loses_digits_near_1_breaks_the_bracket(monkeypatch):
    count = 10**12
    pair = poisson(1e-6, 1.0)
    right, epsilon = laid(pair, count, math.log(1e-5), 1e-10)
    monkeypatch.setattr(heights, "COMPILED", None)
    monkeypatch.setattr(heights, "log1p_complex", np.log1p)
    wrong = laid(pair, count, math.log(1e-5), 1e-10)[0]
    assert wrong.bracket(epsilon)[0] > right.bracket(epsilon)[1] or wrong.bracket(epsilon)[1] < right.bracket(epsilon)[0]


# -- what is left out of P (T1) ------------------------------------------------------------------------------------------------------


def test_a_range_that_has_to_be_cut_gives_a_narrow_and_true_bracket():
    delta, pair = 1e-14, poisson(1e-3, 0.05)
    found = profile(training(1e-3, 20.0, 100))
    bound = found.epsilon(delta)
    assert bound.upper - bound.lower <= 1e-6 * bound.upper
    assert all(-math.inf < side._direction.log_left_out < math.log(delta) - 10.0 for side in found._sides(math.log(delta)))
    # Outcomes above 25 have probability e^-312.
    assert log_delta([(pair, 100)], bound.upper, 25.0) <= math.log(delta) <= log_delta([(pair, 100)], bound.lower, 25.0)


def test_without_the_cut_impossible_outcomes_make_the_bracket_wide_and_dear():
    pair, target = poisson(1e-3, 0.05), math.log(1e-14)
    points, widths = [], []
    for improbable in (60.0, 1e7):
        way = direction(pair, 100, improbable)
        contour = Contour(way, way.saddle_for(target), target, 1e-8)
        low, high = contour.bracket(0.003213)
        assert low <= one_sided_log_delta([(pair, 100)], 0.003213, 25.0) <= high
        points.append(contour._integrand.number)
        widths.append(high - low)
    assert points[1] > 5 * points[0]
    assert widths[1] > 100.0 * widths[0]


def test_what_is_left_out_is_added_to_the_upper_end():
    contour, epsilon = laid(poisson(0.1, 0.5), 300, math.log(1e-6), 1e-9)
    low, high = contour.bracket(epsilon)
    added = without(contour, _log_left_out=math.log(1e-7))
    assert added[0] == low
    assert added[1] == pytest.approx(float(np.logaddexp(high, math.log(1e-7))))


def test_a_range_that_changes_under_way_is_refused(monkeypatch):
    way = direction(poisson(0.1, 0.5), 300)
    cut_off = Contour._cut_off

    def changing(self, *arguments):
        way.transforms[0]._end = 30.0
        return cut_off(self, *arguments)

    monkeypatch.setattr(Contour, "_cut_off", changing)
    with pytest.raises(TransformUnavailable, match="changed in between"):
        Contour(way, way.saddle_for(math.log(1e-6)), math.log(1e-6), 1e-9)
