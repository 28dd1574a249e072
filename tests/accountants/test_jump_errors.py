"""Error terms of the parts with so many jumps: none is cut short, none rounds the wrong way; brackets that exclude each other are an error.

proofs/contour.md (J), proofs/fft.md
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.questions import Question
from tests.accountants.events import training
from tests.accountants.test_jumps import releases_of
from tests.selection import thinned
from zetadp.accountants import Bound, DeltaBound, profile
from zetadp.accountants.densities.loops import Ratio
from zetadp.accountants.densities.mixtures import Mixture
from zetadp.accountants.densities.moments.windowed import Cut, Windowed
from zetadp.accountants.events import leaves
from zetadp.accountants.routes import auto
from zetadp.accountants.routes.contour import contour, ends, jumps
from zetadp.accountants.routes.contour.parts import Aim, Jumps, Part, log_beyond, log_beyond_one
from zetadp.accountants.routes.fft.fft import FftProfile
from zetadp.accountants.routes.single.coupled import log_total_variation
from zetadp.mechanisms import Adjacency
from zetadp.mechanisms.errors import ContradictoryBounds, UnsupportedEvent

QUESTION = Question(1e-3, 0.8, 50, 1e-9)


@pytest.fixture(scope="module")
def bulk():
    """The part of QUESTION without jumps."""
    return Part(releases_of(QUESTION), Cut(2.5, 6.0, 14.0), Jumps(0), Aim(2.0, 0.5, math.log(1e-9), 1e-7))


# -- what is infinite ------------------------------------------------------------------------------------------------------------------


def test_infinite_moments_are_no_error_of_floats():
    with pytest.raises(UnsupportedEvent, match="decay provably"):
        profile(Question(1e-4, 0.01, 2, 1e-100).event(), accountant="contour").epsilon(1e-100)


INFINITE = [
    Question(0.04604, 11.48, 9, 5.23e-289, adjacency=Adjacency.REPLACE_ONE),
    Question(4.66e-7, 66.73, 4, 1.87e-269, adjacency=Adjacency.REPLACE_ONE),
    Question(1.0, 57.0, 2, 1.45e-274, sizes=(8737, 7683457)),
    Question(1.631e-7, 1.786, 3056, 2.13e-72),
]
"""Some tilts' moments, or Chernoff's bound, are infinite, and others' aren't."""


@pytest.mark.parametrize("question", thinned(INFINITE, every=2), ids=Question.text)
def test_where_some_moments_are_infinite_the_others_give_a_narrow_bracket(question):
    bound = profile(question.event(), accountant="contour").epsilon(question.delta)
    assert bound.upper - bound.lower <= 1e-6 * bound.upper


def test_sizes_of_parts_are_infinite_where_a_moment_is():
    bounds = np.array([0.1, math.inf, 0.1, math.inf])
    for number in (None, 2, 50):
        found = Jumps(number).log_size(50, bounds, np.array([-3.0, -3.0, math.inf, math.inf]))
        assert math.isfinite(found[0])
        assert np.all(found[1:] == math.inf)


def test_rounding_that_exceeds_everything_makes_moments_infinite():
    # Losses of 1e-19, which float64 knows to 1e-14: at a tilt of 1e18 their moments are about 1, and not known at all.
    upper, lower = Ratio(Mixture((1.0 - 1e-7, 1e-7), (0.0, 1e-12))), Ratio(Mixture((1.0,), (0.0,)))
    part = Windowed(upper, lower, Cut(2.5, 6.0, 14.0), True, 45.0)
    assert part.uppers(np.array([1e18])).log_moments[0] == math.inf
    # On the real axis nothing turns, and at a height of 1e40 the rounding of angles outweighs everything.
    assert part._decay_line(part._spaced(0.05), 0.0, 2.0, (1e-30, 1.0, -40.0)).log_bound(1e40) == math.inf


# -- what is rounded -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_bulk", [-0.3, -1e-3, -7e-9])
def test_the_size_of_a_bulk_below_1_is_rounded_up(bulk, log_bulk):
    found = float(bulk._log_size(np.array([log_bulk]), np.array([-5.0]))[0])
    assert Fraction(found) > 50 * Fraction(log_bulk)


def test_moments_and_masses_are_handed_on_with_their_errors(monkeypatch):
    handed = []
    line = Windowed._line_nodes

    def seen(self, tilt, number, tolerance, moments):
        handed.append((self, moments))
        return line(self, tilt, number, tolerance, moments)

    monkeypatch.setattr(Windowed, "_line_nodes", seen)
    part = Part(releases_of(QUESTION), Cut(2.5, 6.0, 14.0), Jumps(None), Aim(2.0, 0.5, math.log(1e-9), 1e-7))
    assert [side for side, _ in handed] == [part._bulk, part._rest]
    for (_, (_, mass)), known in zip(handed, (part._own, part._other), strict=True):
        assert mass >= known.mass + known.error


def test_a_release_beyond_the_end_counts_fully_however_many_releases_there_are():
    # A thousand releases are beyond with 1.6 in the mean: the bound for all of them is 1, that of one isn't a thousandth of it.
    releases, cut = releases_of(Question(1e-3, 0.8, 1000, 1e-9)), Cut(1.5, 6.0, 3.0)
    beyond = math.log(0.5 * math.erfc(3.0 / math.sqrt(2.0)))
    assert log_beyond(releases, cut, Jumps(None)) == 0.0
    assert log_beyond_one(releases, cut, Jumps(None)) >= beyond
    assert log_beyond_one(releases, cut, Jumps(0)) >= beyond - cut.steepness * 1.5


def test_the_error_of_a_vanishing_jump_covers_what_is_taken_in_its_place(bulk):
    part = object.__new__(Part)
    vars(part).update({**vars(bulk), "_jumps": Jumps(1)})
    value, error = part._values(np.zeros(1, complex), np.zeros(1, complex), (np.ones(1), np.zeros(1)), (np.zeros(1), np.zeros(1)))
    assert error[0] >= value.real[0]


def test_a_vanishing_bulk_turns_no_jumps_unnoticed(bulk):
    # M_b = 0 counts as 1e-150 in the direction of its angle; M_s is 1, and its second power is the truth.
    part = object.__new__(Part)
    vars(part).update({**vars(bulk), "_jumps": Jumps(None), "_releases": releases_of(Question(1e-3, 0.8, 2, 1e-9))})
    log_bulk = np.array([math.log(1e-150) + 2.5j])
    value, error = part._values(log_bulk, np.ones(1, complex), (np.full(1, 1e-149), np.ones(1)), (np.full(1, 1e-149), np.zeros(1)))
    assert abs(complex(np.exp(value)[0]) - 1.0) <= math.exp(error[0])


def test_a_bulk_just_above_the_least_moves_the_jumps_by_no_more_than_is_counted(bulk):
    part = object.__new__(Part)
    vars(part).update({**vars(bulk), "_jumps": Jumps(None), "_releases": releases_of(Question(1e-3, 0.8, 1, 1e-9))})
    log_bulk = np.array([math.log(1.99e-150) + math.pi * 1j])
    value, error = part._values(log_bulk, np.ones(1, complex), (np.full(1, 2e-150), np.ones(1)), (np.full(1, 1e-170), np.zeros(1)))
    assert abs(complex(np.exp(value)[0]) - 1.0) <= math.exp(error[0])


# -- contradictions --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["epsilon", "log_delta"])
def test_parts_that_contradict_the_one_contour_are_an_error(monkeypatch, name):
    monkeypatch.setattr(jumps, name, lambda *_: (-1.0, -0.9) if name == "log_delta" else (1e3, 1e4))
    found = profile(Question(1e-5, 0.8, 100, 1e-12).event(), accountant="contour")
    with pytest.raises(ContradictoryBounds, match=name.replace("_", " ")):
        _ = found.epsilon(1e-12) if name == "epsilon" else found.delta(0.5)


def test_ends_that_touch_agree():
    assert ends.agreed("epsilon", (1.0, 2.0), (2.0, 3.0)) == (2.0, 2.0)
    with pytest.raises(ContradictoryBounds, match=r"at least 2\.5 and at most 2\.0"):
        ends.agreed("epsilon", (1.0, 2.0), (2.5, 3.0))


@pytest.mark.parametrize("ask", ["epsilon", "delta"])
def test_routes_that_exclude_each_other_are_an_error(monkeypatch, ask):
    for law, low, high in ((contour.ContourProfile, 1.0, 2.0), (FftProfile, 3.0, 4.0)):
        monkeypatch.setattr(law, "epsilon", lambda *_, low=low, high=high: Bound(lower=low, upper=high, route="stated"))
        monkeypatch.setattr(law, "delta", lambda *_, low=low, high=high: DeltaBound(log_lower=-high, log_upper=-low, route="stated"))
    with pytest.raises(ContradictoryBounds):
        getattr(profile(training(0.01, 1.0, 10)), ask)(0.5)


def test_only_moments_may_say_more_than_pairs_where_they_are_looser():
    found = object.__new__(auto.RoutedProfile)
    found._is_loose = True
    assert found._agreeing("epsilon", [(3.0, 4.0, "fft"), (0.0, 2.5, "rdp(order=2)")], 0.0) == 0.0
    with pytest.raises(ContradictoryBounds, match=r"at least 3\.0 and at most 2\.0"):
        found._agreeing("epsilon", [(3.0, 4.0, "fft"), (1.0, 2.0, "contour"), (0.0, 1.0, "rdp(order=2)")], 0.0)


def test_delta_is_never_above_the_probability_that_anything_differs(monkeypatch):
    # One contour alone, without parts, that knows nothing at its upper end.
    event = training(1e-3, 1.0, 20)
    monkeypatch.setattr(contour._Side, "log_delta", lambda *_: (-50.0, 0.0))
    assert profile(event, accountant="contour").delta(0.5).log_upper == log_total_variation(leaves(event)) < -3.0
