r"""Lower bounds on epsilon from one run with canaries, and whether they contradict a claim. A lower bound, never a proof of privacy.

Fair coins decide which of m canaries take part in a run; an observer of the outputs gives each canary a score, higher for "it took part".
The bounds, each with what it assumes beside fair coins:

* ``lower_epsilon``: nothing. How often so many guesses can be right if the run is (epsilon, delta)-DP.
* ``one_run_p_value`` of a profile: nothing; a whole claimed trade-off function is tested. ``lower_mu``: that it is a Gaussian pair's.
* ``quantile_test`` and ``lower_mu_of_independent`` count false positives and negatives beyond cuts, with exact binomial tails: scores are
  independent of each other. It detects the most. ``trainer.engine.gradients.marks`` has scores of which an honest run makes this true.

Sources: Steinke, Nasr and Jagielski 2023, arXiv:2305.08846; Mahloujifar, Melis and Chaudhuri 2025, arXiv:2410.22235, Theorem 3.2;
proofs/audit.md has the argument used here.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy
from numpy.typing import NDArray

from zetadp.accountants import deadline
from zetadp.accountants.conversions import trade_off
from zetadp.accountants.profile import PrivacyProfile
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics import logspace

GUESSED = (100, 400, 1600)
"""How many of the canaries are guessed, the surest first; every answer includes a correction for trying several."""

QUANTILES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
"""Quantiles of all scores at which ``at_quantiles`` cuts."""

SMALLEST_P_VALUE = 1e-12
_HALVINGS = 20
_LINES = 128
_SMALLEST_LOG_DELTA = -40.0
_LARGEST_MU = 100.0
_LARGEST_EPSILON = 50.0

Rate = Callable[[float], float]
"""For a set of outputs: its probability with a canary -> the least probability without it, and vice versa; rising, convex."""


@final
@dataclass(frozen=True)
class Scores:
    r"""The scores of one run's canaries.

    Attributes:
      members: (m,), bool; which took part, by fair and independent coins.
      values: (m,), float; above 0 for "it took part", the further from 0 the surer. Must be finite.
      cuts: values above one of these count as "it took part" in tests that assume independence; exact if fixed before the run.
    """

    members: NDArray[np.bool_]
    values: NDArray[np.float64]
    cuts: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.members.ndim != 1 or self.members.shape != self.values.shape or self.members.size < 2:
            raise InvalidParameter("scores", "as many as members, at least two", (self.members.shape, self.values.shape))
        if not np.isfinite(self.values).all():
            raise InvalidParameter("scores", "finite", int((~np.isfinite(self.values)).sum()))
        if not self.cuts:
            raise InvalidParameter("scores.cuts", "at least one", self.cuts)

    def right_guesses(self, guesses: int) -> int:
        """The number of correct guesses among the surest ones."""
        surest = np.argsort(-np.abs(self.values), kind="stable")[:guesses]
        return int(((self.values > 0.0) == self.members)[surest].sum())


def at_quantiles(members: NDArray[np.bool_], values: NDArray[np.float64]) -> Scores:
    """Of values without a scale: their median counts as undecided, and cuts are their quantiles, which depend on all of them slightly."""
    centred = values - np.median(values)
    return Scores(members, centred, tuple(np.quantile(centred, QUANTILES).tolist()))


@final
class ClaimedRate:
    r"""The least probability of a set of outputs for a neighbour, according to a profile: the best of its lines. See ``Rate``.

    P(S) <= e^e Q(S) + delta(e) gives Q >= e^-e (P - delta); the same for the complement Q >= 1 - delta - e^e (1 - P). Both directions
    of the profile are in its delta. A missing line only makes the answer smaller, which favours the claim.
    """

    def __init__(self, profile: PrivacyProfile) -> None:
        last = max(line.epsilon for line in profile.supporting_lines.known if line.log_delta > _SMALLEST_LOG_DELTA or line.epsilon == 0.0)
        lines = [profile.supporting_lines.line(last * number / _LINES) for number in range(_LINES + 1)]
        epsilons, deltas = [line.epsilon for line in lines], [logspace.exp_up(line.log_delta) for line in lines]
        # As (slope, delta), falling lines first: by rising slope, and so by rising probability at which they are best.
        below = [(math.exp(-e), delta, True) for e, delta in zip(reversed(epsilons), reversed(deltas), strict=True)]
        above = [(math.exp(e), delta, False) for e, delta in zip(epsilons, deltas, strict=True)]
        self._lines, self._places = _upper_envelope([*below, *above])

    def __call__(self, probability: float) -> float:
        slope, delta, is_below = self._lines[bisect(self._places, probability)]
        found = slope * (probability - delta) if is_below else 1.0 - delta - slope * (1.0 - probability)
        return min(1.0, max(0.0, found))


_Line = tuple[float, float, bool]


def _upper_envelope(lines: Sequence[_Line]) -> tuple[list[_Line], list[float]]:
    """The lines that are the highest somewhere, by rising slope, and the probabilities at which one takes over from the previous one."""
    best: list[_Line] = []
    places: list[float] = []
    for line in lines:
        while best and _crossing(best[-1], line) <= (places[-1] if places else -math.inf):
            best.pop()
            if places:
                places.pop()
        if best:
            places.append(_crossing(best[-1], line))
        best.append(line)
    return best, places


def _crossing(first: _Line, second: _Line) -> float:
    """Where the second line, which is at least as steep, rises above the first."""
    heights = [slope * (1.0 - delta) if is_below else 1.0 - delta for slope, delta, is_below in (first, second)]
    if second[0] == first[0]:
        return -math.inf if heights[1] >= heights[0] else math.inf
    return 1.0 - (heights[1] - heights[0]) / (second[0] - first[0])


def gaussian_rate(mu: float) -> Rate:
    """The rate of mu-GDP: Phi(Phi^-1(p) - mu).

    >>> round(gaussian_rate(1.0)(0.5), 4)
    0.1587
    """
    return lambda probability: float(scipy.special.ndtr(scipy.special.ndtri(min(1.0, probability)) - mu))


def line_rate(epsilon: float, delta: float) -> Rate:
    """The rate of (epsilon, delta)-DP, of which nothing else is known."""
    below, above = math.exp(-epsilon), math.exp(epsilon)
    return lambda probability: max(0.0, below * (probability - delta), 1.0 - delta - above * (1.0 - probability))


def one_run_p_value(canaries: int, guesses: int, right: int, rate: Rate, at_least: float = SMALLEST_P_VALUE) -> float:
    r"""Upper bound on the probability of at least ``right`` correct ones among ``guesses``, for an algorithm that satisfies the claim.

    Args:
      canaries: m, each included by a fair coin; guesses <= m.
      right: <= guesses.
      rate: the claim.
      at_least: smaller answers are replaced by this value.
    Source: proofs/audit.md, section 2.

    >>> 0.05 < one_run_p_value(1000, 1000, 520, gaussian_rate(0.0)) < 1.0
    True
    """
    if not 0 <= right <= guesses <= canaries or guesses == 0:
        raise InvalidParameter("right <= guesses <= canaries", "counts in this order, with at least one guess", (right, guesses, canaries))
    if is_possible(canaries, guesses, right, rate, 1.0):
        return 1.0
    low, high = math.log(at_least), 0.0
    if not is_possible(canaries, guesses, right, rate, at_least):
        return at_least
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if is_possible(canaries, guesses, right, rate, math.exp(middle)):
            low = middle
        else:
            high = middle
    return min(1.0, math.exp(high) * (1.0 + 1e-9))


def is_possible(canaries: int, guesses: int, right: int, rate: Rate, probability: float) -> bool:
    r"""Whether ``right`` or more guesses can be correct with this probability under the claim.

    P_j, the probability of j or more correct guesses, is bounded below step by step from P_right = ``probability``:
    (guesses - j + 1) P_{j-1} >= P_j + sum_{i>j} P_i + m rate((j P_j + sum_{i>j} P_i) / m). Beyond 1 it is impossible.
    """
    tail, later = probability, 0.0
    for j in range(right, 0, -1):
        deadline.check()
        needed = canaries * rate((j * tail + later) / canaries)
        before = max(tail, (tail + later + needed) / (guesses - j + 1))
        later += tail
        tail = before
        if tail > 1.0 + 1e-9:
            return False
    return True


@final
@dataclass(frozen=True)
class Contradiction:
    """Upper bound on the probability of such scores under the claim, by each test; the second assumes that scores are independent."""

    one_run: float
    quantiles: float


def contradiction(scores: Scores, claim: PrivacyProfile) -> Contradiction:
    """How surprising the scores are if the claim is true."""
    rate = ClaimedRate(claim)
    counted = [(guesses, scores.right_guesses(guesses)) for guesses in _guesses(scores)]
    one_run = min(one_run_p_value(len(scores.members), guesses, right, rate) for guesses, right in counted)
    return Contradiction(min(1.0, one_run * len(counted)), _quantile_p_value(scores, claim))


def lower_epsilon(scores: Scores, delta: float, error: float) -> float:
    r"""A lower bound on the run's epsilon at ``delta``, except with probability ``error``; assumes nothing but the coins.

    0 if the scores say nothing.
    Source: proofs/audit.md, section 2, with the rate of one (epsilon, delta).
    """
    return _largest(_refuted(scores, lambda epsilon: line_rate(epsilon, delta), error), _LARGEST_EPSILON)


def lower_mu(scores: Scores, error: float) -> float:
    r"""A lower bound on the run's mu, except with probability ``error``, if its trade-off is a Gaussian pair's; by ``one_run_p_value``.

    0 if the scores say nothing.
    """
    return _largest(_refuted(scores, gaussian_rate, error), _LARGEST_MU)


def _refuted(scores: Scores, rate: Callable[[float], Rate], error: float) -> Callable[[float], bool]:
    """Whether the claim with this parameter is refuted by one of the numbers of guesses, each with its share of the error."""
    counted = [(guesses, scores.right_guesses(guesses)) for guesses in _guesses(scores)]

    def is_refuted(parameter: float) -> bool:
        claimed, share = rate(parameter), error / len(counted)
        return any(not is_possible(len(scores.members), guesses, right, claimed, share) for guesses, right in counted)

    return is_refuted


def lower_mu_of_independent(scores: Scores, error: float) -> float:
    """The same, assuming independent scores: max over cuts of Phi^-1(1 - false positives) - Phi^-1(false negatives)."""
    bounds = [_rates_at(scores, cut, error / (2 * len(scores.cuts))) for cut in scores.cuts]
    return max(0.0, *(float(scipy.special.ndtri(1.0 - alpha) - scipy.special.ndtri(beta)) for alpha, beta in bounds))


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon at ``delta`` of a Gaussian pair at distance ``mu``; 0 for mu = 0."""
    return 0.0 if mu == 0.0 else GdpProfile(mu, ()).epsilon_upper(delta)


def _quantile_p_value(scores: Scores, claim: PrivacyProfile) -> float:
    """Least error probability at which some cut's rates are below the claimed trade-off, over all cuts."""

    def contradicts(error: float) -> bool:
        bounds = [_rates_at(scores, cut, error / (2 * len(scores.cuts))) for cut in scores.cuts]
        claimed = trade_off(claim, [alpha for alpha, _ in bounds])
        return any(beta < least for (_, beta), least in zip(bounds, claimed, strict=True))

    low, high = math.log(SMALLEST_P_VALUE), 0.0
    if contradicts(SMALLEST_P_VALUE):
        return SMALLEST_P_VALUE
    if not contradicts(1.0):
        return 1.0
    for _ in range(_HALVINGS // 2):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if contradicts(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _rates_at(scores: Scores, cut: float, error: float) -> tuple[float, float]:
    """Upper ends (Clopper and Pearson 1934) of false positives and false negatives, if scores above the cut mean "took part"."""
    above, members = scores.values > cut, scores.members
    false_positives, false_negatives = int((above & ~members).sum()), int((~above & members).sum())
    return _upper(false_positives, int((~members).sum()), error), _upper(false_negatives, int(members.sum()), error)


def _upper(found: int, of: int, error: float) -> float:
    """Upper end for a proportion; 1 if there was nothing to count."""
    return 1.0 if found >= of else float(scipy.special.betaincinv(found + 1, of - found, 1.0 - error))


def _guesses(scores: Scores) -> Sequence[int]:
    return sorted({min(guesses, len(scores.members)) for guesses in GUESSED})


def _largest(is_refuted: Callable[[float], bool], most: float) -> float:
    """The largest parameter that is refuted, to a thousandth and at most ``most``; 0 if none is."""
    low, high = 0.0, 1.0
    if not is_refuted(1e-3):
        return 0.0
    while is_refuted(high):
        if high >= most:
            return most
        low, high = high, min(most, 2.0 * high)
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
