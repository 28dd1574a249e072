r"""The SPOF paper's stabilised coefficients and Proposition 3 next to the correct ones: S10 to S12."""

from __future__ import annotations

import math

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.spof.setting import EXPANSION_PROOF, NOT_AT_A, NOT_FOR_NEGATIVE, PAPER, SpofComparison, printed_pair
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.cross_entropy import (
    affine_l1,
    coefficient_l1,
    coefficient_l1_with_constant,
)
from zetadp.mechanisms.published import spof as published


def findings(request: SpofComparison) -> tuple[Finding, ...]:
    """Every printed statement about the coefficients at z + c."""
    return *_stabilised_coefficients(request), *_stabilised_sensitivity(request), _third_line(request)


def _right_stabilised_print(x: float, c: float) -> tuple[float, float, float]:
    """The printed polynomial at z + c, expanded correctly: coefficients of 1 (beyond log 2), z and z^2 at a = 0."""
    alpha_2, alpha_3 = printed_pair(x, 0.0)
    return c * alpha_2 + c**2 * alpha_3, alpha_2 + 2.0 * c * alpha_3, alpha_3


def _stabilised_coefficients(request: SpofComparison) -> tuple[Finding, Finding]:
    """(31), split by what one record can move: the coefficient of z, and the constant."""
    n, c = request.dimension, request.stabilisation
    printed = [published.stabilised_coefficients(x, c) for x in (0.0, 1.0)]
    right = [_right_stabilised_print(x, c) for x in (0.0, 1.0)]
    names = (
        ("z", 1, "|1 + 2c|, from alpha_2 (1 + 2c)", "|1 - c|, from alpha_2 + 2 c alpha_3 = (1 - c) alpha_2", 1.0),
        ("1", 0, "c^2 / 2, from c^2 alpha_3", "|c - c^2 / 2|, from c alpha_2 + c^2 alpha_3", abs(c)),
    )
    return tuple(
        finding(
            f"l1 sensitivity of the coefficients of {symbol} in the printed loss at z + c, a = 0",
            PAPER,
            "Appendix D, (31)",
            printed=affine_l1(n, (printed[0][k],), (printed[1][k],)),
            printed_formula="n " + formula,
            proven=affine_l1(n, (right[0][k],), (right[1][k],)),
            proven_formula="n " + right_formula,
            stronger="smaller",
            erratum="S10",
            note="z + c was substituted wrongly. In the right loss c never meets x in the coefficient of z, only in the constant.",
            derivation=(
                Step(symbol="c", value=c, formula="given", source="a public constant"),
                Step(symbol="right loss", value=n * slope, formula="n |d/dx|", source=EXPANSION_PROOF),
                Step(
                    symbol="Delta", value=affine_l1(n, (right[0][k],), (right[1][k],)), formula="n " + right_formula, source=EXPANSION_PROOF
                ),
            ),
            counterexample=None if c == 0.0 else _wrong_expansion(c),
        )
        for symbol, k, formula, right_formula, slope in names
    )  # pyright: ignore[reportReturnType]


def _wrong_expansion(c: float) -> Counterexample:
    x, z = 1.0, 1.0
    constant, linear, quadratic = published.stabilised_coefficients(x, c)
    return Counterexample(
        description="One feature x = 1 at z = 1: (31) isn't (12) at z + c.",
        steps=(
            Step(
                symbol="(12) at z + c", value=published.loss(x, z + c), formula="log 2 + alpha_2 (z + c) + alpha_3 (z + c)^2", source="(12)"
            ),
            Step(
                symbol="(31) at z",
                value=math.log(2.0) + constant + linear * z + quadratic * z**2,
                formula="log 2 + c^2 alpha_3 + alpha_2 (1 + 2c) z + alpha_3 z^2",
                source="(31)",
            ),
        ),
    )


def _stabilised_sensitivity(request: SpofComparison) -> tuple[Finding, ...]:
    """(32), next to three quantities that it could be read as bounding."""
    n, c, at_origin = request.dimension, request.stabilisation, request.expansion_point == 0.0
    covered = at_origin and c >= 0.0
    printed = published.stabilised_sensitivity(n, c) if covered else None
    ends = [published.stabilised_coefficients(x, c) for x in (0.0, 1.0)]
    right = [_right_stabilised_print(x, c) for x in (0.0, 1.0)]
    readings = (
        ("all printed coefficients of (31), constant included", affine_l1(n, *ends), "n (|1 + 2c| + 1/2 + c^2/2)"),
        ("the printed loss at z + c, without its constant", affine_l1(n, right[0][1:], right[1][1:]), "n (|1 - c| + 1/2)"),
        ("the printed loss at z + c, with its constant", affine_l1(n, *right), "n (|1 - c| + 1/2 + |c - c^2/2|)"),
        ("the right loss at z + c, without its constant", coefficient_l1(n), "n, for every a and c"),
        ("the right loss at z + c, with its constant", coefficient_l1_with_constant(n, c), "n (1 + |c|), in powers of z"),
    )
    note = "A valid bound for a fixed c >= 0, tight only for the wrongly expanded coefficients."
    return tuple(
        finding(
            f"l1 sensitivity of {what}",
            PAPER,
            "Proposition 3 and (32)",
            printed=printed,
            printed_formula="3n/2 + n c (c/2 + 2), at a = 0",
            proven=proven,
            proven_formula=formula,
            stronger="smaller",
            erratum="S11",
            note=note if covered else NOT_FOR_NEGATIVE if at_origin else NOT_AT_A,
            derivation=(
                Step(symbol="c", value=c, formula="given", source="a public constant"),
                Step(symbol="Delta", value=proven, formula=formula, source=EXPANSION_PROOF),
            ),
        )
        for what, proven, formula in readings
    )


def _third_line(request: SpofComparison) -> Finding:
    c = request.stabilisation
    covered = c >= 0.0
    proven = published.stabilised_sensitivity(1, c) if covered else None
    return finding(
        "the numerator of (33) for one feature, at its largest",
        PAPER,
        "(33), third line",
        printed=published.third_line_of_33(c) if covered else None,
        printed_formula="2 (|alpha_2| + |alpha_3| + |c alpha_2| + c^2 |alpha_3|)",
        proven=proven,
        proven_formula="2 (|alpha_2| + |alpha_3| + 2 |c alpha_2| + c^2 |alpha_3|), the second line",
        stronger="neither",
        erratum="S12",
        note="|alpha_2 (1 + 2c)| has become |alpha_2| + |c alpha_2|; the conclusion of (33) stands." if covered else NOT_FOR_NEGATIVE,
        derivation=() if proven is None else (Step(symbol="second line", value=proven, formula="3/2 + 2c + c^2/2", source="(32)"),),
    )
