r"""What a privacy profile says about attacks: bounds that no attacker exceeds, from delta(epsilon) alone. Proofs: proofs/conversions.md.

An attacker sees the output and decides between two neighbours, "with my record" (member) and "without". A profile gives one delta for
both directions of neighbours, so every bound here holds for both roles. All results are upper bounds, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

from zetadp.accountants.profile import PrivacyProfile, check_alpha, check_epsilon
from zetadp.mechanisms.base import Extended, OpenProbability, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics import logspace

_ROUNDING = 1e-15
"""Relative allowance for a logarithm or exponential and the two or three roundings around it: about four times their largest total."""

_SMALLEST_PRIOR = 1e-300
_SEARCH_STEPS = 28
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
_DEPTH = 30.0
_WIDEST = 40.0
"""1 - e^-40 is 1 up to 4e-18, so searching further below an epsilon gains nothing."""


@final
class PosteriorBound(Value):
    r"""How far an output can move a belief. With probability at least 1 - ``failure_probability`` over the output, whichever neighbour
    is true, the posterior odds lie below e^``epsilon`` times the prior odds; likewise, they lie above e^-``epsilon`` times these.

    Attributes:
      prior: the probability of "member" before the output is seen.
      highest: the posterior stays below this, except with ``failure_probability``.
      lowest: it stays above this, except with ``failure_probability``.
    """

    prior: OpenProbability
    epsilon: Extended
    failure_probability: float
    highest: float
    lowest: float


def trade_off(profile: PrivacyProfile, alphas: Sequence[float]) -> tuple[float, ...]:
    """Lower bounds on the false negative rate at each false positive rate, rounded down: ``profile.trade_off`` for many.

    >>> from zetadp.accountants.profile import NonPrivateProfile
    >>> trade_off(NonPrivateProfile("raw data released"), [0.0, 0.5])
    (0.0, 0.0)
    """
    return tuple(profile.trade_off(alpha) for alpha in alphas)


def true_positive_rate(profile: PrivacyProfile, false_positive_rate: float) -> float:
    r"""The most that an attack of this false positive rate alpha can detect: min over epsilon of delta(epsilon) + e^epsilon alpha.

    This keeps relative accuracy for a tiny rate, which 1 - beta would lose.

    Args:
      false_positive_rate: alpha, in [0, 1].
    Source: Kairouz, Oh and Viswanath 2015, Theorem 2.1.

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(true_positive_rate(GdpProfile(1.0, ()), 1e-9) * 1e7, 6)
    2.899299
    """
    check_alpha(false_positive_rate)
    rate = profile.supporting_lines.best(false_positive_rate).true_positive_rate(false_positive_rate)
    return min(1.0, rate, _up(1.0 - profile.trade_off(false_positive_rate)))


def advantage(profile: PrivacyProfile) -> float:
    r"""The largest true positive rate minus false positive rate of any attack: delta(0), the total variation distance.

    Source: Yeom, Giacomelli, Fredrikson and Jha 2018; Kulynych, Gomez, Kaissis, du Pin Calmon and Troncoso 2024.

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(advantage(GdpProfile(1.0, ())), 9)
    0.382924923
    """
    return _delta(profile, 0.0)


def advantage_at(profile: PrivacyProfile, false_positive_rate: float) -> float:
    """The largest true positive rate minus false positive rate among attacks of this false positive rate; at most ``advantage``.

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(advantage_at(GdpProfile(1.0, ()), 0.01), 9)
    0.082362248
    """
    gain = _up(true_positive_rate(profile, false_positive_rate) - false_positive_rate)
    return min(advantage(profile), max(0.0, gain))


def bayes_success(profile: PrivacyProfile, prior: float) -> float:
    r"""The largest probability that an attacker names the true neighbour, when "member" has this prior probability.

    With p the smaller of prior and 1 - prior: 1 - p + p delta(log((1 - p) / p)), attained by the likelihood ratio test. At 1/2 this
    is (1 + advantage) / 2, the accuracy of membership inference on balanced records.

    Args:
      prior: in (0, 1).
    Source: proofs/conversions.md, section 4; Liese and Vajda 2006 (Bayes risk as a divergence).

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(bayes_success(GdpProfile(1.0, ()), 0.5), 9)
    0.691462461
    """
    p = check_prior(prior)
    p = p if p <= 0.5 else 1.0 - p
    # log((1 - p) / p), rounded down: delta only falls.
    log_odds = math.log1p((1.0 - 2.0 * p) / p) if p >= 0.25 else math.log((1.0 - p) / p)
    gain = _up(p * _delta(profile, max(0.0, log_odds * (1.0 - _ROUNDING))))
    return min(1.0, _up(_up(1.0 - p) + gain))


def positive_predictive_value(profile: PrivacyProfile, false_positive_rate: float, prior: float) -> float:
    r"""The largest probability that a record is a member, given that an attack of this false positive rate alpha says so.

    p tau / (p tau + (1 - p) alpha) with tau the bound of ``true_positive_rate``. It falls as alpha grows, so it also bounds every attack of
    a larger false positive rate. At alpha = 0 the answer is 1, unless nothing is ever detected without false alarms.

    Args:
      false_positive_rate: alpha, in [0, 1].
      prior: p, in (0, 1).
    Source: Bayes' rule; Jayaraman, Wang, Knipmeyer, Gu and Evans 2021 (who define it for attacks).

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(positive_predictive_value(GdpProfile(1.0, ()), 0.01, 0.5), 6)
    0.902308
    """
    p = check_prior(prior)
    detected = true_positive_rate(profile, false_positive_rate)
    if false_positive_rate == 0.0:
        return 1.0
    odds_against = (1.0 - p) / p * (false_positive_rate / detected)
    return min(1.0, (1.0 + _ROUNDING) / (1.0 + odds_against * (1.0 - _ROUNDING)))


def loss_tail(profile: PrivacyProfile, epsilon: float) -> float:
    r"""Upper bound on Pr[L >= epsilon] over outputs, L the privacy loss: min over e < epsilon of delta(e) / (1 - e^{e - epsilon}).

    (epsilon, delta)-DP alone doesn't bound this by delta: it says nothing about Pr[L >= epsilon] itself, and bounds
    Pr[L >= epsilon + t] by delta / (1 - e^-t). Any e is sound; the function searches for a good one.

    Args:
      epsilon: > 0; infinity gives the probability of an output that proves membership, at most the limit of delta.
    Source: proofs/conversions.md, section 5 (which also shows that no better bound follows from the profile for small probabilities).

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(loss_tail(GdpProfile(1.0, ()), 4.5), 7)  # the exact tail of this pair, Phi(1/2 - 4.5), is .0000317
    7.64e-05
    """
    if not epsilon > 0.0:
        raise InvalidParameter("epsilon", "> 0", epsilon)

    if epsilon == math.inf:
        return _delta(profile, math.inf)

    def log_tail(log_gap: float) -> float:
        lower = max(0.0, epsilon - math.exp(log_gap))
        if lower == epsilon:
            return math.inf
        return profile.supporting_lines.line(lower).log_delta - math.log(-math.expm1(lower - epsilon))

    highest = math.log(min(_WIDEST, epsilon))
    best = _smallest(log_tail, highest - _DEPTH, highest)
    if best == -math.inf:  # no output has such a loss; the margin for rounding below would also be infinite, and the sum not a number
        return 0.0
    return min(1.0, logspace.exp_up(best + _ROUNDING * (abs(best) + 4.0)))


def loss_quantile(profile: PrivacyProfile, probability: float) -> float:
    r"""An epsilon that the privacy loss reaches with at most this probability: min over e of e - log(1 - delta(e) / probability).

    Solves ``loss_tail`` for epsilon, without a nested search. 0 or more; infinity if the profile has no such epsilon.

    Args:
      probability: in (0, 1).
    Source: proofs/conversions.md, section 5.

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(loss_quantile(GdpProfile(1.0, ()), 1e-9), 4)  # 6.4978 for this pair itself
    6.6454
    """
    if not 0.0 < probability < 1.0:
        raise InvalidParameter("probability", "in (0, 1)", probability)
    first = profile.epsilon_upper(probability)
    if first == math.inf:
        return math.inf
    log_probability = math.log(probability)

    def reached(log_gap: float) -> float:
        lower = first + math.exp(log_gap)
        log_delta = profile.supporting_lines.line(lower).log_delta
        if log_delta == -math.inf:
            return lower
        # Rounded up before 1 - delta / probability is computed, which magnifies an error if the two are close.
        excess = log_delta - log_probability + _ROUNDING * (4.0 - log_delta - log_probability)
        return lower - logspace.log_one_minus_exp(excess) if excess < 0.0 else math.inf

    highest = math.log(_WIDEST + first)
    return _smallest(reached, highest - _DEPTH, highest) * (1.0 + _ROUNDING) + logspace.SMALLEST_FLOAT


def posterior(epsilon: float, prior: float) -> float:
    r"""The highest posterior that a privacy loss of at most ``epsilon`` allows: p e^epsilon / (1 - p + p e^epsilon).

    For pure epsilon-DP it holds for every output.

    Args:
      epsilon: >= 0.
      prior: p, in (0, 1).
    Source: Kasiviswanathan and Smith 2014, Section 2.

    >>> round(posterior(math.log(3.0), 0.5), 12)
    0.75
    """
    check_epsilon(epsilon)
    p = check_prior(prior)
    return min(1.0, (1.0 + _ROUNDING) / (1.0 + (1.0 - p) / p * math.exp(-epsilon) * (1.0 - _ROUNDING)))


def posterior_bound(profile: PrivacyProfile, prior: float, failure_probability: float) -> PosteriorBound:
    """How far one output can move a belief in membership, except with ``failure_probability`` for each side.

    Args:
      prior: in (0, 1).
      failure_probability: in (0, 1); the profile's epsilon at this delta isn't enough, see ``loss_tail``.

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(posterior_bound(GdpProfile(1.0, ()), 0.01, 1e-5).highest, 6)
    0.590197
    """
    epsilon = loss_quantile(profile, failure_probability)
    p, factor = check_prior(prior), math.exp(min(epsilon, 700.0))
    lowest = (1.0 - _ROUNDING) / (1.0 + (1.0 - p) / p * factor * (1.0 + _ROUNDING)) if epsilon <= 700.0 else 0.0
    return PosteriorBound(
        prior=prior, epsilon=epsilon, failure_probability=failure_probability, highest=posterior(epsilon, prior), lowest=lowest
    )


def check_prior(prior: float) -> float:
    """The prior. Raises InvalidParameter unless it is a probability in [1e-300, 1)."""
    if not _SMALLEST_PRIOR <= prior < 1.0:
        raise InvalidParameter("prior", f"in [{_SMALLEST_PRIOR}, 1)", prior)
    return prior


def _delta(profile: PrivacyProfile, epsilon: float) -> float:
    return min(1.0, logspace.exp_up(profile.log_delta_upper(epsilon)))


def _up(value: float) -> float:
    return math.nextafter(value, math.inf)


def _smallest(cost: Callable[[float], float], low: float, high: float) -> float:
    """The smallest value found by golden-section search on a function with one minimum; every value is a sound answer."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = cost(left), cost(right)
    best = min(at_left, at_right, cost(high))
    for _ in range(_SEARCH_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = cost(right)
        best = min(best, at_left, at_right)
    return best
