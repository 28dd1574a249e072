r"""The calculators' pages: forms from the mechanisms' own schemas, with what the papers print beside what is proved."""

from __future__ import annotations

from functools import cache
from typing import final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.calculators import catalogue
from app.calculators.catalogue import MechanismEntry
from app.web.forms import Field, fields_of
from app.web.rendering import page
from mechanisms.base import Value
from mechanisms.errata import Erratum, erratum

router = APIRouter()

TITLES = {
    "gaussian": "Gaussian noise",
    "complex_gaussian": "Complex Gaussian noise",
    "laplace": "Laplace noise",
    "spectral": "Spectral-DP: noise on low frequencies",
    "local_laplace": "Local Laplace: every record by itself",
    "local_gaussian": "Local Gaussian: every record by itself",
    "duchi_linf": "Duchi's signs: every record by itself",
    "spof_coefficients": "SPOF's loss coefficients",
}
"""What a mechanism is called on the pages; its ``kind`` where it has no name here."""

TRAINING = "training"
"""The page of composed training: noisy sums of random samples, many times."""


@final
class Sampled(Value):
    """First values of a composition: probability that one unit is in a sample, and how many releases there are."""

    probability: float
    count: int


@router.get("/calculators", response_class=HTMLResponse)
def list_calculators() -> HTMLResponse:
    """All of them."""
    entries = [(one.kind, _title(one.kind), one.facts.summary) for one in catalogue.list_mechanisms()]
    return page("calculators.html", "Calculators", current="/calculators", entries=entries)


@router.get("/calculators/{kind}", response_class=HTMLResponse)
def read_calculator(kind: str) -> HTMLResponse:
    """One mechanism's, or composed training's."""
    if kind == TRAINING:
        return _calculator(TRAINING, "complex_gaussian", Sampled(probability=0.01, count=1000))
    if kind not in _entries():
        return page("missing.html", "Not here", current="/calculators", status=404, what="calculator", name=kind)
    return _calculator(kind, kind, Sampled(probability=1.0, count=1))


def _calculator(name: str, kind: str, composition: Sampled) -> HTMLResponse:
    entry = _entries()[kind]
    fields = fields_of(entry.schema_, entry.example)
    return page(
        "calculator.html",
        "Composed training" if name == TRAINING else _title(kind),
        current="/calculators",
        modules=("core.js", "calculator.js"),
        plots=True,
        entry=entry,
        is_training=name == TRAINING,
        fields=[field for field in fields if _is_asked(field)],
        rare=[field for field in fields if not _is_asked(field)],
        composition=composition,
        errata=_errata(entry),
    )


def _is_asked(field: Field) -> bool:
    """Whether it stands open on the page: it has a value at first or has to be given."""
    return field.required or field.value != ""


def _title(kind: str) -> str:
    return TITLES.get(kind, kind.replace("_", " "))


@cache
def _entries() -> dict[str, MechanismEntry]:
    return {one.kind: one for one in catalogue.list_mechanisms()}


def _errata(entry: MechanismEntry) -> list[Erratum]:
    return [erratum(row) for row in entry.facts.errata]
