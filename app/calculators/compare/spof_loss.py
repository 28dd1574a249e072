r"""The SPOF paper's expansion and sensitivities beside the right ones: S1 to S3, S5, S6, S10 to S12, S25 and S26."""

from __future__ import annotations

import functools
import math

from app.calculators.compare.finding import Counterexample, Finding, finding
from app.calculators.compare.spof_setting import PAPER, SpofComparison
from mechanisms import Step
from mechanisms.cross_entropy import (
    Expansion,
    affine_l1,
    coefficient_l1,
    coefficient_l1_with_constant,
    derivative_bound,
    derivative_l1,
    loss,
    sigmoid,
    sigmoid_slope,
)
from mechanisms.published import spof as published

_PROOF = "proofs/cross_entropy.md"
_NOT_AT_A = "The paper's noise is for a = 0: expanded elsewhere, its (22) to (33) say nothing."
_NOT_FOR_NEGATIVE = "Proposition 3 takes c >= 0: (32) drops absolute values that a negative c needs."


def findings(request: SpofComparison) -> tuple[Finding, ...]:
    """Every printed statement on the loss and its coefficients, at these numbers."""
    return (
        _second_derivative(request),
        _quadratic_factor(request),
        _quadratic_coefficient(request),
        _coefficient_sensitivity(request),
        _coefficient_sensitivity_of_the_print(request),
        _summed_query(request),
        *_stabilised_coefficients(request),
        *_stabilised_sensitivity(request),
        _third_line(request),
        *_derivative_terms(request),
        _minimum(),
        _any_point(request),
    )


def _at(request: SpofComparison) -> tuple[Step, Step]:
    a = request.expansion_point
    return (
        Step(symbol="s", value=sigmoid(a), formula="1 / (1 + e^-a)", source=f"a = {a!r}"),
        Step(symbol="v", value=sigmoid_slope(a), formula="s (1 - s)", source="second derivative of log(1 + e^z) at a"),
    )


def _second_derivative(request: SpofComparison) -> Finding:
    a = request.expansion_point
    return finding(
        "second derivative of (1 - x) log(1 + e^z) at a, for x = 0",
        PAPER,
        "Section IV, f''_{j,i,2}",
        printed=published.second_derivatives(0.0, a)[1],
        printed_formula="-(1 - x) e^-a / (1 + e^-a)^2",
        proven=sigmoid_slope(a),
        proven_formula="(1 - x) s (1 - s)",
        stronger="neither",
        erratum="S1",
        note="log(1 + e^z) is convex, so its second derivative is positive.",
        derivation=_at(request),
    )


def _quadratic_factor(request: SpofComparison) -> Finding:
    a = request.expansion_point
    printed = published.second_derivatives(1.0, a)[0]
    return finding(
        "coefficient of (z - a)^2 in the expansion of x log(1 + e^-z), for x = 1",
        PAPER,
        "(9) beside (8)",
        printed=printed,
        printed_formula="x e^a / (1 + e^a)^2",
        proven=0.5 * sigmoid_slope(a),
        proven_formula="x s (1 - s) / 2",
        stronger="neither",
        erratum="S2",
        note="The 1/2 of Taylor's second term in (8) is lost in (9), and again in (43).",
        derivation=_at(request),
    )


def _quadratic_coefficient(request: SpofComparison) -> Finding:
    a, n = request.expansion_point, request.dimension
    at_zero, at_one = (published.quadratic_coefficient(x, a) for x in (0.0, 1.0))
    return finding(
        "l1 sensitivity of the coefficients of (z - a)^2 of one record",
        PAPER,
        "(11) and (12), alpha_3",
        printed=affine_l1(n, (at_zero,), (at_one,)),
        printed_formula="2 n s (1 - s) from alpha_3 = (2x - 1) s (1 - s), which is 0.5x - 0.25 at a = 0",
        proven=0.0,
        proven_formula="alpha_3 = s (1 - s) / 2 for every x: 1/8 at a = 0, and public",
        stronger="smaller",
        erratum="S3",
        note="S1 and S2 together make the second-order coefficient depend on the record: it needs no noise, and the print isn't the loss.",
        derivation=(*_at(request), Step(symbol="alpha_3", value=Expansion(a, 0.0).quadratic, formula="v / 2", source=_PROOF)),
        counterexample=_wrong_loss(),
    )


@functools.cache
def _wrong_loss() -> Counterexample:
    right = Expansion(0.0, 0.0)
    steps: list[Step] = []
    for x in (1.0, 0.0):
        steps += [
            Step(symbol=f"loss({x:g}, 2)", value=loss(x, 2.0), formula="log(1 + e^z) - x z", source="(6)"),
            Step(
                symbol=f"printed({x:g}, 2)", value=published.loss(x, 2.0), formula="log 2 + (0.5 - x) z + (0.5x - 0.25) z^2", source="(12)"
            ),
            Step(symbol=f"right({x:g}, 2)", value=right.value(x, 2.0), formula="log 2 + (0.5 - x) z + z^2 / 8", source=_PROOF),
        ]
    return Counterexample(
        description="One feature, expanded about 0, at z = 2: the print misses by more than the loss itself.", steps=tuple(steps)
    )


def _coefficient_sensitivity(request: SpofComparison) -> Finding:
    n, at_origin = request.dimension, request.expansion_point == 0.0
    return finding(
        "l1 sensitivity of a record's private coefficients, without stabilisation",
        PAPER,
        "Appendix B.I, (22) and (23)",
        printed=published.sensitivity(n) if at_origin else None,
        printed_formula="3n/2, at a = 0",
        proven=coefficient_l1(n),
        proven_formula="n, for every a: only the coefficient of z depends on x, with slope -1",
        stronger="smaller",
        erratum="S5",
        note="Right for the printed pair (alpha_2, alpha_3), which isn't the loss's; the right alpha_3 is public."
        if at_origin
        else _NOT_AT_A,
        derivation=(Step(symbol="Delta", value=coefficient_l1(n), formula="n |(s - 0) - (s - 1)|", source=_PROOF),),
    )


def _printed_pair(x: float, a: float) -> tuple[float, float]:
    return published.linear_coefficient(x, a), published.quadratic_coefficient(x, a)


def _coefficient_sensitivity_of_the_print(request: SpofComparison) -> Finding:
    n, a = request.dimension, request.expansion_point
    at_origin = a == 0.0
    proven = affine_l1(n, _printed_pair(0.0, a), _printed_pair(1.0, a))
    return finding(
        "l1 sensitivity of the printed pair (alpha_2, alpha_3) of one record",
        PAPER,
        "Appendix B.I, (22) and (23)",
        printed=published.sensitivity(n) if at_origin else None,
        printed_formula="3n/2, at a = 0",
        proven=proven,
        proven_formula="n (1 + 2 s (1 - s)), attained by x = (0, ..., 0) and (1, ..., 1)",
        stronger="smaller",
        erratum="S5",
        note="Twice the largest |alpha| is the largest difference here, since both coefficients are centred at a = 0."
        if at_origin
        else _NOT_AT_A + " There the constant log(1 + e^a) - a x depends on x as well, which adds n |a| where it is released.",
        derivation=(*_at(request), Step(symbol="Delta", value=proven, formula="n (1 + 2v)", source=_PROOF)),
    )


def _summed_query(request: SpofComparison) -> Finding:
    n, a = request.dimension, request.expansion_point
    at_origin = a == 0.0
    proven = affine_l1(n, (sum(_printed_pair(0.0, a)),), (sum(_printed_pair(1.0, a)),))
    return finding(
        "l1 sensitivity of the sums alpha_2 + alpha_3, one a feature",
        PAPER,
        "Proposition 2 and Appendix C.I",
        printed=published.sensitivity(n) if at_origin else None,
        printed_formula="3n/2, at a = 0",
        proven=proven,
        proven_formula="n |2 s (1 - s) - 1|, which is n/2 at a = 0: the two parts have opposite signs",
        stronger="smaller",
        erratum="S6",
        note="Proposition 2 holds for the sums, and they are even epsilon/3-DP. Algorithm 1 releases both parts instead."
        if at_origin
        else _NOT_AT_A,
        derivation=(*_at(request), Step(symbol="Delta", value=proven, formula="n |2v - 1|", source=_PROOF)),
    )


def _right_stabilised_print(x: float, c: float) -> tuple[float, float, float]:
    """The printed polynomial at z + c, expanded right: coefficients of 1 (beyond log 2), z and z^2 at a = 0."""
    alpha_2, alpha_3 = _printed_pair(x, 0.0)
    return c * alpha_2 + c**2 * alpha_3, alpha_2 + 2.0 * c * alpha_3, alpha_3


def _stabilised_coefficients(request: SpofComparison) -> tuple[Finding, Finding]:
    """(31), by what one record can move: the coefficient of z, and the constant."""
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
                Step(symbol="right loss", value=n * slope, formula="n |d/dx|", source=_PROOF),
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
    """(32), beside three quantities it could be read as a bound of."""
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
            note=note if covered else _NOT_FOR_NEGATIVE if at_origin else _NOT_AT_A,
            derivation=(
                Step(symbol="c", value=c, formula="given", source="a public constant"),
                Step(symbol="Delta", value=proven, formula=formula, source=_PROOF),
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
        note="|alpha_2 (1 + 2c)| has become |alpha_2| + |c alpha_2|; the conclusion of (33) stands." if covered else _NOT_FOR_NEGATIVE,
        derivation=() if proven is None else (Step(symbol="second line", value=proven, formula="3/2 + 2c + c^2/2", source="(32)"),),
    )


def _derivative_terms(request: SpofComparison) -> tuple[Finding, Finding]:
    a = request.expansion_point
    printed = published.sensitivity_term(a)
    beyond = "" if printed is not None else " Beyond floats here: it grows like 2 |a| e^|a|."
    bound, tight = derivative_bound(a), derivative_l1(a)
    printed_formula = "log(1 + e^a) + 2 [log(1 + e^-a)/log(1 + e^a) + 2 s (1 - s) + s]"
    derivation = (*_at(request), Step(symbol="tight (17)", value=tight, formula="log(2 + 2 cosh a) + 1 + 2v", source=_PROOF))
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
            derivation=(*derivation, Step(symbol="(18)", value=bound, formula="at x = 1 for a <= 0, x = 0 for a >= 0", source=_PROOF)),
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
    """Where the printed (58) is smallest, by golden section: it falls up to there and grows after it."""
    shrink = 0.5 * (math.sqrt(5.0) - 1.0)
    low, high = -5.0, 5.0
    while high - low > 1e-7:
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, right) if _term(left) < _term(right) else (left, high)
    return 0.5 * (low + high)


def _term(a: float) -> float:
    found = published.sensitivity_term(a)
    assert found is not None  # only asked within (-5, 5)
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
            Step(symbol="min of (18)", value=derivative_bound(0.0), formula="2 [log 2 + 1/2 + 1/4]", source=_PROOF),
        ),
    )


def _any_point(request: SpofComparison) -> Finding:
    n, a = request.dimension, request.expansion_point
    term = published.sensitivity_term(a)
    return finding(
        "l1 sensitivity of what a gradient sees of one record",
        PAPER,
        "(20) and Appendix H: the choice of a",
        printed=None if term is None else n * term,
        printed_formula="n Delta_SPOF(i) of (58), which depends on a",
        proven=coefficient_l1(n),
        proven_formula="n, for every a and c",
        stronger="smaller",
        erratum="S26",
        note="No choice of a lowers it: x enters the loss as -x z alone."
        + ("" if term is not None else " The print is beyond floats here."),
        derivation=(Step(symbol="Delta", value=coefficient_l1(n), formula="n |d(s + v (c - a) - x)/dx|", source=_PROOF),),
    )
