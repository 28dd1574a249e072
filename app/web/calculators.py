r"""The calculators' pages: forms from the mechanisms' own schemas, with what the papers print beside what is proved."""

from __future__ import annotations

from functools import cache
from typing import final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.calculators import catalogue
from app.calculators.catalogue import MechanismEntry
from app.web.forms import Field, fields_of
from app.web.live_forms import COMPARISONS as PAGES
from app.web.proofs import page_of
from app.web.rendering import page
from mechanisms.base import Value
from mechanisms.errata import erratum

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

OF_TRAINING = ("Z10", "Z12", "Z13", "Z14")
"""Rows of the errata on composed training, beside those of its noise."""

CIRCULAR = {"std": 1.0, "correlation": 0.0, "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}
"""First values of composed training: gradients clipped to 1, and the noise that papers train with."""


@final
class Sampled(Value):
    """First values of a composition: probability that one unit is in a sample, and how many releases there are."""

    probability: float
    count: int
    batch: int
    records: int


@final
class Comparison(Value):
    """What is asked beside a calculator: an endpoint below /v1/compare, and of what its statements are."""

    endpoint: str
    about: str


_CLASSIC = Comparison(
    endpoint="classic_gaussian",
    about="Of one release without sampling, at the epsilon and delta above: the classic noise formula, and the noise that is needed.",
)
_ALGORITHM = Comparison(
    endpoint="spof",
    about="The SPOF paper's Algorithm 1 where it is given the epsilon above, for records of this dimension (1 where the form has none).",
)
COMPARISONS = {
    "gaussian": _CLASSIC,
    "local_gaussian": _CLASSIC,
    "complex_gaussian": Comparison(endpoint="complex_gaussian", about="Of one release with this noise, without repetition and sampling."),
    "spectral": Comparison(endpoint="spectral", about="Of one release with this noise and filter, without repetition and sampling."),
    "laplace": _ALGORITHM,
    "local_laplace": _ALGORITHM,
    "duchi_linf": _ALGORITHM,
    "spof_coefficients": _ALGORITHM,
    TRAINING: Comparison(
        endpoint="training",
        about="What papers account for these numbers. Z10 is of noise whose sigma means the whole complex coordinate, Z12 of samples of "
        "fixed size, Z13 of this very training.",
    ),
}
"""By the calculator's name; one that isn't here has its errata rows only."""


@router.get("/calculators", response_class=HTMLResponse)
def list_calculators() -> HTMLResponse:
    """All of them."""
    entries = [(one.kind, _title(one.kind), one.facts.summary) for one in catalogue.list_mechanisms()]
    return page("calculators.html", "Calculators", current="/calculators", entries=entries)


@router.get("/calculators/{kind}", response_class=HTMLResponse)
def read_calculator(kind: str) -> HTMLResponse:
    """One mechanism's, or composed training's."""
    if kind == TRAINING:
        return _calculator(TRAINING, "complex_gaussian", Sampled(probability=0.01, count=1000, batch=600, records=60_000))
    if kind not in _entries():
        return page("missing.html", "Not here", current="/calculators", status=404, what="calculator", name=kind)
    return _calculator(kind, kind, Sampled(probability=1.0, count=1, batch=1, records=1))


def _calculator(name: str, kind: str, composition: Sampled) -> HTMLResponse:
    entry = _entries()[kind]
    fields = fields_of(entry.schema_, CIRCULAR if name == TRAINING else entry.example)
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
        errata=[erratum(row) for row in (*entry.facts.errata, *(OF_TRAINING if name == TRAINING else ()))],
        comparison=COMPARISONS.get(name),
        comparisons=PAGES,
        proof=page_of(entry.facts.proof),
    )


def _is_asked(field: Field) -> bool:
    """Whether it stands open on the page: it has a value at first or has to be given."""
    return field.required or field.value != ""


def _title(kind: str) -> str:
    return TITLES.get(kind, kind.replace("_", " "))


@cache
def _entries() -> dict[str, MechanismEntry]:
    return {one.kind: one for one in catalogue.list_mechanisms()}
