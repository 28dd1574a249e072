r"""GET /v1/papers: what the papers print about their experiments' privacy, recomputed once per process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from pydantic import TypeAdapter

from zetadp.app.calculators.limits import Calculators, calculators
from zetadp.app.papers.reports import complex_dp_federated, complex_feature_obfuscation, spectral_dp, spof, zeta_dp
from zetadp.app.papers.schemas import PaperReport, PaperSummary
from zetadp.mechanisms.errata import Paper

REPORTS: Mapping[Paper, Callable[[], PaperReport]] = {
    "zeta_dp": zeta_dp.report,
    "complex_dp_federated": complex_dp_federated.report,
    "spof": spof.report,
    "complex_feature_obfuscation": complex_feature_obfuscation.report,
    "spectral_dp": spectral_dp.report,
}

SUMMARIES: Mapping[Paper, PaperSummary] = {
    one.SUMMARY.paper: one.SUMMARY for one in (zeta_dp, complex_dp_federated, spof, complex_feature_obfuscation, spectral_dp)
}

_LIST: TypeAdapter[tuple[PaperReport, ...]] = TypeAdapter(tuple[PaperReport, ...])

Desk = Annotated[Calculators, Depends(calculators)]

router = APIRouter(prefix="/papers", tags=["papers"])


@cache
def report_on(paper: Paper) -> PaperReport:
    """One paper's report; the tables never change, so it is computed once per process."""
    return REPORTS[paper]()


@cache
def _text_of(paper: Paper) -> bytes:
    return report_on(paper).model_dump_json().encode()


@cache
def _text_of_all() -> bytes:
    return _LIST.dump_json(tuple(report_on(paper) for paper in REPORTS))


@router.get("", summary="List the papers and their experiments, recomputed", response_model=list[PaperReport])
def list_papers(desk: Desk) -> Response:
    """Every printed epsilon next to proven brackets, under each convention that the paper's words leave open."""
    return Response(desk.within_limit(_text_of_all), media_type="application/json")


@router.get("/{paper}", summary="Read one paper's experiments, recomputed", response_model=PaperReport)
def read_paper(paper: Annotated[Paper, Path(examples=["zeta_dp"])], desk: Desk) -> Response:
    """One paper, as in the list."""
    return Response(desk.within_limit(lambda: _text_of(paper)), media_type="application/json")
