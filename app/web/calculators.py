r"""The calculators' pages: forms from the mechanisms' schemas, with what the papers print next to what is proven."""

from __future__ import annotations

import json
from functools import cache
from typing import final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.calculators import catalogue
from zetadp.app.calculators.catalogue import MechanismEntry
from zetadp.app.calculators.event_kinds import list_events
from zetadp.app.web.forms import Field, fields_of
from zetadp.app.web.live_forms import COMPARISONS as PAGES
from zetadp.app.web.proofs import page_of
from zetadp.app.web.rendering import page
from zetadp.app.web.wording.declared_words import TITLES as DECLARED_TITLES
from zetadp.app.web.wording.declared_words import declared_words_of
from zetadp.app.web.wording.words import EVENT_TITLES, words_of
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errata import erratum

router = APIRouter()

TITLES = {
    "gaussian": "Gaussian noise",
    "complex_gaussian": "Complex Gaussian noise",
    "laplace": "Laplace noise",
    "complex_laplace": "Complex Laplace noise",
    "spectral": "Spectral-DP",
    "local_laplace": "Local Laplace noise",
    "local_gaussian": "Local Gaussian noise",
    "duchi_linf": "Duchi's local signs",
    "spof_coefficients": "SPOF's loss coefficients",
}
"""A mechanism's name on the pages; its ``kind`` if it has none here."""

TRAINING = "training"
"""The page of composed training: many noisy sums of random samples."""

EVENT = "event"
"""The page of any event, given as JSON: for what no form has fields for."""

OF_TRAINING = ("Z10", "Z12", "Z13", "Z14")
"""Rows of the errata about composed training, in addition to those about its noise."""

CIRCULAR = {"std": 1.0, "correlation": 0.0, "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}
"""First values of composed training: gradients clipped to 1, and the noise that papers train with."""


EXAMPLES = (
    ("train an image classifier", "/calculators/training?std=1.1&probability=0.01&count=1000"),
    ("publish one table", "/calculators/laplace?scale=2"),
    ("share a complex measurement", "/calculators/complex_gaussian?std=4&correlation=0"),
)
"""Where to start from, as (what one does, its calculator filled in)."""

MOST_INPUTS = 6
"""On the first screen, with the question; what is declared is asked for whole, since no part of it has a harmless first value."""

HARMLESS = ("adjacency", "unit", "sensitivity.adjacency", "sensitivity.unit", "monotonic")
"""Fields whose first value promises least or is stated with the answer: they may be folded."""

PLAIN = {"std": 1.0, "correlation": 0.3, "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}
"""First values of complex noise: nothing that isn't in view makes its guarantee stronger."""

NOISE = ("std", "scale", "epsilon")


@final
class Sampled(Value):
    """Initial values of a composition: the probability that one unit is in a sample, the number of releases, and steps of one epoch."""

    probability: float
    count: int
    batch: int
    records: int
    epoch: int


@final
class Comparison(Value):
    """The comparison shown with a calculator: an endpoint below /v1/compare, and what its statements are about."""

    endpoint: str
    about: str


_CLASSIC = Comparison(
    endpoint="classic_gaussian",
    about="For one release without sampling, at the epsilon and delta above: the classic noise formula and the noise that is needed.",
)
_ALGORITHM = Comparison(
    endpoint="spof",
    about="The SPOF paper's Algorithm 1 with the epsilon above, for records of this dimension (1 if the form has none).",
)
COMPARISONS = {
    "gaussian": _CLASSIC,
    "local_gaussian": _CLASSIC,
    "complex_gaussian": Comparison(endpoint="complex_gaussian", about="For one release with this noise, without repetition or sampling."),
    "spectral": Comparison(endpoint="spectral", about="For one release with this noise and filter, without repetition or sampling."),
    "laplace": _ALGORITHM,
    "local_laplace": _ALGORITHM,
    "duchi_linf": _ALGORITHM,
    "spof_coefficients": _ALGORITHM,
    TRAINING: Comparison(
        endpoint="training",
        about="How papers account for these numbers. Z10 concerns noise whose sigma means the whole complex coordinate, Z12 samples of "
        "fixed size, Z13 exactly this training.",
    ),
}
"""Keyed by the calculator's name; a calculator that isn't here shows only its errata rows."""


@router.get("/calculators", response_class=HTMLResponse)
def list_calculators() -> HTMLResponse:
    """Lists the calculators."""
    entries = [(one.kind, _title(one.kind), one.facts.summary, one.declared) for one in catalogue.list_mechanisms()]
    return page("calculators.html", "Calculators", current="/calculators", entries=entries)


@router.get("/calculators/{kind}", response_class=HTMLResponse)
def read_calculator(kind: str) -> HTMLResponse:
    """The calculator of one mechanism, of composed training, or of any event."""
    if kind == EVENT:
        modules = ("core.js", "event.js")
        return page("event.html", "Any event", current="/calculators", modules=modules, examples=_examples(), events=list_events())
    if kind == TRAINING:
        return _calculator(TRAINING, "complex_gaussian", Sampled(probability=0.01, count=1000, batch=600, records=60_000, epoch=100))
    if kind not in _entries():
        return page("missing.html", "Not found", current="/calculators", status=404, what="calculator", name=kind)
    return _calculator(kind, kind, Sampled(probability=1.0, count=1, batch=1, records=1, epoch=1))


def _calculator(name: str, kind: str, composition: Sampled) -> HTMLResponse:
    entry = _entries()[kind]
    example = CIRCULAR if name == TRAINING else PLAIN if kind == "complex_gaussian" else entry.example
    fields = fields_of(entry.schema_, example, declared_words_of if entry.declared else words_of)
    asked = [field for field in fields if _is_asked(field) and field.path not in HARMLESS]
    order = (*NOISE, "sensitivity.l2") if name == TRAINING else NOISE
    asked.sort(key=lambda field: order.index(field.path) if field.path in order else len(order))
    # The question and delta are always there, the probability of a sample in a training.
    room = MOST_INPUTS - (4 if name == TRAINING else 2)
    first = asked if entry.declared else asked[:room]
    return page(
        "calculator.html",
        "Private training" if name == TRAINING else _title(kind),
        current="/calculators",
        modules=("core.js", "calculator.js"),
        entry=entry,
        is_training=name == TRAINING,
        examples=EXAMPLES,
        first=first,
        solved=NOISE,
        more=[field for field in fields if field not in first],
        is_counted=name == TRAINING or len(first) < room,
        composition=composition,
        errata=[erratum(row) for row in (*entry.facts.errata, *(OF_TRAINING if name == TRAINING else ()))],
        comparison=COMPARISONS.get(name),
        comparisons=PAGES,
        proof=page_of(entry.facts.proof),
    )


def _is_asked(field: Field) -> bool:
    """Whether the field has an initial value or is required."""
    return field.required or field.value != ""


def _examples() -> list[tuple[str, str]]:
    """(a name, an event as JSON): one of each kind, and one of each declaration."""
    declared = [(_title(kind), {"kind": "release", "mechanism": one.example}) for kind, one in _entries().items() if one.declared]
    kinds = [(EVENT_TITLES[one.kind], one.example) for one in list_events()]
    return [(title, json.dumps(event, indent=2)) for title, event in (*kinds, *declared)]


def _title(kind: str) -> str:
    return (TITLES | DECLARED_TITLES).get(kind, kind.replace("_", " "))


@cache
def _entries() -> dict[str, MechanismEntry]:
    return {one.kind: one for one in catalogue.list_mechanisms()}
