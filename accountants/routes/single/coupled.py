r"""How probable it is that any release differs: a bound on delta at every epsilon >= 0, for rare samples. proofs/pairs.md (5).

Where almost never anybody is sampled, noise may be as small as it likes and every moment as large: the other routes refuse, or answer
with hundreds, although epsilon is 0 at every delta above that probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from zetadp.accountants.arithmetic import UNIT, within_floats
from zetadp.accountants.dominating import pair_of
from zetadp.accountants.grids.hockey_stick import calls
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.pairs import Pair, widened
from zetadp.mechanisms.errors import UnsupportedEvent

_WORTH = math.log(4.0)
"""How far above delta the probability that anybody is sampled may be, as a logarithm. If it is further, so is what is asked for, unless the
noise is so large that the other routes answer."""

_SLACK = 64.0 * UNIT
"""More than the relative rounding of a logarithm of the product, and of its difference from 1."""


def is_surely_zero(parts: Mapping[Leaf, int], log_delta: float) -> bool:
    """Whether delta(0) is at most e^log_delta since it is as improbable that any release differs: then epsilon is 0.

    Args:
      parts: leaves that have a dominating pair, each with its count.
      log_delta: < 0.
    """
    pairs = [(pair_of(leaf), count) for leaf, count in parts.items()]
    return _log_of_any(_sampled(pair) * count for pair, count in pairs) <= log_delta + _WORTH and log_total_variation(parts) <= log_delta


def log_total_variation(parts: Mapping[Leaf, int]) -> float:
    """Upper bound on the log of the total variation of the whole composition, which bounds delta at every epsilon >= 0.

    It is 0, which bounds nothing, where a release's own is beyond floats.
    """
    try:
        with within_floats("total variation"):
            differs = [(float(calls(widened(pair_of(leaf)), np.zeros(1)).upper[0]), count) for leaf, count in parts.items()]
    except UnsupportedEvent:
        return 0.0
    return _log_of_any(count * (math.log1p(-one) if one < 1.0 else -math.inf) for one, count in differs)


def _sampled(pair: Pair) -> float:
    """log of a lower bound on the probability that a release is the same for both neighbours: that of not being in the sample."""
    if pair.crowded is not None:
        return min(_sampled(pair.uncrowded), _sampled(pair.crowded.pair))
    if pair.shown < 1.0:
        return math.log1p(-pair.shown)
    below = dict(zip(pair.lower.shifts, pair.lower.weights, strict=True))
    same = math.fsum(min(weight, below.get(shift, 0.0)) for shift, weight in zip(pair.upper.shifts, pair.upper.weights, strict=True))
    return math.log(same) if same > 0.0 else -math.inf


def _log_of_any(log_same: Iterable[float]) -> float:
    """log(1 - the product), rounded up, of probabilities given by their logarithms."""
    total = math.fsum(log_same) * (1.0 + _SLACK)
    return min(math.log(-math.expm1(total)) + _SLACK, 0.0) if total < 0.0 else -math.inf
