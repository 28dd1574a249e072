r"""Draws the number K of runs of a private selection from its law. accountants/proofs/selected.md, section 7."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from decimal import Decimal

from zetadp.mechanisms.declared.runs import AnyRuns, NegativeBinomialRuns, PoissonRuns

RANDOM_BITS = 256
"""Of the number that K follows from."""

_DIGITS = 110
"""Of every term: 2^-256 has 77 zeros, and the rest is for the rounding of as many terms as there may be."""


def number_of_runs(law: AnyRuns, random: int) -> int:
    r"""The least k with u < P[K <= k] for u = ``random`` / 2^256: distributed as K if ``random`` is uniform, up to 2^-255 for each k.

    A negative binomial law's gamma is rounded to the side where there are fewer runs, for which all bounds are smaller.

    Args:
      random: in [0, 2^256).
    """
    assert 0 <= random < 1 << RANDOM_BITS
    with decimal.localcontext(prec=_DIGITS):
        below, u = Decimal(0), Decimal(random) / (1 << RANDOM_BITS)
        for k, probability in _probabilities(law):
            below += probability
            if u < below:
                return k
    raise AssertionError("the probabilities have a sum nearer to 1 than u can be")


def _probabilities(law: AnyRuns) -> Iterator[tuple[int, Decimal]]:
    """Every k that K may be, rising, with its probability."""
    match law:
        case PoissonRuns():
            mean, term, k = Decimal(law.mean), (-Decimal(law.mean)).exp(), 0
            while True:
                yield k, term
                k += 1
                term *= mean / k
        case NegativeBinomialRuns():
            yield from _negative_binomial(law)


def _negative_binomial(law: NegativeBinomialRuns) -> Iterator[tuple[int, Decimal]]:
    """P[K = 1] = (1 - gamma) eta / (gamma^-eta - 1), with log(1/gamma) for eta = 0, and the ratios after it."""
    eta, spread = Decimal(law.eta), Decimal(law.spread.low)
    if spread == 0:
        yield 1, Decimal(1)
        return
    missing = 1 - (-spread).exp()
    # (gamma^-eta - 1) / eta, by its series where the difference would lose its digits: the next term is below 1e-120 of the first.
    x = eta * spread
    rest = spread * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5)))) if abs(x) < Decimal("1e-24") else (x.exp() - 1) / eta
    term, k = missing / rest, 1
    while True:
        yield k, term
        term *= missing * (k + eta) / (k + 1)
        k += 1
