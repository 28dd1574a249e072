r"""POST /v1/compare/operation_counts: what perturbing one record costs in arithmetic, by coefficients and by clipped gradients."""

from __future__ import annotations

from typing import final

from fastapi import APIRouter

from zetadp.app.calculators.compare.finding import Finding, finding
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.operation_counts import OperationCosts, Term, coefficient_perturbation, gradient_perturbation, total
from zetadp.mechanisms.base import Count, Value
from zetadp.mechanisms.published import spof_operations as published

STATES = (
    "Arithmetic and nothing else: the terms are the paper's, and their sums are right at the costs given. They say nothing of privacy "
    "(neither algorithm as printed is differentially private: errata S14, S31), nothing of the passes through the network, and nothing of "
    "running time beyond the costs of single operations."
)
_SOURCE = "Appendix G"
_DEFAULT = OperationCosts()


@final
class OperationCountsComparison(Value):
    """Operations to perturb one record.

    Attributes:
      features: n.
      hidden_units: l, the units of one encoder.
      costs: of each operation; by default the paper's (AMD K7).
    """

    model_config = example({"features": 14, "hidden_units": 7})

    features: Count
    hidden_units: Count
    costs: OperationCosts = _DEFAULT


@final
class OperationCount(Value):
    """One algorithm's count with its terms."""

    algorithm: str
    total: int
    terms: tuple[Term, ...]


@final
class OperationCountsAnswer(Value):
    """Both counts, and the saving 1 - SPOF / DP-SGD (null if the latter is 0); it is negative for many hidden units."""

    states: str
    spof: OperationCount
    dp_sgd: OperationCount
    saving: float | None
    saving_with_one_multiplication_per_square: float | None
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/operation_counts", summary="Count the operations of perturbing coefficients and of perturbing gradients")
def compare_operation_counts(request: OperationCountsComparison) -> OperationCountsAnswer:
    """The paper's counts, term by term, for any n, l and costs of operations."""
    spof = coefficient_perturbation(request.features, request.hidden_units, request.costs)
    dp_sgd = gradient_perturbation(request.features, request.costs)
    single = OperationCosts.model_validate({**request.costs.model_dump(), "multiplications_per_square": 1})
    return OperationCountsAnswer(
        states=STATES,
        spof=OperationCount(algorithm="SPOF, Algorithm 1, steps 3 and 5", total=total(spof), terms=spof),
        dp_sgd=OperationCount(algorithm="DP-SGD with Laplace noise, Algorithm 2, steps 4 and 6", total=total(dp_sgd), terms=dp_sgd),
        saving=_saving(total(spof), total(dp_sgd)),
        saving_with_one_multiplication_per_square=_saving(total(spof), total(gradient_perturbation(request.features, single))),
        published=_findings(request, spof, dp_sgd),
    )


def _saving(spof: int, dp_sgd: int) -> float | None:
    # A ratio of whole numbers, so it is rounded only once.
    return (dp_sgd - spof) / dp_sgd if dp_sgd else None


def _findings(request: OperationCountsComparison, spof: tuple[Term, ...], dp_sgd: tuple[Term, ...]) -> tuple[Finding, ...]:
    as_printed = request.costs == _DEFAULT
    printed_spof = published.spof_count(request.features, request.hidden_units)
    printed_dp_sgd = published.dp_sgd_count(request.features)
    saving = _saving(total(spof), total(dp_sgd))
    return (
        _count("macro operations of SPOF's perturbation, for one record", "(19 + l) n", printed_spof if as_printed else None, spof),
        _count("macro operations of DP-SGD's perturbation, for one record", "80 n + 283", printed_dp_sgd if as_printed else None, dp_sgd),
        finding(
            "share of macro operations that SPOF's perturbation saves",
            "spof",
            _SOURCE,
            printed=_saving(printed_spof, printed_dp_sgd) if as_printed else None,
            printed_formula="1 - (19 + l) n / (80 n + 283)",
            proven=saving,
            proven_formula="1 - C_SPOF / C_DP-SGD, from the terms",
            stronger="larger",
            erratum="S32",
            note="74.06 % at n = 14, l = 7. It tends to (61 - l) / 80 for many features, and from l = 61 + 283 / n on SPOF costs more.",
            derivation=(
                Step(symbol="C_SPOF", value=float(total(spof)), formula="sum of its terms", source=_SOURCE),
                Step(symbol="C_DP-SGD", value=float(total(dp_sgd)), formula="sum of its terms", source=_SOURCE),
                *(() if saving is None else (Step(symbol="saving", value=saving, formula="1 - C_SPOF / C_DP-SGD", source=_SOURCE),)),
            ),
        ),
    )


def _count(quantity: str, formula: str, printed: int | None, terms: tuple[Term, ...]) -> Finding:
    return finding(
        quantity,
        "spof",
        _SOURCE,
        printed=None if printed is None else float(printed),
        printed_formula=formula,
        proven=float(total(terms)),
        proven_formula="sum of the terms",
        stronger="neither",
        erratum="S32",
        note="The closed form is for the paper's costs." if printed is None else "The closed form is the sum of the paper's terms.",
        derivation=(
            *(Step(symbol=term.formula, value=float(term.operations), formula=term.what, source=_SOURCE) for term in terms),
            Step(symbol="total", value=float(total(terms)), formula="sum of the terms", source=_SOURCE),
        ),
    )
