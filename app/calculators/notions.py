r"""POST /v1/conversions: what one notion of privacy says in terms of others; GET /v1/conversions: all pairs, with status and reason."""

from __future__ import annotations

from typing import Annotated, final

from fastapi import APIRouter
from pydantic import Field

from zetadp.accountants.notions import Conversion, Notion, PairOfNotions, Target, convert, matrix
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms.base import Value

_MOST_TARGETS = 100


@final
class ConversionsRequest(Value):
    """A notion that holds, and the notions to express it in.

    Attributes:
      given: holds for all neighbours, in both orders.
      to: the numbers to compute, each at its own point: nothing that changes a guarantee has a default.
    """

    model_config = example(
        {
            "given": {"kind": "zcdp", "rho": 0.5},
            "to": [
                {"kind": "pure"},
                {"kind": "approximate", "delta": 1e-5},
                {"kind": "approximate", "epsilon": 1.0},
                {"kind": "zcdp"},
                {"kind": "rdp", "order": 8.0},
                {"kind": "gdp"},
                {"kind": "trade_off", "alpha": 0.05},
                {"kind": "advantage"},
            ],
        }
    )

    given: Notion
    to: Annotated[tuple[Target, ...], Field(min_length=1, max_length=_MOST_TARGETS)]


@final
class Conversions(Value):
    """One answer for each target, in their order."""

    given: Notion
    conversions: tuple[Conversion, ...]


router = APIRouter(prefix="/conversions")


@router.post("", summary="Express one notion of privacy in others")
def create_conversions(request: ConversionsRequest) -> Conversions:
    """The least level that follows of each target: exact, a bound, or impossible, shown by a mechanism. Rounded to the safe side."""
    return Conversions(given=request.given, conversions=tuple(convert(request.given, to) for to in request.to))


@router.get("", summary="List how every notion of privacy converts to every other")
def list_conversions() -> tuple[PairOfNotions, ...]:
    """All 49 ordered pairs: exact, bound or impossible, with formula, source and reason."""
    return matrix()
