r"""The errata over HTTP: what each paper prints, what is true, and why."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from zetadp.mechanisms.errata import ERRATA, Erratum, Paper, Severity, erratum

router = APIRouter(prefix="/errata")


@router.get("", summary="List the errata")
def list_errata(
    paper: Annotated[Paper | None, Query(description="Rows of this paper only.")] = None,
    severity: Annotated[tuple[Severity, ...], Query(description="Rows of these severities only; may be given several times.")] = (),
) -> list[Erratum]:
    """Every checked statement of the five papers.

    Severity O: overclaims privacy; o: under one reading; W: wrong without harm to privacy; L: loose; N: notation; U: unsupported;
    OK: right.
    """
    return [row for row in ERRATA if paper in (None, row.paper) and (not severity or row.severity in severity)]


@router.get("/{row}", summary="Read one row of the errata")
def read_erratum(row: Annotated[str, Path(pattern=r"^[ZCSOP][1-9][0-9]?$", examples=["Z2"])]) -> Erratum:
    """One row, by the name that findings and certificates use."""
    return erratum(row)
