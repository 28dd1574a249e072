r"""A finding: one printed statement of a paper next to what is proven about the same quantity, and how to check the difference by hand."""

from __future__ import annotations

import math
from typing import Literal, final

from zetadp.mechanisms import Step
from zetadp.mechanisms.base import Extended, Value
from zetadp.mechanisms.errata import Paper

Direction = Literal["overclaims", "loose", "equal", "differs", "does_not_apply"]
"""overclaims: the print promises more than holds. loose: it promises less. differs: no order makes one of them the larger promise,
or the print lies between the ends of a bracket that is too wide to judge it."""

Stronger = Literal["smaller", "larger", "neither"]
"""Which of two values of a quantity promises more: a smaller epsilon or sensitivity, a larger noise or probability of doing well."""

ROUNDING = 1e-12
"""Relative difference up to which two values count as equal: formulas of a few operations agree far more closely."""


@final
class Counterexample(Value):
    """The smallest case that refutes the print, step by step."""

    description: str
    steps: tuple[Step, ...]


@final
class PointComparison(Value):
    """The print's consequence at one epsilon or delta, next to the proven value; ``proven`` is an upper bound."""

    at: float
    printed: Extended
    proven: Extended
    ratio: Extended | None
    direction: Direction


@final
class Finding(Value):
    r"""One printed statement next to the proven one. Never a guarantee: those come from profiles and certificates.

    Attributes:
      quantity: the quantity of both values, with its unit.
      paper, where: the paper, and its theorem, equation or algorithm.
      printed, printed_formula: the statement at the given numbers; null if it doesn't cover them.
      proven, proven_formula: what holds; "Infinity" if there is no bound at all, null if what holds isn't a number.
      ratio: printed / proven; null if either is null or both are zero.
      direction: what the print means for a reader who relies on it.
      erratum: the row that proves it; ``GET /v1/errata/{row}``.
      derivation: from the request's numbers to ``proven``.
      counterexample: the smallest case that refutes the print, where one exists.
      delta, epsilon: consequences at the requested points, if the quantity has them.
    """

    quantity: str
    paper: Paper
    where: str
    printed: Extended | None
    printed_formula: str
    proven: Extended | None
    proven_formula: str
    ratio: Extended | None
    direction: Direction
    erratum: str
    note: str
    derivation: tuple[Step, ...]
    counterexample: Counterexample | None = None
    delta: tuple[PointComparison, ...] = ()
    epsilon: tuple[PointComparison, ...] = ()


def ratio_of(printed: float | None, proven: float | None) -> float | None:
    """printed / proven, 1 for two equal infinities, None if there is no such number.

    >>> ratio_of(1.0, float("inf")), ratio_of(2.0, 0.0), ratio_of(0.0, 0.0), ratio_of(None, 1.0)
    (0.0, inf, None, None)
    """
    if printed is None or proven is None or (printed == 0.0 and proven == 0.0):
        return None
    if math.isinf(printed) and math.isinf(proven):
        return math.copysign(1.0, printed) * math.copysign(1.0, proven)
    if proven == 0.0:
        return math.copysign(math.inf, printed)
    return printed / proven


def direction_of(printed: float | None, proven: float | None, stronger: Stronger) -> Direction:
    """What the print means for a reader who relies on it.

    >>> direction_of(1.0, 2.0, "smaller"), direction_of(1.0, 2.0, "larger"), direction_of(1.0, 1.0, "neither")
    ('overclaims', 'loose', 'equal')
    """
    if printed is None or proven is None:
        return "does_not_apply"
    if printed == proven or math.isclose(printed, proven, rel_tol=ROUNDING, abs_tol=0.0):
        return "equal"
    if stronger == "neither":
        return "differs"
    return "overclaims" if (printed < proven) == (stronger == "smaller") else "loose"


def compared_at(at: float, printed: float, proven: float) -> PointComparison:
    """A consequence at one point, for a quantity whose smaller values promise more (delta or epsilon)."""
    return PointComparison(
        at=at, printed=printed, proven=proven, ratio=ratio_of(printed, proven), direction=direction_of(printed, proven, "smaller")
    )


def finding(
    quantity: str,
    paper: Paper,
    where: str,
    *,
    printed: float | None,
    printed_formula: str,
    proven: float | None,
    proven_formula: str,
    stronger: Stronger,
    erratum: str,
    note: str,
    derivation: tuple[Step, ...] = (),
    counterexample: Counterexample | None = None,
    delta: tuple[PointComparison, ...] = (),
    epsilon: tuple[PointComparison, ...] = (),
) -> Finding:
    """A finding with its ratio and direction; ``stronger`` says which value would promise more."""
    return Finding(
        quantity=quantity,
        paper=paper,
        where=where,
        printed=printed,
        printed_formula=printed_formula,
        proven=proven,
        proven_formula=proven_formula,
        ratio=ratio_of(printed, proven),
        direction=direction_of(printed, proven, stronger),
        erratum=erratum,
        note=note,
        derivation=derivation,
        counterexample=counterexample,
        delta=delta,
        epsilon=epsilon,
    )
