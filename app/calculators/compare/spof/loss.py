r"""The SPOF paper's expansion and its sensitivities next to the correct ones: S1 to S3, S5 and S6."""

from __future__ import annotations

import functools

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.spof.setting import EXPANSION_PROOF, NOT_AT_A, PAPER, SpofComparison, at_point, printed_pair
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.cross_entropy import (
    Expansion,
    affine_l1,
    coefficient_l1,
    loss,
    sigmoid_slope,
)
from zetadp.mechanisms.published import spof as published


def findings(request: SpofComparison) -> tuple[Finding, ...]:
    """Every printed statement about the coefficients without stabilisation, at these numbers."""
    return (
        _second_derivative(request),
        _quadratic_factor(request),
        _quadratic_coefficient(request),
        _coefficient_sensitivity(request),
        _coefficient_sensitivity_of_the_print(request),
        _summed_query(request),
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
        derivation=at_point(request.expansion_point),
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
        derivation=(*at_point(a), Step(symbol="coefficient", value=0.5 * sigmoid_slope(a), formula="v / 2", source="Taylor's formula")),
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
        derivation=(
            *at_point(request.expansion_point),
            Step(symbol="alpha_3", value=Expansion(a, 0.0).quadratic, formula="v / 2", source=EXPANSION_PROOF),
            Step(symbol="Delta", value=0.0, formula="n |d alpha_3 / dx|", source=EXPANSION_PROOF),
        ),
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
            Step(symbol=f"right({x:g}, 2)", value=right.value(x, 2.0), formula="log 2 + (0.5 - x) z + z^2 / 8", source=EXPANSION_PROOF),
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
        else NOT_AT_A,
        derivation=(Step(symbol="Delta", value=coefficient_l1(n), formula="n |(s - 0) - (s - 1)|", source=EXPANSION_PROOF),),
    )


def _coefficient_sensitivity_of_the_print(request: SpofComparison) -> Finding:
    n, a = request.dimension, request.expansion_point
    at_origin = a == 0.0
    proven = affine_l1(n, printed_pair(0.0, a), printed_pair(1.0, a))
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
        else NOT_AT_A + " There the constant log(1 + e^a) - a x depends on x as well, which adds n |a| where it is released.",
        derivation=(*at_point(request.expansion_point), Step(symbol="Delta", value=proven, formula="n (1 + 2v)", source=EXPANSION_PROOF)),
    )


def _summed_query(request: SpofComparison) -> Finding:
    n, a = request.dimension, request.expansion_point
    at_origin = a == 0.0
    proven = affine_l1(n, (sum(printed_pair(0.0, a)),), (sum(printed_pair(1.0, a)),))
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
        else NOT_AT_A,
        derivation=(*at_point(request.expansion_point), Step(symbol="Delta", value=proven, formula="n |2v - 1|", source=EXPANSION_PROOF)),
    )
