r"""How strong a guarantee is, in words for someone who isn't a cryptographer: an attacker's gain in figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from zetadp.accountants.attack_sentences import (
    EVEN_ODDS,
    FALSE_POSITIVES,
    Neighbours,
    Strength,
    guessing_sentence,
    naming_sentence,
    strength,
    strengths_in_words,
)
from zetadp.app.certificates.facts.guarantee import ApproximateDp, DeltaPoint, NoGuarantee
from zetadp.app.certificates.words.reading import Reading

ROUNDING = 1e-12
"""Added to a rate computed in floats: its few roundings stay far below."""


def most_true_positives(claim: ApproximateDp, false_positives: float) -> float:
    r"""The largest probability with which any test of the released model names a unit that is in the data, rounded up.

    Args:
      claim: the certified figures; each point of the curve gives min(e^eps a + delta, 1 - e^-eps (1 - delta - a)) (Kairouz, Oh and
        Viswanath 2015, Theorem 2.1), and the least of them holds.
      false_positives: a in [0, 1], the probability with which it names the unit when that isn't in the data.
    """
    best = 1.0
    for epsilon, delta in _curve(claim):
        best = min(
            best, math.exp(min(epsilon, 700.0)) * false_positives + delta, 1.0 - math.exp(-epsilon) * (1.0 - delta - false_positives)
        )
    return min(1.0, best + ROUNDING)


def advantage(claim: ApproximateDp) -> float:
    """The largest difference between an attack's true and false positive rates: min of (e^eps - 1 + 2 delta)/(e^eps + 1), rounded up."""
    best = min((math.expm1(min(epsilon, 700.0)) + 2.0 * delta) / (math.exp(min(epsilon, 700.0)) + 1.0) for epsilon, delta in _curve(claim))
    return min(1.0, best + ROUNDING)


def _curve(claim: ApproximateDp) -> Iterator[tuple[float, float]]:
    return ((float(point.epsilon), float(point.delta)) for point in claim.delta_curve)


def caution(reading: Reading, guarantee: NoGuarantee) -> Iterator[str]:
    """How to treat what was released if nothing is guaranteed."""
    if guarantee.if_seed_stays_secret is not None:
        yield "Treat the model as if it could reveal every record of its training data to whoever knows or guesses the seed."
    elif not reading.is_protected:
        yield "Treat the released files as if they contained the training data."


def at_certified_pair(claim: ApproximateDp) -> ApproximateDp:
    """The claim as its certified epsilon and delta alone, which is what every page says first of a guarantee."""
    pair = DeltaPoint(epsilon=claim.epsilon, delta=claim.delta)
    return ApproximateDp(
        epsilon=claim.epsilon, delta=claim.delta, epsilon_lower=claim.epsilon_lower, route=claim.route, delta_curve=(pair,)
    )


def attack_sentences(reading: Reading, guarantee: ApproximateDp) -> tuple[str, str]:
    """What an attacker gains, in figures, in the sentences that calculators show too: by every point of the claim's curve."""
    neighbours = _neighbours(reading)
    missed = max(0.0, math.nextafter(1.0 - most_true_positives(guarantee, FALSE_POSITIVES), -math.inf))
    return naming_sentence(FALSE_POSITIVES, missed, neighbours), guessing_sentence(EVEN_ODDS, _right_guess(guarantee), neighbours)


def _right_guess(guarantee: ApproximateDp) -> float:
    return min(1.0, math.nextafter((1.0 + advantage(guarantee)) / 2.0, math.inf))


def _strength(reading: Reading, guarantee: ApproximateDp) -> Strength:
    """By the certified pair alone, as on every page. A pure guarantee's delta allows publishing nobody."""
    units = reading.certificate.plan.units if guarantee.pure_epsilon is None else None
    return strength(_right_guess(at_certified_pair(guarantee)), Decimal(guarantee.delta), units)


def is_weak(reading: Reading, guarantee: ApproximateDp) -> bool:
    """Whether the page leads with the word."""
    return _strength(reading, guarantee).tone == "bad"


def strength_in_words(reading: Reading, guarantee: ApproximateDp) -> str:
    """The word that every page has for these figures, and what it means."""
    name = _strength(reading, guarantee).name
    return f"{name.capitalize()} protection. {strengths_in_words()}"


def nothing_promised(reading: Reading) -> str:
    """The same where there is no guarantee."""
    return naming_sentence(FALSE_POSITIVES, 0.0, _neighbours(reading))


def _neighbours(reading: Reading) -> Neighbours | None:
    return None if reading.adjacency is None else (reading.adjacency, reading.unit)


def worth_of_sampling(guarantee: ApproximateDp) -> Iterator[str]:
    """What epsilon would be without sampling, if sampling helped."""
    without = guarantee.epsilon_without_sampling
    if without is not None and float(without) > float(guarantee.epsilon):
        yield f"Random sampling helped: without it, the same noise would give epsilon {without}."
