r"""How the SPOF paper's sensitivity depends on the expansion point, and how it doesn't: S25 and S26."""

from __future__ import annotations

import functools
import math

from zetadp.app.calculators.compare.finding import Finding, finding
from zetadp.app.calculators.compare.spof.setting import EXPANSION_PROOF, PAPER, SpofComparison, at_point
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.cross_entropy import (
    coefficient_l1,
    derivative_bound,
    derivative_l1,
)
from zetadp.mechanisms.published import spof as published


def findings(request: SpofComparison) -> tuple[Finding, ...]:
    """Every printed statement about the choice of a."""
    return *_derivative_terms(request), _minimum(), _any_point(request)


def _derivative_terms(request: SpofComparison) -> tuple[Finding, Finding]:
    a = request.expansion_point
    printed = published.sensitivity_term(a)
    beyond = "" if printed is not None else " Beyond floats here: it grows like 2 |a| e^|a|."
    bound, tight = derivative_bound(a), derivative_l1(a)
    printed_formula = "log(1 + e^a) + 2 [log(1 + e^-a)/log(1 + e^a) + 2 s (1 - s) + s]"
    derivation = (*at_point(a), Step(symbol="(17)", value=tight, formula="log(2 + 2 cosh a) + 1 + 2v", source=EXPANSION_PROOF))
    return (
        finding(
            "the triangle bound (18) of the six derivatives of one feature",
            PAPER,
            "Appendix H, (57) to (58)",
            printed=printed,
            printed_formula=printed_formula,
            proven=bound,
            proven_formula="2 [log(1 + e^|a|) + sigmoid(|a|) + s (1 - s)]",
            stronger="neither",
            erratum="S25",
            note="A sum became a quotient, 1 - x became 1 + x, a factor 2 was lost. (19) then doubles it once more." + beyond,
            derivation=(
                *derivation,
                Step(symbol="(18)", value=bound, formula="at x = 1 for a <= 0, x = 0 for a >= 0", source=EXPANSION_PROOF),
            ),
        ),
        finding(
            "the largest move of the six derivatives of one feature",
            PAPER,
            "(17) beside Appendix H, (58)",
            printed=printed,
            printed_formula=printed_formula,
            proven=tight,
            proven_formula="log(2 + 2 cosh a) + 1 + 2 s (1 - s)",
            stronger="smaller",
            erratum="S25",
            note="Still an upper bound of (17), by luck; but the loss doesn't need these six numbers at all (S26)." + beyond,
            derivation=derivation,
        ),
    )


@functools.cache
def _minimum_of_58() -> float:
    """The minimum of the printed (58), by golden section: it falls before this point and grows after it."""
    shrink = 0.5 * (math.sqrt(5.0) - 1.0)
    low, high = -5.0, 5.0
    while high - low > 1e-7:
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, right) if _term(left) < _term(right) else (left, high)
    return 0.5 * (low + high)


def _term(a: float) -> float:
    found = published.sensitivity_term(a)
    assert found is not None  # only called within (-5, 5)
    return found


@functools.cache
def _minimum() -> Finding:
    at = _minimum_of_58()
    return finding(
        "the least value over a of the triangle bound (18) of one feature",
        PAPER,
        "Appendix H, after (66)",
        printed=published.PRINTED_MINIMUM,
        printed_formula=f"stated as the minimum of (58), at a = {published.PRINTED_MINIMISER}",
        proven=derivative_bound(0.0),
        proven_formula="2 log 2 + 3/2, at a = 0",
        stronger="neither",
        erratum="S25",
        note="The printed (58) is smallest near a = 0.9; the bound itself is even and increases with |a|: a = 0 is optimal.",
        derivation=(
            Step(symbol="argmin of (58)", value=at, formula="golden section over (-5, 5)", source="the printed expression"),
            Step(symbol="min of (58)", value=_term(at), formula="(58) there", source="the printed expression"),
            Step(symbol="(58) at 0", value=_term(0.0), formula="log 2 + 2 [1 + 1/2 + 1/2]", source="the printed expression"),
            Step(symbol="min of (18)", value=derivative_bound(0.0), formula="2 [log 2 + 1/2 + 1/4]", source=EXPANSION_PROOF),
        ),
    )


def _any_point(request: SpofComparison) -> Finding:
    n, a = request.dimension, request.expansion_point
    term = published.sensitivity_term(a)
    return finding(
        "l1 sensitivity of what a gradient sees of one record",
        PAPER,
        "(19), (20) and Appendix H, (58): the choice of a",
        printed=None if term is None else 2.0 * n * term,
        printed_formula="2 sum of Delta_SPOF(i), (19), each as in (58): it depends on a",
        proven=coefficient_l1(n),
        proven_formula="n, for every a and c",
        stronger="smaller",
        erratum="S26",
        note="No choice of a lowers it: x enters the loss as -x z alone."
        + ("" if term is not None else " The print is beyond floats here."),
        derivation=(Step(symbol="Delta", value=coefficient_l1(n), formula="n |d(s + v (c - a) - x)/dx|", source=EXPANSION_PROOF),),
    )
