"""What tests of noise on whole numbers share: outcomes of a release in many digits, and what a bracket of them has to hold."""

from __future__ import annotations

import mpmath
import numpy as np

from zetadp.accountants.dominating import pair_of
from zetadp.accountants.grids.hockey_stick import calls, reverse


def outcomes_of(leaf, f, reach):
    """[(P, Q)] over the whole numbers from -reach on, for a whole or Poisson-sampled release of a group; f is the noise's law."""
    q, m = mpmath.mpf(leaf.probability), leaf.mechanism.moves
    weights = [mpmath.binomial(leaf.group, j) * q**j * (1 - q) ** (leaf.group - j) for j in range(leaf.group + 1)]
    return [(mpmath.fsum(w * f(x - j * m) for j, w in enumerate(weights)), f(x)) for x in range(-reach, reach + leaf.group * m + 1)]


def hockey_stick(pairs, epsilon):
    g = mpmath.exp(mpmath.mpf(epsilon))
    return mpmath.fsum(max(p - g * q, 0) for p, q in pairs)


def renyi(pairs, order):
    """The larger one of both orders, where both are positive."""
    both = [(p, q) for p, q in pairs if min(p, q) > 0]
    moments = (
        mpmath.fsum(a**order * b ** (1 - order) for a, b in ((p, q) if first else (q, p) for p, q in both)) for first in (True, False)
    )
    return float(mpmath.log(max(moments)) / (order - 1))


def holds_to_the_last_digits(leaf, pairs, *, is_reversed, digits, deepest, stride):
    """At levels between the losses, just beside every ``stride``-th of them, and beyond the largest of outcomes above 10^-deepest.

    Sums over the outcomes are right to 10^-digits.
    """
    pair = reverse(pair_of(leaf)) if is_reversed else pair_of(leaf)
    pairs = [(q, p) if is_reversed else (p, q) for p, q in pairs]
    top = max(mpmath.log(p / q) for p, q in pairs if min(p, q) > mpmath.mpf(10) ** -deepest)
    levels = [0.0, 1e-9, *(float(top) * share for share in (0.05, 0.3, 0.7, 0.999, 1.5))]
    levels += [float(mpmath.log(p / q)) * (1 + 1e-12) for p, q in pairs[len(pairs) // 2 :: stride] if p > q > mpmath.mpf(10) ** -20]
    found = calls(pair, np.array(levels))
    for level, low, high in zip(levels, found.lower, found.upper, strict=True):
        truth = hockey_stick(pairs, level)
        if truth < mpmath.mpf(10) ** -digits:  # beyond the outcomes that are summed here
            assert low <= 10.0 ** (1 - digits)
            continue
        assert low <= truth <= high
        assert high - low <= 1e-11 * truth + 2e-14
