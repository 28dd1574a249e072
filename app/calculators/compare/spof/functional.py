r"""The functional mechanism for the cross-entropy, as the SPOF paper uses it, next to what is proven: S5 and S17 in the central model."""

from __future__ import annotations

import math
from typing import final

from fastapi import APIRouter

from zetadp.app.calculators.compare.finding import Finding, finding
from zetadp.app.calculators.compare.spof import attack as spof_attack
from zetadp.app.calculators.compare.spof.noise import functional_mechanism_difference, printed_pair_l1
from zetadp.app.calculators.compare.spof.setting import PAPER, EpsilonParameter, laplace_for
from zetadp.app.calculators.proofs import path_of
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Laplace, Step
from zetadp.mechanisms.analysis.cross_entropy import Expansion, coefficient_l1, sigmoid
from zetadp.mechanisms.base import Count, Extended, Value
from zetadp.mechanisms.local import Dimension, multiple_up, quotient_up
from zetadp.mechanisms.published import spof as published
from zetadp.mechanisms.spof_coefficients import ExpansionPoint

_PROOF = "proofs/cross_entropy.md"


@final
class FunctionalMechanismComparison(Value):
    r"""The numbers of one use of the functional mechanism: coefficients summed over the records, perturbed once.

    Attributes:
      dimension: n, features in a record, each in [0, 1].
      expansion_point: a; |a| <= 1e6. The paper's sensitivity is for a = 0.
      epsilon: the epsilon that the noise is computed from.
      records: m.
      releases: the number of times that noise is drawn on the same sums; the mechanism itself draws once.
    """

    model_config = example({"dimension": 14, "expansion_point": 0.0, "epsilon": 1.0, "records": 1000, "releases": 1})

    dimension: Dimension
    expansion_point: ExpansionPoint
    epsilon: EpsilonParameter
    records: Count
    releases: Count = 1


@final
class FunctionalMechanismAnswer(Value):
    """What holds for the summed coefficients, then what is printed.

    Attributes:
      public_linear, quadratic: m times these are the public parts of the sums: sum of (public_linear - x), and m quadratic.
      l1: l1 sensitivity of the sums, replacing one record; only those of z are private.
      mechanism: the noise for the requested epsilon, on the n sums of the coefficients of z.
      noise_std: its standard deviation on each of them.
      epsilon, total_epsilon: pure epsilon of one release and of all.
    """

    public_linear: float
    quadratic: float
    l1: float
    mechanism: Laplace
    noise_std: float
    epsilon: Extended
    total_epsilon: Extended
    derivation: tuple[Step, ...]
    proof: str
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/functional_mechanism", summary="Compare the functional mechanism's printed sensitivity with the proved one")
def compare_functional_mechanism(request: FunctionalMechanismComparison) -> FunctionalMechanismAnswer:
    """Sensitivity, noise and epsilon of the cross-entropy's coefficients summed over all records, in the central model."""
    expansion = Expansion(request.expansion_point, 0.0)
    l1 = coefficient_l1(request.dimension)
    mechanism = laplace_for(l1, request.epsilon)
    epsilon = mechanism.privacy_loss().epsilon
    total = multiple_up(request.releases, epsilon)
    return FunctionalMechanismAnswer(
        public_linear=expansion.public_linear,
        quadratic=expansion.quadratic,
        l1=l1,
        mechanism=mechanism,
        noise_std=math.sqrt(2.0) * mechanism.scale,
        epsilon=epsilon,
        total_epsilon=total,
        derivation=(
            Step(symbol="Delta", value=l1, formula="n: one record's (s - v a - x) in the sums", source=_PROOF),
            *mechanism.derivation(),
            Step(
                symbol="epsilon in all",
                value=total,
                formula="releases * epsilon_0",
                source="basic composition, attained",
            ),
        ),
        proof=path_of("cross_entropy.md"),
        published=(
            _sensitivity(request, l1),
            _zhang(request, l1),
            _noise(request, mechanism),
            *_epsilon(request, l1),
            functional_mechanism_difference(request.dimension, request.records, request.epsilon),
            _whole(request),
        ),
    )


_NOT_AT_A = "The printed sensitivity is for a = 0."


def _printed(request: FunctionalMechanismComparison) -> float | None:
    return published.sensitivity(request.dimension) if request.expansion_point == 0.0 else None


def _sensitivity(request: FunctionalMechanismComparison, l1: float) -> Finding:
    printed = _printed(request)
    return finding(
        "l1 sensitivity of the coefficients summed over the records",
        PAPER,
        "Section V, SPOF at m = 1 and c = 0, with (23)",
        printed=printed,
        printed_formula="3n/2, at a = 0",
        proven=l1,
        proven_formula="n: replacing one record changes one term of each sum, and only -x in it",
        stronger="smaller",
        erratum="S5",
        note="The second-order coefficients are public once S1 and S2 are put right." if printed is not None else _NOT_AT_A,
        derivation=(Step(symbol="Delta", value=l1, formula="n |x - x'| at most", source=_PROOF),),
    )


def _zhang(request: FunctionalMechanismComparison, l1: float) -> Finding:
    n, a = request.dimension, request.expansion_point
    expansion = Expansion(a, 0.0)
    at_zero, at_one = (expansion.coefficients(x)[1] for x in (0.0, 1.0))
    rule = 2.0 * n * (max(abs(at_zero), abs(at_one)) + expansion.quadratic)
    return finding(
        "l1 sensitivity of the right coefficients of z and z^2, by twice the largest sum of absolute values",
        PAPER,
        "reference [10], Zhang et al. 2012, Lemma 1, applied to the right loss",
        printed=rule,
        printed_formula="2 n (max |coefficient of z| + v/2), in powers of z",
        proven=l1,
        proven_formula="n",
        stronger="smaller",
        erratum="S5",
        note="The rule is valid and counts public numbers too. Differences between records are all that matters.",
        derivation=(
            Step(symbol="s", value=sigmoid(a), formula="1 / (1 + e^-a)", source="expansion_point a"),
            Step(symbol="coefficient of z at x = 0", value=at_zero, formula="s - v a", source=_PROOF),
            Step(symbol="coefficient of z at x = 1", value=at_one, formula="s - v a - 1", source=_PROOF),
            Step(symbol="Delta", value=l1, formula="n times the difference of the two", source=_PROOF),
        ),
    )


def _noise(request: FunctionalMechanismComparison, mechanism: Laplace) -> Finding:
    covered = request.expansion_point == 0.0
    return finding(
        "Laplace scale on each summed coefficient",
        PAPER,
        "reference [10], Zhang et al. 2012, Algorithm 1, with (23)",
        printed=published.functional_mechanism_scale(request.dimension, request.epsilon) if covered else None,
        printed_formula="3n / (2 epsilon), on 2n coefficients",
        proven=mechanism.scale,
        proven_formula="n / epsilon, on the n coefficients of z",
        stronger="smaller",
        erratum="S5",
        note="Half as much again as needed, and on numbers that need none." if covered else _NOT_AT_A,
        derivation=(
            Step(symbol="Delta", value=coefficient_l1(request.dimension), formula="n", source=_PROOF),
            Step(symbol="b", value=mechanism.scale, formula="n / epsilon, rounded up", source="proofs/laplace.md"),
        ),
    )


def _epsilon(request: FunctionalMechanismComparison, l1: float) -> tuple[Finding, ...]:
    n, epsilon = request.dimension, request.epsilon
    covered = request.expansion_point == 0.0
    scale = published.functional_mechanism_scale(n, epsilon)
    readings = (
        ("the printed pair's sums", printed_pair_l1(n), "releases * epsilon, attained"),
        ("the right loss's sums", l1, "releases * 2 epsilon / 3, attained"),
    )
    return tuple(
        finding(
            f"pure epsilon of {what} with the printed noise, over all releases",
            PAPER,
            "reference [10], Zhang et al. 2012, Theorem 1, with (23)",
            printed=epsilon if covered else None,
            printed_formula="epsilon",
            proven=multiple_up(request.releases, quotient_up(move, scale)) if covered else None,
            proven_formula=formula,
            stronger="smaller",
            erratum="S16" if request.releases > 1 else "S5",
            note="One draw on the sums is right. Noise that is drawn again at each pass composes." if covered else _NOT_AT_A,
            derivation=(
                Step(symbol="b", value=scale, formula="3n / (2 epsilon)", source="(23)"),
                Step(symbol="l1", value=move, formula="of these sums", source=_PROOF),
                Step(symbol="epsilon'", value=quotient_up(move, scale), formula="l1 / b, for one release", source="proofs/laplace.md"),
                Step(
                    symbol="epsilon in all",
                    value=multiple_up(request.releases, quotient_up(move, scale)),
                    formula="releases * epsilon', rounded up",
                    source="basic composition, attained",
                ),
            )
            if covered
            else (),
        )
        for what, move, formula in readings
    )


def _whole(request: FunctionalMechanismComparison) -> Finding:
    seen = spof_attack.attack(request.epsilon, 0.0)
    return finding(
        "pure epsilon of training on perturbed coefficients with z computed from raw records",
        PAPER,
        "Section V and Section VIII, FM for m = 1",
        printed=request.epsilon,
        printed_formula="epsilon",
        proven=spof_attack.ALGORITHM_EPSILON,
        proven_formula="infinite: z = W-hat^T sigmoid(W^T x) uses the raw record, as in SPOF",
        stronger="smaller",
        erratum="S14",
        note="It is private where the polynomial's variables are weights alone. Here each record has its own z, so the "
        "summed coefficients aren't even those of the summed loss; used record by record, as printed, the updates carry the record.",
        counterexample=spof_attack.counterexample(seen, request.epsilon),
    )
