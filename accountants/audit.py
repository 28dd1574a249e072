r"""Lower bounds on epsilon from one run with canaries, and whether they contradict a claim. A lower bound, never a proof of privacy.

Half of m canaries, chosen by fair coins, take part in a run; an observer of the outputs gives each canary a score, higher for "it took
part". Two tests of a claimed trade-off function use the scores:

* ``one_run_p_value`` computes how often this many guesses could be right. It assumes nothing but the claim and the coins.
* ``quantile_test`` compares rates of false positives and false negatives with the claim as if scores were independent of each other,
  which largely holds for canaries in orthogonal directions; it detects more.

Sources: Mahloujifar, Melis and Chaudhuri 2025, arXiv:2410.22235, Theorem 3.2; proofs/audit.md has the argument used here.
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

GUESSED = (0.02, 0.1, 0.4, 1.0)
"""Shares of the canaries that are guessed, the surest first; every answer includes a correction for trying several."""

QUANTILES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98)
"""Quantiles of all scores at which ``quantile_test`` cuts, also with a correction for trying several."""

SMALLEST_P_VALUE = 1e-12
_HALVINGS = 20
_LINES = 128
_SMALLEST_LOG_DELTA = -40.0
_LARGEST_MU = 100.0

Rate = Callable[[float], float]
"""For a set of outputs: its probability with a canary -> the least probability without it, and vice versa; rising, convex."""


@final
@dataclass(frozen=True)
class Scores:
    r"""The scores of one run's canaries.

    Attributes:
      members: (m,), bool; which took part, by fair and independent coins.
      values: (m,), float; higher for "it took part". Must be finite.
    """

    members: NDArray[np.bool_]
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.members.ndim != 1 or self.members.shape != self.values.shape or self.members.size < 2:
            raise InvalidParameter("scores", "as many as members, at least two", (self.members.shape, self.values.shape))
        if not np.isfinite(self.values).all():
            raise InvalidParameter("scores", "finite", int((~np.isfinite(self.values)).sum()))

    def right_guesses(self, guesses: int) -> int:
        """The number of correct guesses among the surest ones: the guess is that the upper half took part and the lower half didn't."""
        order = np.argsort(self.values, kind="stable")
        lowest, highest = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
        return int((~self.members[lowest]).sum() + self.members[highest].sum())


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


def lower_mu(scores: Scores, error: float) -> float:
    r"""A lower bound on the run's mu, except with probability ``error``, if its trade-off is a Gaussian pair's; by ``one_run_p_value``.

    0 if the scores say nothing.
    """
    counted = [(guesses, scores.right_guesses(guesses)) for guesses in _guesses(scores)]
    share = error / len(counted)

    def is_refuted(mu: float) -> bool:
        rate = gaussian_rate(mu)
        return any(not is_possible(len(scores.members), guesses, right, rate, share) for guesses, right in counted)

    return _largest(is_refuted)


def lower_mu_of_independent(scores: Scores, error: float) -> float:
    """The same, assuming independent scores: max over cuts of Phi^-1(1 - false positives) - Phi^-1(false negatives)."""
    bounds = [_rates_at(scores, quantile, error / (2 * len(QUANTILES))) for quantile in QUANTILES]
    return max(0.0, *(float(scipy.special.ndtri(1.0 - alpha) - scipy.special.ndtri(beta)) for alpha, beta in bounds))


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon at ``delta`` of a Gaussian pair at distance ``mu``; 0 for mu = 0."""
    return 0.0 if mu == 0.0 else GdpProfile(mu, ()).epsilon_upper(delta)


def _quantile_p_value(scores: Scores, claim: PrivacyProfile) -> float:
    """Least error probability at which some cut's rates are below the claimed trade-off, over all cuts."""

    def contradicts(error: float) -> bool:
        bounds = [_rates_at(scores, quantile, error / (2 * len(QUANTILES))) for quantile in QUANTILES]
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


def _rates_at(scores: Scores, quantile: float, error: float) -> tuple[float, float]:
    """Upper ends (Clopper and Pearson 1934) of false positives and false negatives, if scores above the quantile mean "took part"."""
    above, members = scores.values > np.quantile(scores.values, quantile), scores.members
    false_positives, false_negatives = int((above & ~members).sum()), int((~above & members).sum())
    return _upper(false_positives, int((~members).sum()), error), _upper(false_negatives, int(members.sum()), error)


def _upper(found: int, of: int, error: float) -> float:
    """Upper end for a proportion; 1 if there was nothing to count."""
    return 1.0 if found >= of else float(scipy.special.betaincinv(found + 1, of - found, 1.0 - error))


def _guesses(scores: Scores) -> Sequence[int]:
    return sorted({max(2, round(share * len(scores.members))) for share in GUESSED})


def _largest(is_refuted: Callable[[float], bool]) -> float:
    """The largest mu that is refuted, to a thousandth; 0 if none is."""
    low, high = 0.0, 1.0
    if not is_refuted(1e-3):
        return 0.0
    while is_refuted(high) and high < _LARGEST_MU:
        low, high = high, 2.0 * high
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
