r"""POST /v1/compare/constant_selection: what it costs to choose the stabilisation constant by looking at accuracies."""

from __future__ import annotations

import math
from typing import Literal, final

from fastapi import APIRouter

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.proofs import path_of
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Step
from zetadp.mechanisms.base import Count, Extended, Positive, Value
from zetadp.mechanisms.local import multiple_up

_PROOF = "proofs/constant_selection.md"


@final
class ConstantSelectionComparison(Value):
    """A sweep over candidate constants c, with one private training run each; the one with the best accuracy is kept.

    Attributes:
      epsilon: what one run of the sweep costs; a sound one, which SPOF's printed run isn't (errata S7, S14).
      candidates: the constants tried.
      accuracy_from: the records that the accuracies are measured on.
    """

    model_config = example({"epsilon": 1.0, "candidates": 20, "accuracy_from": "private_records"})

    epsilon: Positive
    candidates: Count
    accuracy_from: Literal["private_records", "public_records"]


@final
class ConstantSelectionAnswer(Value):
    """What the chosen constant and its model cost together."""

    epsilon: Extended
    condition: str
    proof: str
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/constant_selection", summary="Compare the printed choice of the stabilisation constant with its true cost")
def compare_constant_selection(request: ConstantSelectionComparison) -> ConstantSelectionAnswer:
    """The epsilon of a constant chosen by a sweep: none if private records are looked at directly, otherwise the sum over the runs."""
    private = request.accuracy_from == "private_records" and request.candidates > 1
    total = math.inf if private else multiple_up(request.candidates, request.epsilon)
    condition = (
        "an accuracy on private records is released without noise, and no epsilon covers that"
        if private
        else "every run is epsilon-differentially private and is run on the same records; the choice is post-processing (basic composition)"
    )
    return ConstantSelectionAnswer(
        epsilon=total, condition=condition, proof=path_of("constant_selection.md"), published=(_selection(request, total),)
    )


def _selection(request: ConstantSelectionComparison, total: float) -> Finding:
    private = math.isinf(total)
    return finding(
        "epsilon of the chosen constant and the model trained with it",
        "spof",
        "Section V",
        printed=request.epsilon,
        printed_formula="epsilon: the sweep over c isn't counted",
        proven=total,
        proven_formula="none: the accuracies of the sweep are exact answers about private records" if private else "candidates epsilon",
        stronger="smaller",
        erratum="S33",
        note="A public constant, fixed before the data are seen, costs nothing. Report a choice by accuracy as unaccounted selection.",
        derivation=(
            Step(symbol="epsilon", value=request.epsilon, formula="given", source="one run"),
            Step(symbol="candidates", value=float(request.candidates), formula="given", source="runs of the sweep"),
            Step(
                symbol="total",
                value=total,
                formula="no bound" if private else "candidates epsilon, rounded up",
                source=_PROOF if private else "basic composition",
            ),
        ),
        counterexample=_TWO_CONSTANT_MODELS if private else None,
    )


def _two_constant_models() -> Counterexample:
    chosen = {record: max((0, 1), key=lambda model: model == record) for record in (0, 1)}
    return Counterexample(
        description="Two candidates whose training ignores the data (epsilon = 0): one model answers 0, the other 1. One private record, "
        "0 or 1; the model with the better accuracy on it is kept.",
        steps=tuple(
            Step(symbol=f"chosen for the record {record}", value=float(model), formula="the more accurate model", source=_PROOF)
            for record, model in chosen.items()
        ),
    )


_TWO_CONSTANT_MODELS = _two_constant_models()
