"""The number of runs of a private selection: its draws follow the law that is accounted, and no other."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from decimal import Decimal

import pytest
import scipy

from zetadp.mechanisms.declared.drawn_runs import RANDOM_BITS, number_of_runs
from zetadp.mechanisms.declared.runs import AnyRuns, GeometricRuns, LogarithmicRuns, PoissonRuns, TruncatedNegativeBinomialRuns

LAWS = (
    PoissonRuns(mean=0.5),
    PoissonRuns(mean=6.0),
    GeometricRuns(mean=4.0),
    LogarithmicRuns(mean=4.0),
    TruncatedNegativeBinomialRuns(mean=5.0, shape=0.5),
    TruncatedNegativeBinomialRuns(mean=5.0, shape=-0.5),
)
NEAR_LOGARITHMIC = TruncatedNegativeBinomialRuns(mean=4.0, shape=1e-200)
DRAWS = 4000
SIGNIFICANT = 1e-6


def random(number: int) -> int:
    return int.from_bytes(hashlib.sha256(f"drawn runs {number}".encode()).digest(), "big")


def probability(law: AnyRuns, k: int) -> float:
    """Of K = k, by SciPy where it has the law, and else by gamma functions in floats."""
    if isinstance(law, PoissonRuns):
        return float(scipy.stats.poisson.pmf(k, law.mean))
    if k == 0:
        return 0.0
    eta, gamma = law.eta, math.exp(-law.spread.high)
    if isinstance(law, GeometricRuns):
        return float(scipy.stats.geom.pmf(k, 1.0 / law.mean))
    if isinstance(law, LogarithmicRuns):
        return float(scipy.stats.logser.pmf(k, 1.0 - gamma))
    weight = math.lgamma(k + eta) - math.lgamma(k + 1) + k * math.log1p(-gamma)
    # Gamma(eta) is negative for a shape below 0, and so is gamma^-eta - 1.
    return math.exp(weight) / abs(math.gamma(eta) * (gamma**-eta - 1.0))


def p_value(draws: list[int], law: AnyRuns) -> float:
    """Of a chi-square test, with numbers in cells of at least ten expected draws."""
    counted, cells, k = Counter(draws), list[tuple[float, int]](), 0
    left, expected, found = 1.0, 0.0, 0
    while left * DRAWS >= 20.0:
        left -= (own := probability(law, k))
        expected, found, k = expected + own * DRAWS, found + counted[k], k + 1
        if expected >= 10.0:
            cells.append((expected, found))
            expected, found = 0.0, 0
    rest = DRAWS - sum(found for _, found in cells)
    cells.append((DRAWS - sum(expected for expected, _ in cells), rest))
    statistic = sum((found - expected) ** 2 / expected for expected, found in cells)
    return float(scipy.stats.chi2.sf(statistic, len(cells) - 1))


# A heavy tail's mean rests on few draws, so that so many of shape -0.5 don't tell these means apart; its places below do.
@pytest.mark.parametrize("law", LAWS[:-1], ids=repr)
def test_draws_follow_the_law_that_is_accounted_and_not_one_with_a_mean_that_is_30_percent_off(law: AnyRuns) -> None:
    draws = [number_of_runs(law, random(number)) for number in range(DRAWS)]
    assert p_value(draws, law) > SIGNIFICANT
    for factor in (0.7, 1.3):
        other = type(law).model_validate(law.model_dump() | {"mean": factor * law.mean})
        wrong = [number_of_runs(other, random(number)) for number in range(DRAWS)]
        assert p_value(wrong, law) < SIGNIFICANT


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_places_where_the_number_changes_are_the_sums_of_probabilities(law: AnyRuns) -> None:
    below = 0.0
    for k in range(0 if isinstance(law, PoissonRuns) else 1, 8):
        below += probability(law, k)
        for side in (-1, 1):
            at = int((Decimal(below) + side * Decimal("1e-9")) * (1 << RANDOM_BITS))
            assert (number_of_runs(law, max(at, 0)) > k) == (side > 0)


def test_a_shape_next_to_zero_is_the_logarithmic_law() -> None:
    for number in range(500):
        assert number_of_runs(NEAR_LOGARITHMIC, random(number)) == number_of_runs(LogarithmicRuns(mean=4.0), random(number))


def test_the_largest_random_number_still_gives_a_number() -> None:
    assert number_of_runs(PoissonRuns(mean=1000.0), (1 << RANDOM_BITS) - 1) < 2000
    assert number_of_runs(GeometricRuns(mean=1.0), (1 << RANDOM_BITS) - 1) == 1


def test_the_law_that_is_drawn_has_no_more_runs_than_the_one_that_is_accounted() -> None:
    for law in LAWS:
        if not isinstance(law, PoissonRuns):
            assert law.spread.low <= law.spread.high
            # At the lower end the mean is at most the one given, up to the floats of this very line.
            eta, t = law.eta, law.spread.low
            mean = math.expm1(t) / t if eta == 0.0 else eta * math.expm1(t) / -math.expm1(-eta * t)
            assert mean <= law.mean * (1.0 + 1e-14)
