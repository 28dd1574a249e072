"""Parts with so many jumps each, against closed forms, integrals of 30 digits, one contour, and grids. proofs/contour.md (J)"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from benchmarks.questions import CORNERS, Question
from tests.selection import thinned
from zetadp.accountants import profile
from zetadp.accountants.densities.loops import Ratio
from zetadp.accountants.densities.moments.windowed import Cut, Windowed
from zetadp.accountants.densities.transforms import TransformUnavailable
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.events import leaves
from zetadp.accountants.grids.hockey_stick import reverse
from zetadp.accountants.pairs import widened
from zetadp.accountants.routes.contour import jumps
from zetadp.accountants.routes.contour.contour import _direction, _Side
from zetadp.accountants.routes.contour.parts import Aim, Jumps, Part, Releases
from zetadp.mechanisms import Adjacency
from zetadp.mechanisms.errors import UnsupportedEvent
from zetadp.mechanisms.numerics.logspace import log_add

REPLACE_ONE = Adjacency.REPLACE_ONE


def pairs_of(question, *, removed=False):
    """The question's releases in one direction."""
    ((leaf, count),) = leaves(question.event()).items()
    pair = widened(pair_of(leaf))
    return ((reverse(pair) if removed else pair, count),)


def releases_of(question):
    ((pair, count),) = pairs_of(question)
    return Releases(Ratio(pair.upper), Ratio(pair.lower), count)


# -- truths ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    thinned(
        [
            Question(1e-4, 0.1, 1, 1e-7),
            Question(1e-6, 0.8, 1, 1e-30),
            Question(0.01, 3.0, 1, 1e-60),
            Question(3e-5, 0.5, 1, 1e-12, group=4),
            Question(2e-5, 0.3, 1, 1e-9, adjacency=REPLACE_ONE),
            Question(4e-7, 2.1, 1, 1e-280),
            Question(1e-6, 1.2, 1, 1e-200, adjacency=REPLACE_ONE),
        ],
        every=3,
    ),
    ids=Question.text,
)
def test_one_release_is_its_closed_form(question):
    truth = profile(question.event(), accountant="single").epsilon(question.delta)
    low, high = jumps.epsilon(pairs_of(question), math.log(question.delta))
    assert low <= truth.upper
    assert truth.lower <= high
    assert high - low <= 1e-6 * high


def log_delta_of_two(probability, mu, epsilon):
    """log delta of two releases under add_remove, removing: the mean, over the first one's loss, of the second one's delta."""
    with mpmath.workdps(40):
        q, mu, epsilon = (mpmath.mpf(number) for number in (probability, mu, epsilon))

        def loss(x):
            return mpmath.log1p(q * mpmath.expm1(mu * x - mu**2 / 2))

        def once(level):
            excess = (mpmath.expm1(level) + q) / q
            if excess <= 0:
                return -mpmath.expm1(level)
            x = mpmath.log(excess) / mu + mu / 2
            return (1 - q - mpmath.exp(level)) * mpmath.ncdf(-x) + q * mpmath.ncdf(mu - x)

        def density(x):
            return (1 - q) * mpmath.npdf(x) + q * mpmath.npdf(x, mu)

        ends = [-40, -10, 0, 5, 10, mu / 2, mu, mu + 5, mu + 10, mu + 20, mu + 45]
        ends += [mpmath.log((mpmath.expm1(epsilon - level) + q) / q) / mu + mu / 2 for level in (0, epsilon / 2)]
        return mpmath.log(mpmath.quad(lambda x: density(x) * once(epsilon - loss(x)), sorted(ends), maxdegree=8))


@pytest.mark.parametrize(
    ("probability", "multiplier", "epsilon"),
    thinned([(1e-5, 0.2, 9.0), (1e-5, 0.2, 30.0), (1e-3, 0.6, 4.0), (2e-6, 1.2, 0.02)], every=4),
    ids=["one jump", "two jumps", "both", "bulk"],
)
def test_two_releases_are_their_integral(probability, multiplier, epsilon):
    ((pair, _),) = pairs_of(Question(probability, multiplier, 2, 1e-5))
    truth = log_delta_of_two(probability, pair.upper.shifts[-1], epsilon)
    low, high = jumps.log_delta(((pair, 2),), epsilon)
    assert low <= truth <= high
    assert high - low <= 1e-5


SEEN = [
    Question(5e-4, 0.5, 20_000, 1e-9),
    Question(2e-3, 0.7, 5000, 1e-30),
    Question(1e-3, 1.5, 100_000, 1e-5, group=3),
    Question(1e-3, 0.9, 8000, 1e-12, adjacency=REPLACE_ONE),
    Question(0.05, 2.0, 300, 1e-6),
]
"""One contour answers them, narrowly."""


@pytest.mark.parametrize("question", thinned(SEEN, every=5), ids=Question.text)
def test_jumps_and_one_contour_agree(question, monkeypatch):
    low, high = jumps.epsilon(pairs_of(question), math.log(question.delta))
    monkeypatch.setattr(jumps, "epsilon", lambda *_: pytest.fail("the contour alone was to answer"))
    bound = profile(question.event(), accountant="contour").epsilon(question.delta)
    assert low * (1.0 - 1e-9) <= bound.upper
    assert high >= bound.lower


REMOVED = {
    SEEN[0]: False,
    SEEN[1]: False,
    SEEN[2]: False,
    SEEN[3]: True,
    SEEN[4]: True,
}
"""Whether the other direction has jumps to tell apart: bounded losses have none."""


@pytest.mark.parametrize(("question", "has_jumps"), thinned(REMOVED.items(), every=5), ids=map(Question.text, REMOVED))
def test_the_other_direction_agrees_or_has_no_jumps(question, has_jumps):
    pairs = pairs_of(question, removed=True)
    if not has_jumps:
        with pytest.raises(TransformUnavailable):
            jumps.epsilon(pairs, math.log(question.delta))
        return
    low, high = jumps.epsilon(pairs, math.log(question.delta))
    one = _Side(_direction(list(pairs_of(question)), 60.0, reverse=True), pairs)._by_one(math.log(question.delta))
    assert low <= one[1]
    assert one[0] <= high
    assert high - low <= 1e-6 * high


def test_a_bulk_that_ends_before_its_jumps_lacks_their_whole_mass():
    # Jumps of three and more of the group are beyond the end of the bulk, and aren't improbable: their mass is none of the bulk's.
    question = Question(0.005016891970323678, 0.10929523889420789, 734, 3.031948936248844e-11, group=5)
    epsilon, wanted = 2377.64128, math.log(question.delta)
    parts = [
        Part(releases_of(question), Cut(25.734, 50.0, end), Jumps(number), Aim(tilt, epsilon, wanted, 5e-8))
        for number, tilt, end in ((0, 0.0232, 26.52), (None, 0.0181, 59.2))
    ]
    low, high = -math.inf, -math.inf
    for part in parts:
        low, high = log_add(low, part.bracket(epsilon)[0]), log_add(high, part.bracket(epsilon)[1])
    one = profile(question.event(), accountant="contour").delta(epsilon)
    assert low <= one.log_upper + 1e-9
    assert high >= one.log_lower - 1e-9
    assert high - low < 1e-7


# -- a part's moment function ----------------------------------------------------------------------------------------------------------


def window(x, cut, jumping):
    turned = cut.steepness * (x - cut.centre)
    return 1 / (1 + mpmath.exp(-turned if jumping else turned))


def moment(question, cut, jumping, s):
    """int f A^{s+1} B^{-s} times the window, up to the end."""
    ((pair, _),) = pairs_of(question)

    def ratio(mixture, x):
        return mpmath.fsum(w * mpmath.exp(a * x - mpmath.mpf(a) ** 2 / 2) for w, a in zip(mixture.weights, mixture.shifts, strict=True))

    def integrand(x):
        above, below = ratio(pair.upper, x), ratio(pair.lower, x)
        return mpmath.npdf(x) * above * mpmath.exp(s * (mpmath.log(above) - mpmath.log(below))) * window(x, cut, jumping)

    places = sorted({-30, -10, -5, 0, cut.centre - 1, cut.centre, cut.centre + 1, 0.5 * (cut.centre + cut.end), cut.end})
    return mpmath.quad(integrand, places, maxdegree=9)


PARTS = [
    (Question(1e-4, 0.5, 50, 1e-9), Cut(3.0, 4.0, 16.0), 1.5),
    (Question(1e-3, 0.8, 50, 1e-9, adjacency=REPLACE_ONE), Cut(2.5, 6.0, 14.0), 2.0),
    (Question(1e-2, 1.5, 50, 1e-9, group=3), Cut(4.0, 8.0, 12.0), 3.0),
]


@pytest.mark.parametrize("jumping", [True, False], ids=["jumps", "bulk"])
@pytest.mark.parametrize(("question", "cut", "tilt"), thinned(PARTS, every=3), ids=["sampled", "replaced", "group"])
def test_moments_masses_and_decay_of_parts_are_bounded(question, cut, tilt, jumping):
    releases = releases_of(question)
    part = Windowed(releases.upper, releases.lower, cut, jumping, 45.0)
    found = part.uppers(np.array([tilt]))
    with mpmath.workdps(25):
        mass, whole = (moment(question, cut, jumping, s) for s in (0, tilt))
        assert abs(mass - found.mass) <= found.error
        assert 0 <= found.log_moments[0] - mpmath.log(whole) <= 1e-9
        step, most = 0.7, math.exp(float(found.log_moments[0]))
        line = part.line(tilt, step, 20, 1e-14 * most, (most, found.mass))
        values = part.values(tilt, step, 20, 1e-14 * most, (most, found.mass))
        decay = part.log_decay(tilt, float(found.log_moments[0]), (40.0, 1))
        for height in (1, 5, 13):
            truth = moment(question, cut, jumping, mpmath.mpc(tilt, height * step))
            assert abs(mpmath.mpc(complex(line.minus_one[height])) + mass - truth) <= line.error[height]
            assert abs(mpmath.mpc(complex(values.minus_one[height])) - truth) <= values.error[height]
            assert max(line.error[height], values.error[height]) < 1e-9 * most
            assert decay(height * step) >= mpmath.log(abs(truth))


# -- what was wide, or slow ------------------------------------------------------------------------------------------------------------

WIDE = [
    Question(1.0471e-6, 0.26, 600, 1e-160, adjacency=REPLACE_ONE),
    Question(3.2e-5, 0.12, 45, 5e-23, adjacency=REPLACE_ONE),
    Question(2.9e-5, 1.82, 14_000, 7e-28),
    Question(5.1e-5, 0.065, 47_000, 9e-6),
    Question(1.4e-3, 0.22, 200, 1e-270, group=3, adjacency=REPLACE_ONE),
    Question(0.5, 0.125, 1200, 6e-11, group=3, adjacency=REPLACE_ONE),
    Question(1.0, 0.072, 11, 5e-268, sizes=(567, 945)),
    Question(1.1e-7, 0.53, 235_000, 7.6e-65, adjacency=REPLACE_ONE),
    Question(4.6e-7, 0.126, 330_000, 2e-280, adjacency=REPLACE_ONE),
    Question(4e-6, 1.7, 25_600, 8e-282),
    Question(1.0, 8.0, 4, 1e-297, sizes=(19, 1_686_662)),
    Question(1.0, 2.1, 2, 4.4e-282, sizes=(1, 2_330_505)),
    Question(3.235e-7, 0.9257, 861_212, 5.81e-261, group=4, adjacency=REPLACE_ONE),
    Question(8.993e-7, 1.182, 52, 5.78e-203, group=2, adjacency=REPLACE_ONE),
]
"""Of the kinds of random points with extremes that had no bracket, or one of more than 1e-5."""


@pytest.mark.parametrize("question", thinned(WIDE, every=6), ids=Question.text)
def test_sparse_and_extreme_questions_have_narrow_brackets_that_a_grid_doesnt_contradict(question):
    bound = profile(question.event()).epsilon(question.delta)
    assert bound.upper - bound.lower <= 1e-6 * bound.upper
    if question.delta > 1e-200:
        grid = profile(question.event(), accountant="fft").epsilon(question.delta)
        assert grid.lower <= bound.upper
        assert bound.lower <= grid.upper


def test_parts_that_decay_too_slowly_are_foreseen(monkeypatch):
    laid = []
    lay = Part._lay

    def counted(part, need):
        laid.append(part)
        lay(part, need)

    monkeypatch.setattr(Part, "_lay", counted)
    # Two releases whose jumps' moment functions hardly decay: three trials told only that.
    hopeless = Question(3.0e-4, 0.054, 2, 5e-7, group=8, adjacency=REPLACE_ONE)
    with pytest.raises(UnsupportedEvent, match="decay"):
        profile(hopeless.event(), accountant="contour").epsilon(hopeless.delta)
    assert not laid
    # The first plan of these does: as did the fourth, after three that were foreseen to be shorter.
    numbered = Question(2.4e-4, 0.062, 169, 6e-161, group=8)
    profile(numbered.event(), accountant="contour").epsilon(numbered.delta)
    assert len(laid) == 3


@pytest.mark.parametrize("question", thinned(CORNERS[:5], every=3), ids=Question.text)
def test_corners_are_narrow(question):
    answers = profile(question.event())
    if question.delta is not None:
        bound = answers.epsilon(question.delta)
        width = bound.upper - bound.lower
        assert width <= 1e-5 * bound.upper
    else:
        curve = answers.delta(question.epsilon)
        assert curve.log_upper - curve.log_lower <= 1e-5
