r"""The largest loss of any leaf, also of the best of a random number of runs. proofs/selected.md, section 3."""

from __future__ import annotations

import math
from collections.abc import Iterable

from zetadp.accountants.dominating import pair_of, unsupported_reason
from zetadp.accountants.largest_loss import pure_epsilon
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.mechanisms.declared.runs import AnyRuns, PoissonRuns

_ROUNDING = 1e-14
"""Relative allowance for a few roundings of positive terms: some forty units of 1.1e-16."""


def largest_loss_of(leaf: Leaf) -> float:
    """The largest loss of any leaf in either direction, rounded up; infinite where no bound is known."""
    if isinstance(leaf.mechanism, Selection):
        return largest_loss_of_best(leaf.mechanism.runs, leaf.mechanism.parts)
    return math.inf if unsupported_reason(leaf) is not None else pure_epsilon(pair_of(leaf))


def largest_loss_of_best(runs: AnyRuns, parts: Iterable[tuple[Leaf, int]]) -> float:
    r"""The largest loss of the best of several runs, each of these leaves with their counts.

    For a base that is epsilon-DP the best of K runs has epsilon + (1 + eta) log((e^epsilon + gamma) / (1 + gamma e^epsilon)), which is at
    most (2 + eta) epsilon (Papernot and Steinke 2022, Corollary 3), or epsilon + m tanh(epsilon / 2) for a Poisson number of runs.
    """
    epsilon = math.fsum(count * largest_loss_of(leaf) for leaf, count in parts) * (1.0 + _ROUNDING)
    return epsilon if epsilon in (0.0, math.inf) else (epsilon + shift_of_pure(runs, epsilon)) * (1.0 + _ROUNDING)


def shift_of_pure(runs: AnyRuns, epsilon: float) -> float:
    """log of the largest phi'(F_P) / phi'(F_Q) where the base is epsilon-DP, rounded up."""
    if isinstance(runs, PoissonRuns):
        return runs.mean * math.tanh(0.5 * epsilon) * (1.0 + _ROUNDING)
    t = runs.spread.high
    # (e^epsilon + gamma) / (1 + gamma e^epsilon) - 1 = (e^epsilon - 1)(1 - gamma) / (1 + gamma e^epsilon), divided by e^epsilon.
    ratio = -math.expm1(-epsilon) * -math.expm1(-t) / (math.exp(-epsilon) + math.exp(-t))
    return (1.0 + runs.eta) * min(math.log1p(ratio), epsilon) * (1.0 + _ROUNDING)
