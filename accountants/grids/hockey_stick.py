r"""delta of one release: H_{e^eps}(P || Q) of a dominating pair at any real epsilon, in the order given, with a proved error.

A family of densities knows the curve of its own pairs (``densities``). This module adds pairs that a release shows only sometimes or in
either order, and puts. proofs/fft.md, section 1.
"""

from __future__ import annotations

import numpy as np

from zetadp.accountants.arithmetic import UNIT
from zetadp.accountants.densities import TINY, Calls, Floats
from zetadp.accountants.pairs import Crowded, Pair


def reverse(pair: Pair) -> Pair:
    """(Q, P), mirrored so that its log ratio increases again."""
    crowded = None if pair.crowded is None else Crowded(pair.crowded.probability, reverse(pair.crowded.pair))
    upper, lower = (pair.upper, pair.lower) if pair.worst_of_both else (pair.lower.mirrored, pair.upper.mirrored)
    return Pair(pair.family, upper, lower, pair.worst_of_both, pair.shown, crowded)


def calls(pair: Pair, epsilons: Floats) -> Calls:
    r"""H_{e^eps}(P || Q) at each epsilon >= 0; for ``worst_of_both`` the larger of both orders.

    >>> from zetadp.accountants.densities import GAUSSIAN
    >>> from zetadp.accountants.densities.mixtures import Mixture
    >>> pair = Pair(GAUSSIAN, Mixture((1.0,), (1.0,)), Mixture((1.0,), (0.0,)))
    >>> round(float(calls(pair, np.array([1.0])).upper[0]), 12)
    0.126936737507
    """
    if pair.crowded is not None:
        return _mixed(calls(pair.uncrowded, epsilons), calls(pair.crowded.pair, epsilons), pair.crowded.probability)
    first = pair.family.calls(pair.upper, pair.lower, epsilons)
    if pair.shown < 1.0:
        return _shown(first, pair.shown, epsilons)
    if not pair.worst_of_both:
        return first
    second = pair.family.calls(pair.lower.mirrored, pair.upper.mirrored, epsilons)
    larger = first.lower >= second.lower
    return Calls(
        np.maximum(first.lower, second.lower),
        np.maximum(first.upper, second.upper),
        np.where(larger, first.tail, second.tail),
        np.where(larger, first.doubt, second.doubt),
    )


def puts(pair: Pair, epsilons: Floats) -> Calls:
    r"""H_{e^eps}(P || Q) - 1 + e^eps = E[(e^{eps - L} - 1)_+] at each epsilon < 0: small where calls are near 1.

    They are the calls of (Q, P) at -eps, times e^eps; ``tail`` is about e^eps Q(L < eps), and the tangent rises with it.
    """
    there = calls(reverse(pair), -epsilons)
    factor = np.exp(epsilons)
    up, down = 1.0 + 4.0 * UNIT, 1.0 - 4.0 * UNIT
    return Calls(
        there.lower * factor * down, there.upper * factor * up + TINY, (there.lower + there.tail) * factor, 2.0 * there.doubt * factor
    )


def _mixed(often: Calls, rarely: Calls, share: float) -> Calls:
    """(1 - share) H + share H': calls of two pairs of which one is shown, and it is known which. (1.7)"""
    lower, upper, tail, doubt = ((1.0 - share) * a + share * b for a, b in zip(_arrays(often), _arrays(rarely), strict=True))
    some = np.where(upper > 0.0, TINY, 0.0)
    return Calls(lower * (1.0 - 8.0 * UNIT), upper * (1.0 + 8.0 * UNIT) + some, tail, doubt * (1.0 + 8.0 * UNIT) + 8.0 * UNIT * tail)


def _arrays(found: Calls) -> tuple[Floats, Floats, Floats, Floats]:
    return found.lower, found.upper, found.tail, found.doubt


def _shown(base: Calls, shown: float, epsilons: Floats) -> Calls:
    """(1 - shown) (1 - e^eps)_+ + shown H: calls of a pair shown with this probability. (1.6)"""
    rest = (1.0 - shown) * np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
    slope = np.where(epsilons < 0.0, (1.0 - shown) * np.exp(np.minimum(epsilons, 0.0)), 0.0)
    lower, upper = rest + shown * base.lower, rest + shown * base.upper
    tail = slope + shown * base.tail
    some = np.where(upper > 0.0, TINY, 0.0)
    return Calls(lower * (1.0 - 8.0 * UNIT), upper * (1.0 + 8.0 * UNIT) + some, tail, shown * base.doubt + 8.0 * UNIT * tail)
