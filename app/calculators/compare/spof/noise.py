r"""What Algorithm 1's noise achieves and what it promises: S7 to S9, S13, S16 to S18."""

from __future__ import annotations

import math

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.spof.setting import PAPER, SpofComparison, printed_pair
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.cross_entropy import affine_l1, coefficient_l1
from zetadp.mechanisms.local import multiple_up, quotient_up
from zetadp.mechanisms.published import spof as published

_PROOF = "proofs/laplace.md"


def findings(request: SpofComparison) -> tuple[Finding, ...]:
    """Every printed statement about epsilon and about the noise's scale, at these numbers."""
    return (
        *_algorithm_1(request),
        _variance(request),
        _no_range(request),
        _private_maximum(request),
        *_private_constant(request),
        _repetition(request),
        _functional_mechanism(request),
        _parallel(request),
    )


def _covered(request: SpofComparison) -> bool:
    return request.expansion_point == 0.0 and request.stabilisation >= 0.0


_NOT_COVERED = "The printed scale is for a = 0 and c >= 0."


def printed_pair_l1(dimension: int) -> float:
    """l1 sensitivity of the 2n numbers that step 5 releases, alpha_2 and alpha_3 of (12)."""
    return affine_l1(dimension, printed_pair(0.0, 0.0), printed_pair(1.0, 0.0))


def algorithm_1_epsilon(request: SpofComparison) -> float | None:
    """The exact pure epsilon of the coefficients that one run of step 5 releases; None if the scale isn't printed."""
    if not _covered(request):
        return None
    scale = published.algorithm_1_scale(request.dimension, request.stabilisation, request.epsilon)
    return quotient_up(printed_pair_l1(request.dimension), scale)


def _algorithm_1(request: SpofComparison) -> tuple[Finding, Finding]:
    n, c, epsilon = request.dimension, request.stabilisation, request.epsilon
    covered = _covered(request)
    scale = published.algorithm_1_scale(n, c, epsilon) if covered else None
    readings = (
        ("alpha_2 and alpha_3 of (12), as printed", printed_pair_l1(n), "1.5 sqrt(2) epsilon / (1.5 + 2c + c^2/2)"),
        ("the right loss, whose alpha_3 is public", coefficient_l1(n), "sqrt(2) epsilon / (1.5 + 2c + c^2/2)"),
    )
    # 1.5 sqrt(2) = 1.5 + 2c + c^2/2.
    enough = -2.0 + math.sqrt(4.0 + 3.0 * (math.sqrt(2.0) - 1.0))
    note = (
        f"Each of 2n coefficients gets the noise of one. The printed pair is within epsilon only for c >= {enough:.6f}, c fixed and public."
    )
    found = [
        finding(
            f"pure epsilon of one release of {what}",
            PAPER,
            "Algorithm 1, step 5",
            printed=epsilon if covered else None,
            printed_formula="epsilon, with Lap(Delta-hat / (sqrt(2) epsilon)) on each coefficient",
            proven=None if scale is None else quotient_up(l1, scale),
            proven_formula=formula + ", attained",
            stronger="smaller",
            erratum="S7",
            note=note if covered else _NOT_COVERED,
            derivation=()
            if scale is None
            else (
                Step(symbol="Delta-hat", value=published.stabilised_sensitivity(n, c), formula="3n/2 + n c (c/2 + 2)", source="(32)"),
                Step(symbol="b", value=scale, formula="Delta-hat / (sqrt(2) epsilon)", source="Algorithm 1, step 5"),
                Step(symbol="l1", value=l1, formula="n sum |difference of the ends|", source="proofs/cross_entropy.md"),
                Step(symbol="epsilon'", value=quotient_up(l1, scale), formula="l1 / b", source=_PROOF),
            ),
            counterexample=None if scale is None or l1 / scale <= epsilon else _outputs_beyond(n, l1, scale, epsilon),
        )
        for what, l1, formula in readings
    ]
    return found[0], found[1]


def _outputs_beyond(dimension: int, l1: float, scale: float, epsilon: float) -> Counterexample:
    return Counterexample(
        description="Records x = (0, ..., 0) and (1, ..., 1): on the event that each output lies beyond both values, on x's side, "
        "the ratio of probabilities is e^(l1/b) exactly.",
        steps=(
            Step(symbol="log ratio", value=l1 / scale, formula="sum |difference| / b over the released numbers", source=_PROOF),
            Step(symbol="promised", value=epsilon, formula="epsilon", source="Algorithm 1"),
            Step(
                symbol="a feature's share",
                value=l1 / dimension / scale,
                formula="(|alpha_2 - alpha_2'| + |alpha_3 - alpha_3'|) / b",
                source="(12)",
            ),
        ),
    )


def _variance(request: SpofComparison) -> Finding:
    n, c, epsilon = request.dimension, request.stabilisation, request.epsilon
    covered = _covered(request)
    l1 = printed_pair_l1(n)
    scale = published.section_5_scale(n, c, epsilon) if covered else None
    kurtosis = _kurtosis_of_two_laplaces()
    return finding(
        "pure epsilon of one release of alpha_2 and alpha_3, by the variances of Section V",
        PAPER,
        "Section V, M_i = M_{i,1} + M_{i,2}",
        printed=epsilon if covered else None,
        printed_formula="epsilon, with Laplace noise of variance (Delta-hat / epsilon)^2 / 2 on each",
        proven=None if scale is None else quotient_up(l1, scale),
        proven_formula="3 epsilon / (1.5 + 2c + c^2/2), attained: 2 epsilon at c = 0",
        stronger="smaller",
        erratum="S8",
        note="Lap(d) has variance 2 d^2; two Laplace variables don't add to one; and a budget is split by adding epsilons, not variances."
        if covered
        else _NOT_COVERED,
        derivation=()
        if scale is None
        else (
            Step(symbol="d", value=scale, formula="Delta-hat / (2 epsilon), from 2 d^2 = (Delta-hat / epsilon)^2 / 2", source="Section V"),
            Step(symbol="epsilon'", value=quotient_up(l1, scale), formula="l1 / d, l1 = 1.5 n", source=_PROOF),
        ),
        counterexample=Counterexample(
            description="The sum of two independent Laplace variables isn't a Laplace variable, whatever its scale: fourth moments differ.",
            steps=(
                Step(symbol="kurtosis of a sum", value=kurtosis, formula="3 + (6 - 3)/2", source="E X^4 / (E X^2)^2, moments add"),
                Step(symbol="kurtosis of Laplace", value=6.0, formula="24 d^4 / (2 d^2)^2", source="moments of the exponential"),
            ),
        ),
    )


def _kurtosis_of_two_laplaces() -> float:
    """E (X + Y)^4 / (E (X + Y)^2)^2 for independent Laplace variables of scale 1, from E X^2 = 2 and E X^4 = 24."""
    second, fourth = math.factorial(2), math.factorial(4)
    return (2.0 * fourth + 6.0 * second**2) / (2.0 * second) ** 2


def _no_range(request: SpofComparison) -> Finding:
    far = 1e6
    move = abs(published.linear_coefficient(0.0, 0.0) - published.linear_coefficient(far, 0.0))
    return finding(
        "l1 sensitivity in the sense of Definition 2, a maximum over R^{m x n}",
        PAPER,
        "Definition 2 beside (23)",
        printed=published.sensitivity(request.dimension),
        printed_formula="3n/2",
        proven=math.inf,
        proven_formula="infinite: |alpha_2 - alpha_2'| = |x - x'|",
        stronger="smaller",
        erratum="S9",
        note="Features must be brought into [0, 1] by numbers that don't depend on the data; the mechanism here refuses records outside.",
        counterexample=Counterexample(
            description="One feature, x = 0 and x' = 1e6.",
            steps=(Step(symbol="|alpha_2 - alpha_2'|", value=move, formula="|(0.5 - x) - (0.5 - x')|", source="(12)"),),
        ),
    )


def _private_maximum(request: SpofComparison) -> Finding:
    n, m = request.dimension, request.users
    everyone = m * printed_pair_l1(n)
    others = [u / max(u, largest) for u, largest in ((1.0, 1e9), (1.0, 0.0))]
    return finding(
        "l1 sensitivity of all users' coefficients, columns divided by their own maximum",
        PAPER,
        "Section VIII, normalisation",
        printed=published.sensitivity(n),
        printed_formula="3n/2: one user's",
        proven=everyone,
        proven_formula="3 n m / 2, the least upper bound: one user's record sets everybody's scale",
        stronger="smaller",
        erratum="S9",
        note="Dividing by the private column maximum is itself a release. Divide by public bounds instead.",
        derivation=(
            Step(symbol="m", value=float(m), formula="given", source="users"),
            Step(symbol="Delta", value=everyone, formula="m n (1 + 1/2)", source="each normalised feature moves by up to 1"),
        ),
        counterexample=None
        if m == 1
        else Counterexample(
            description="One column: every other user has 1, one user has 1e9 in D and 0 in D'.",
            steps=(
                Step(symbol="others in D", value=others[0], formula="1 / 1e9", source="Section VIII"),
                Step(symbol="others in D'", value=others[1], formula="1 / 1", source="Section VIII"),
                Step(
                    symbol="moved in all",
                    value=(m - 1) * (others[1] - others[0]) + 1.0,
                    formula="(m - 1) (1 - 1e-9) + 1",
                    source="of m features",
                ),
            ),
        ),
    )


def _private_constant(request: SpofComparison) -> tuple[Finding, Finding]:
    """S13: c_j = sum of c h_r(x) in the noise's scale."""
    n, c, units, epsilon = request.dimension, request.stabilisation, request.hidden_units, request.epsilon
    covered, depends = _covered(request), request.stabilisation > 0.0
    bound = published.stabilised_sensitivity(n, c * units) if covered else None
    note = "c_j = c_j^T h(x) lies in (0, c l) and depends on the record. It can't be sent here: stabilisation is a public number."
    return (
        finding(
            "a scale times epsilon that holds for every record, c_j bounded by c l",
            PAPER,
            "Algorithm 1, step 5, c_j = c_j^T h_j",
            printed=None,
            printed_formula="3n/2 + n c_j (c_j/2 + 2), another number for each record",
            proven=bound,
            proven_formula="3n/2 + n c_max (c_max/2 + 2), c_max = c l",
            stronger="smaller",
            erratum="S13",
            note=note if covered else _NOT_COVERED,
            derivation=()
            if bound is None
            else (
                Step(symbol="c_max", value=c * units, formula="c l, since every h_r(x) is in (0, 1)", source="Section III"),
                Step(symbol="Delta-hat", value=bound, formula="3n/2 + n c_max (c_max/2 + 2)", source="(32)"),
            ),
        ),
        finding(
            "pure epsilon of one release whose scale is computed with c_j",
            PAPER,
            "Algorithm 1, step 5, c_j = c_j^T h_j",
            printed=epsilon if covered and depends else None,
            printed_formula="epsilon",
            proven=math.inf if covered and depends else None,
            proven_formula="infinite: the log-ratio of two Laplace densities of different scales grows without bound",
            stronger="smaller",
            erratum="S13",
            note=note if covered and depends else "No dependence at c = 0." if covered else _NOT_COVERED,
            # With one feature, records that share its value are one record.
            counterexample=_two_scales(request) if covered and depends and n > 1 else None,
        ),
    )


def _two_scales(request: SpofComparison) -> Counterexample:
    n, c, units, epsilon = request.dimension, request.stabilisation, request.hidden_units, request.epsilon
    # Codes whose entries sum to l/14 and 13 l/14: 0.5 and 6.5 for the paper's l = 7.
    sums = [units / 14.0, 13.0 * units / 14.0]
    small, large = (published.algorithm_1_scale(n, c * total, epsilon) for total in sums)
    points = [10.0**power * large for power in (1, 2, 3)]
    formula = "log(b'/b) - |q| (1/b - 1/b')"
    return Counterexample(
        description="Two records with the same feature value (so the same alpha_2 = 0) whose codes sum to l/14 and 13 l/14, one output q.",
        steps=(
            Step(symbol="b", value=small, formula="Delta-hat(c l/14) / (sqrt(2) epsilon)", source="Algorithm 1, step 5"),
            Step(symbol="b'", value=large, formula="Delta-hat(13 c l/14) / (sqrt(2) epsilon)", source="Algorithm 1, step 5"),
            *(
                Step(
                    symbol=f"log ratio at q = {q / large:g} b'",
                    value=scale_log_ratio(small, large, q),
                    formula=formula,
                    source="densities of Lap(b) and Lap(b')",
                )
                for q in points
            ),
        ),
    )


def scale_log_ratio(first: float, second: float, q: float) -> float:
    """log of the density of Lap(first) over that of Lap(second) at q.

    >>> round(scale_log_ratio(14.0, 28.0, 1e4), 1)
    -356.4
    """
    return math.log(second / first) - abs(q) * (1.0 / first - 1.0 / second)


def _repetition(request: SpofComparison) -> Finding:
    once = algorithm_1_epsilon(request)
    count = request.releases * request.rows_per_user
    total = None if once is None else multiple_up(count, once)
    return finding(
        "pure epsilon of one user over the whole training, of the coefficients alone",
        PAPER,
        "Algorithm 1",
        printed=request.epsilon if once is not None else None,
        printed_formula="epsilon, once for all passes and rows",
        proven=total,
        proven_formula="T k l1 / b, attained: fresh noise is drawn at each pass for each row",
        stronger="smaller",
        erratum="S16",
        note="Basic composition is tight for Laplace noise of a fixed scale. One release of a row for all epochs costs its epsilon once."
        if once is not None
        else _NOT_COVERED,
        derivation=()
        if once is None or total is None
        else (
            Step(symbol="epsilon'", value=once, formula="of one release", source="S7"),
            Step(symbol="T", value=float(request.releases), formula="given", source="releases"),
            Step(symbol="k", value=float(request.rows_per_user), formula="given", source="rows_per_user"),
            Step(symbol="epsilon of the user", value=total, formula="T k epsilon'", source="basic composition, attained"),
        ),
    )


def _functional_mechanism(request: SpofComparison) -> Finding:
    n, m, epsilon = request.dimension, request.users, request.epsilon
    return functional_mechanism_difference(n, m, epsilon)


def functional_mechanism_difference(n: int, m: int, epsilon: float) -> Finding:
    """S17: SPOF at m = 1, c = 0 next to the functional mechanism, to which the paper says it is equal."""
    scale = published.algorithm_1_scale(n, 0.0, epsilon)
    central = published.functional_mechanism_scale(n, epsilon)
    return finding(
        "Laplace scale of the noise on each coefficient, at m = 1 and c = 0",
        PAPER,
        "Section V, after Algorithm 1: SPOF reduces to FM",
        printed=scale,
        printed_formula="SPOF's, 3n / (2 sqrt(2) epsilon), drawn anew for each record and pass",
        proven=central,
        proven_formula="the functional mechanism's, 3n / (2 epsilon), drawn once for the sum over all records",
        stronger="neither",
        erratum="S17",
        note="The functional mechanism perturbs sums over all records, once, with a trusted curator. SPOF perturbs each record's "
        "own, with less noise, at every pass. They differ already for one record, by sqrt(2) in scale.",
        derivation=(
            Step(
                symbol="SPOF, m records",
                value=2.0 * m * scale**2,
                formula="2 m b^2, variance of the noise in the sum",
                source="Algorithm 1, step 5",
            ),
            Step(symbol="FM, m records", value=2.0 * central**2, formula="2 b^2", source="Zhang et al. 2012, Algorithm 1"),
            Step(symbol="b of FM", value=central, formula="3n / (2 epsilon)", source="(23)"),
        ),
    )


def _parallel(request: SpofComparison) -> Finding:
    once = algorithm_1_epsilon(request)
    total = None if once is None else multiple_up(request.rows_per_user, once)
    return finding(
        "pure epsilon of one user's coefficients when all users release once",
        PAPER,
        "Section V, parallel composition",
        printed=once,
        printed_formula="the epsilon of one release",
        proven=total,
        proven_formula="k times that of one release, k rows of the user; other users' releases add nothing",
        stronger="smaller",
        erratum="S18",
        note="Right across users with one row each, under replace_one. Not across epochs or a user's rows, nor for the codes h_j(x_j)."
        if once is not None
        else _NOT_COVERED,
        derivation=()
        if total is None
        else (Step(symbol="epsilon of the user", value=total, formula="k l1 / b, rounded up", source=_PROOF),),
    )
