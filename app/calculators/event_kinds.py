r"""What an event can be made of: releases, samplings, groups, repetitions, selections. Whatever they hold is an event again."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, final, get_args

from pydantic import Field, TypeAdapter

from zetadp.accountants import Event
from zetadp.app.calculators.proofs import path_of
from zetadp.app.calculators.schemas import RELEASE
from zetadp.mechanisms.base import Value

SCHEMAS = "/openapi.json#/components/schemas/{model}"
"""Where a schema finds the parts that it names: every event may hold every other, so that none is printed whole."""


@final
class EventEntry(Value):
    """One kind of event: what happened to the data.

    Attributes:
      summary: in Markdown.
      proof: why its guarantee holds; null where it is that of what the event holds, composed.
      schema: of this kind; what it refers to is in the OpenAPI document.
    """

    kind: str
    summary: str
    proof: str | None
    sources: tuple[str, ...]
    example: dict[str, Any]
    schema_: dict[str, Any] = Field(serialization_alias="schema")


class _Known(NamedTuple):
    """What a kind's class doesn't say of it: its fields in an example, its proof, and sources."""

    fields: dict[str, Any]
    proof: str | None = None
    sources: tuple[str, ...] = ()


def _zero_out() -> dict[str, Any]:
    """The release of the other examples, for neighbours whose batches are the same."""
    mechanism = RELEASE["mechanism"]
    return {**RELEASE, "mechanism": {**mechanism, "sensitivity": {**mechanism["sensitivity"], "adjacency": "zero_out"}}}


_CUT = {"probability": 0.01, "largest_batch": 128, "population_size": 10_000}
_OF_KIND = {
    "release": _Known({"mechanism": RELEASE["mechanism"]}),
    "poisson_sampled": _Known(
        {"probability": 0.01, "event": RELEASE}, "pairs.md", ("Balle, Barthe and Gaboardi 2018, arXiv:1807.01647, Theorem 2",)
    ),
    "truncated_poisson_sampled": _Known({**_CUT, "event": RELEASE}, "pairs.md"),
    "fixed_size_sampled": _Known(
        {"sample_size": 100, "population_size": 10_000, "event": RELEASE},
        "pairs.md",
        ("Balle, Barthe and Gaboardi 2018, arXiv:1807.01647", "Zhu, Dong and Wang 2022, arXiv:2106.08567"),
    ),
    "randomly_allocated": _Known(
        {"steps": 100, "event": RELEASE, "drawn": "each_epoch"},
        "allocation.md",
        (
            "Chua et al. 2024, arXiv:2412.16802",
            "Feldman and Shenfeld 2025, arXiv:2502.08202",
            "Choquette-Choo et al. 2025, arXiv:2410.06266",
        ),
    ),
    "randomly_weighted": _Known(
        {"shares": [0.5, 1.0], "probabilities": [0.02, 0.01], "event": RELEASE},
        "pairs.md",
        ("Choquette-Choo et al. 2023, arXiv:2310.15526",),
    ),
    "shuffled": _Known(
        {"steps": 100, "event": _zero_out()},
        "shuffled.md",
        ("Chua et al. 2024, arXiv:2403.17673", "Chua et al. 2024, arXiv:2411.04205"),
    ),
    "grouped": _Known({"size": 5, "unit": "user", "event": RELEASE}, "pairs.md"),
    "repeated": _Known({"count": 1000, "event": RELEASE}),
    "repeated_and_selected": _Known(
        {"runs": {"kind": "geometric", "mean": 10.0}, "event": RELEASE},
        "selected.md",
        ("Liu and Talwar 2019, arXiv:1811.07971", "Papernot and Steinke 2022, arXiv:2110.03620"),
    ),
    "composed": _Known({"events": [RELEASE, RELEASE]}),
    "non_private": _Known({"reason": "the mean was published as it is"}),
}


@cache
def list_events() -> tuple[EventEntry, ...]:
    """Every kind of event, in the order in which they are defined."""
    union, *_ = get_args(Event)
    return tuple(_entry(model) for model in get_args(union))


def _entry(model: type[Value]) -> EventEntry:
    kind = str(model.model_fields["kind"].default)
    known = _OF_KIND[kind]
    schema = TypeAdapter(model).json_schema(ref_template=SCHEMAS)
    return EventEntry(
        kind=kind,
        summary=" ".join((model.__doc__ or "").partition("\n\n")[0].replace("``", "`").split()),
        proof=None if known.proof is None else path_of(known.proof),
        sources=known.sources,
        example={"kind": kind, **known.fields},
        schema_=schema.get("$defs", {}).get(model.__name__, schema),
    )
