r"""The SPOF paper's DP-SGD with Laplace noise (Algorithm 2) next to what is proven: S27 to S31."""

from __future__ import annotations

import math
from typing import Annotated, final

from fastapi import APIRouter
from pydantic import Field

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.spof import attack as spof_attack
from zetadp.app.calculators.compare.spof.setting import PAPER, EpsilonParameter, laplace_for
from zetadp.app.calculators.proofs import path_of
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Laplace, Step
from zetadp.mechanisms.analysis.clipped_box import l1_diameter
from zetadp.mechanisms.analysis.cross_entropy import sigmoid
from zetadp.mechanisms.base import Count, Extended, Number, Value
from zetadp.mechanisms.local import Dimension, multiple_up, quotient_up
from zetadp.mechanisms.published import spof as published
from zetadp.mechanisms.spof_coefficients import ExpansionPoint

_PROOF = "proofs/clipped_box.md"
_ROUNDING = 1e-14
"""Relative error of the diameter, of a few operations, none of which cancels more than a factor of 3."""


@final
class DpSgdLaplaceComparison(Value):
    r"""The numbers of one use of Algorithm 2.

    Attributes:
      dimension: n, features in a record, each in [0, 1].
      expansion_point: a, where the derivative s - x with respect to z is evaluated, s = sigmoid(a); |a| <= 1e6.
      clipping_bound: C > 0, on the l2 norm of that derivative.
      epsilon: the epsilon given to Algorithm 2.
      releases: T, the number of times that noise is drawn for the same record.
      environment_factor: b_j of (27), taken as a fixed public number > 0. It isn't one: the paper's depends on the record (errata S21).
    """

    model_config = example(
        {"dimension": 14, "expansion_point": -2.0, "clipping_bound": 1.0, "epsilon": 1.0, "releases": 100, "environment_factor": 7.0}
    )

    dimension: Dimension
    expansion_point: ExpansionPoint
    clipping_bound: Annotated[Number, Field(ge=1e-20, le=1e20)]
    epsilon: EpsilonParameter
    releases: Count = 1
    environment_factor: Annotated[Number, Field(ge=1e-20, le=1e20)] = 1.0


@final
class DpSgdLaplaceAnswer(Value):
    """What holds for the clipped derivative with respect to z, then what the paper prints.

    Attributes:
      below, above: the derivative's features are in [-below, above] = [s - 1, s].
      l1: the exact l1 diameter of the clipped derivative, replacing one record.
      mechanism: Laplace noise of one fixed scale for the requested epsilon, on the clipped derivative. Each user releases its own, so
        sampling users amplifies nothing: count whole releases.
      epsilon, total_epsilon: its pure epsilon for one release and for T, both attained.
      algorithm_epsilon: Algorithm 2 as a whole.
    """

    below: float
    above: float
    l1: float
    mechanism: Laplace
    epsilon: Extended
    total_epsilon: Extended
    algorithm_epsilon: Extended
    derivation: tuple[Step, ...]
    proof: str
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/dp_sgd_laplace", summary="Compare the SPOF paper's DP-SGD with Laplace noise with what is proved")
def compare_dp_sgd_laplace(request: DpSgdLaplaceComparison) -> DpSgdLaplaceAnswer:
    """The exact sensitivity of the clipped derivative at any point, next to the printed branches.

    Epsilons are pure ones. For one at a delta over many releases send a repeated release of ``mechanism`` to ``POST /v1/profiles``.
    """
    a = request.expansion_point
    diameter = _diameter(request)
    mechanism = laplace_for(diameter, request.epsilon)
    epsilon = mechanism.privacy_loss().epsilon
    return DpSgdLaplaceAnswer(
        below=sigmoid(-a),
        above=sigmoid(a),
        l1=diameter,
        mechanism=mechanism,
        epsilon=epsilon,
        total_epsilon=multiple_up(request.releases, epsilon),
        algorithm_epsilon=spof_attack.ALGORITHM_EPSILON,
        derivation=(*_steps(request, diameter), *mechanism.derivation()),
        proof=path_of("clipped_box.md"),
        published=(
            _whole(request),
            _unclipped(request),
            _epsilon_of_first_branch(request, diameter),
            _clipped(request, diameter),
            _epsilon_of_second_branch(request, diameter),
            _branch(request, diameter),
            *_environment(request, diameter),
        ),
    )


def _diameter(request: DpSgdLaplaceComparison) -> float:
    """An upper bound: noise mustn't be scaled by a number that is too small by a rounding. Never above n, the diameter's maximum."""
    a, n = request.expansion_point, request.dimension
    return min(float(n), l1_diameter(n, sigmoid(-a), sigmoid(a), request.clipping_bound) * (1.0 + _ROUNDING))


def _steps(request: DpSgdLaplaceComparison, diameter: float) -> tuple[Step, ...]:
    n, bound = request.dimension, request.clipping_bound
    return (
        Step(symbol="s", value=sigmoid(request.expansion_point), formula="1 / (1 + e^-a)", source="g = s - x in [s - 1, s]^n"),
        Step(symbol="k", value=float(n // 2), formula="floor(n / 2)", source=_PROOF),
        Step(symbol="ball", value=2.0 * math.sqrt(n) * bound, formula="2 sqrt(n) C", source="l1 <= sqrt(n) l2"),
        Step(symbol="D", value=diameter, formula="H(k, n - k) + H(n - k, k) <= min(n, 2 sqrt(n) C), rounded up", source=_PROOF),
    )


def _unclipped(request: DpSgdLaplaceComparison) -> Finding:
    n, a = request.dimension, request.expansion_point
    s = sigmoid(a)
    printed = published.unclipped_gradient_sensitivity(n, a)
    return finding(
        "l1 sensitivity of the derivative by z, unclipped",
        PAPER,
        "Appendix H, (65), and (26), first branch",
        printed=printed,
        printed_formula="n 2 e^a / (1 + e^a), which is n at a = 0",
        proven=float(n),
        proven_formula="n, for every a: |g - g'| = |x - x'|",
        stronger="smaller",
        erratum="S27",
        note="2 max |s - x| is 2 max(s, 1 - s): the print forgets x = 1, and is too small for every a < 0.",
        derivation=(
            Step(symbol="triangle bound", value=n * 2.0 * max(s, sigmoid(-a)), formula="2 n max(s, 1 - s)", source="(65) made right"),
            Step(symbol="Delta", value=float(n), formula="n (s - (s - 1))", source=_PROOF),
        ),
        counterexample=None
        if a >= 0.0
        else Counterexample(
            description="One feature, x = 0 and x' = 1.",
            steps=(
                Step(symbol="|g - g'|", value=1.0, formula="|s - (s - 1)|", source="g = s - x"),
                Step(symbol="printed", value=printed / n, formula="2 e^a / (1 + e^a)", source="(65)"),
            ),
        ),
    )


def _quotient(value: float, scale: float) -> float:
    """value / scale, infinite if the scale is 0 or the quotient exceeds the range of floats: an upper bound in either case."""
    return quotient_up(value, scale) if scale > 0.0 and value / scale < math.inf else math.inf


def _fixed_scale(request: DpSgdLaplaceComparison, diameter: float, printed: float, where: str, formula: str, erratum: str) -> Finding:
    """The epsilon of T releases if the scale of this branch were used for every record."""
    scale = printed / request.epsilon
    once = _quotient(diameter, scale)
    total = multiple_up(request.releases, once)
    return finding(
        f"pure epsilon of T releases of the clipped derivative with the scale of {where} for every record",
        PAPER,
        "Algorithm 2, step 6",
        printed=request.epsilon,
        printed_formula="epsilon",
        proven=total,
        proven_formula=formula,
        stronger="smaller",
        erratum=erratum,
        note="Exact: Laplace noise of a fixed scale attains l1 / b at each release. Chosen by the record's own norm it is worse (S29)."
        + (" Beyond floats here." if math.isinf(once) else ""),
        derivation=(
            Step(symbol="b", value=scale, formula=f"{where} of (26) / epsilon", source="Algorithm 2, step 6"),
            Step(symbol="D", value=diameter, formula="exact l1 diameter, rounded up", source=_PROOF),
            Step(symbol="epsilon'", value=once, formula="D / b, for one release", source="proofs/laplace.md"),
            Step(symbol="T epsilon'", value=total, formula="basic composition, attained", source=_PROOF),
        ),
    )


def _epsilon_of_first_branch(request: DpSgdLaplaceComparison, diameter: float) -> Finding:
    printed = published.unclipped_gradient_sensitivity(request.dimension, request.expansion_point)
    return _fixed_scale(request, diameter, printed, "the first branch", "T epsilon D (1 + e^-a) / (2n)", "S27")


def _epsilon_of_second_branch(request: DpSgdLaplaceComparison, diameter: float) -> Finding:
    printed = published.clipped_gradient_sensitivity(request.dimension, request.clipping_bound)
    return _fixed_scale(request, diameter, printed, "the second branch", "T epsilon D / (2 n C)", "S28")


def _clipped(request: DpSgdLaplaceComparison, diameter: float) -> Finding:
    n, bound = request.dimension, request.clipping_bound
    return finding(
        "l1 sensitivity of the clipped derivative by z",
        PAPER,
        "(26), second branch",
        printed=published.clipped_gradient_sensitivity(n, bound),
        printed_formula="2 n C",
        proven=diameter,
        proven_formula="the l1 diameter of the box cut by the ball; min(n, 2 sqrt(n) C) at a = 0",
        stronger="smaller",
        erratum="S28",
        note="2C a coordinate can't hold in all n coordinates of a vector of l2 norm C, nor can a coordinate move by more than 1.",
        derivation=_steps(request, diameter),
    )


def _branch(request: DpSgdLaplaceComparison, diameter: float) -> Finding:
    n, a, bound, epsilon = request.dimension, request.expansion_point, request.clipping_bound, request.epsilon
    longest = math.sqrt(n) * max(sigmoid(a), sigmoid(-a))
    first, second = (published.gradient_sensitivity(n, a, bound, norm) / epsilon for norm in (0.0, math.inf))
    # The norm takes every value from 0, at x = s, to that of the farther corner.
    reached = longest >= bound and first != second
    proven = math.inf if reached else _quotient(diameter, first)
    return finding(
        "pure epsilon of one release whose scale is chosen by the record's own gradient norm",
        PAPER,
        "Algorithm 2, step 6, with (26) or (27)",
        printed=epsilon,
        printed_formula="epsilon, scale n 2s / epsilon where ||g|| < C and 2 n C / epsilon elsewhere",
        proven=proven,
        proven_formula="infinite: the log-ratio of two Laplace densities of different scales grows without bound"
        if reached
        else "epsilon D / (2 n s): every record takes the first branch"
        if longest < bound
        else "epsilon D / (2 n s): both branches have the same scale",
        stronger="smaller",
        erratum="S29",
        note="The scale must be one public number. Which of the two was drawn tells whether the record's norm reaches C.",
        derivation=(
            Step(symbol="largest ||g||", value=longest, formula="sqrt(n) max(s, 1 - s)", source="g in [s - 1, s]^n"),
            Step(symbol="C", value=bound, formula="given", source="clipping_bound"),
            Step(
                symbol="epsilon'",
                value=proven,
                formula="sup over q of the log ratio of two scales" if reached else "D / b, b of the first branch",
                source=_PROOF,
            ),
        ),
        counterexample=_two_branches(n, a, bound, (first, second)) if reached else None,
    )


def _two_branches(n: int, a: float, bound: float, scales: tuple[float, float]) -> Counterexample:
    # At the corner every clipped feature is the same.
    corner = min(max(sigmoid(a), sigmoid(-a)), bound / math.sqrt(n))
    points = [10.0**power * max(scales) for power in (1, 2, 3)]

    def log_ratio(q: float) -> float:
        if scales[0] == 0.0:
            return -math.inf
        return math.log(scales[1]) - math.log(scales[0]) - q / scales[0] + abs(q - corner) / scales[1]

    return Counterexample(
        description="Records with g = 0 and with g at the farther corner, one feature's output q (a corner's sign taken positive).",
        steps=(
            Step(symbol="b", value=scales[0], formula="2 n s / epsilon, at ||g|| = 0 < C", source="(26)"),
            Step(symbol="b'", value=scales[1], formula="2 n C / epsilon, at ||g'|| >= C", source="(26)"),
            *(
                Step(
                    symbol=f"log ratio at q = {power} b_max",
                    value=log_ratio(q),
                    formula="log(b'/b) - |q| / b + |q - g'| / b'",
                    source="densities of Lap(b) about 0 and Lap(b') about the clipped g'",
                )
                for power, q in zip((10, 100, 1000), points, strict=True)
            ),
        ),
    )


def _environment(request: DpSgdLaplaceComparison, diameter: float) -> tuple[Finding, Finding]:
    n, a, bound, factor = request.dimension, request.expansion_point, request.clipping_bound, request.environment_factor
    one = factor * (min(sigmoid(a), bound) + min(sigmoid(-a), bound))
    total = factor * diameter
    printed = published.noisy_gradient_sensitivity(n, a, bound, factor, math.inf)
    note = "g / max(1, ||g||/C) has norm at most C, and b_j times it has b_j C. Clip b_j g itself, or put b_j in both branches."
    step = Step(symbol="b", value=factor, formula="given, as if public", source="environment_factor")
    return (
        finding(
            "the largest move of one feature of b_j times the clipped derivative",
            PAPER,
            "(27), second branch",
            printed=printed / n,
            printed_formula="2C",
            proven=one,
            proven_formula="b [min(s, C) + min(1 - s, C)], which is 2 b C for C <= min(s, 1 - s)",
            stronger="smaller",
            erratum="S30",
            note=note,
            derivation=(
                step,
                Step(symbol="triangle bound", value=2.0 * factor * bound, formula="2 b C", source="(25)"),
                Step(symbol="largest move", value=one, formula="b [min(s, C) + min(1 - s, C)]", source=_PROOF),
            ),
        ),
        finding(
            "l1 sensitivity of b_j times the clipped derivative",
            PAPER,
            "(27), second branch",
            printed=printed,
            printed_formula="2 n C",
            proven=total,
            proven_formula="b D, D the exact l1 diameter without b",
            stronger="smaller",
            erratum="S30",
            note=note + " Summed over n features the print has room to spare, so that it fails only for larger b.",
            derivation=(step, Step(symbol="b D", value=total, formula="b D", source=_PROOF)),
        ),
    )


def _whole(request: DpSgdLaplaceComparison) -> Finding:
    seen = spof_attack.attack_on_dp_sgd(request.epsilon, request.expansion_point, request.clipping_bound)
    return finding(
        "pure epsilon of Algorithm 2 as a whole, from its updates",
        PAPER,
        "Section VII and Algorithm 2",
        printed=request.epsilon,
        printed_formula="epsilon",
        proven=spof_attack.ALGORITHM_EPSILON,
        proven_formula="infinite: noise is added to the derivative by z, which is then propagated through the raw record",
        stronger="smaller",
        erratum="S31",
        note="DP-SGD clips and noises the gradient of all parameters. Here dL/dW-hat = h g^T, and dL/dW is a multiple of x.",
        counterexample=spof_attack.counterexample(seen, request.epsilon),
    )
