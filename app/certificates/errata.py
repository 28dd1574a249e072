r"""The rows of the errata that can apply to a certified run, each with its meaning in one line.

Papers are full of formulas that promise more than holds. A certificate names the rows that touch its mechanism or algorithm, so that a
reader who knows the paper sees which figure was corrected, and how this run differs from the printed text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from app.certificates.errata_notes import ROWS
from mechanisms.errata import Severity, UnknownRow, erratum


@final
@dataclass(frozen=True)
class ErratumNote:
    r"""One row.

    Attributes:
      row: its id in the errata.
      severity: O: the printed text overclaims privacy; o: under one reading; W: wrong without harm to privacy; L: loose; N: notation; U: a
        claim without its evidence; OK: checked.
      meaning: what was printed, and what this service does instead; of a run without protection, what holds instead.
    """

    row: str
    severity: Severity
    meaning: str


class UnknownErratum(LookupError):
    """A mechanism, algorithm or data set names a row that has no text here: nothing is signed until it has one."""

    def __init__(self, row: str) -> None:
        self.row = row
        super().__init__(f"errata row {row!r} has no meaning in app/certificates/errata.py")


_NOTES = {row: ErratumNote(row=row, severity=severity, meaning=meaning) for row, severity, meaning in ROWS}


def note(row: str) -> ErratumNote:
    """The text of a row.

    Raises:
      UnknownErratum: the row isn't in the table.

    >>> note("C3").severity
    'L'
    """
    if (found := _NOTES.get(row)) is None:
        raise UnknownErratum(row)
    return found


def flaw(row: str) -> ErratumNote:
    """What a row means for a run that nothing protects, and that may do just what was printed: print and truth, side by side.

    Raises:
      UnknownErratum: the row isn't in the errata.
    """
    try:
        found = erratum(row)
    except UnknownRow as error:
        raise UnknownErratum(row) from error
    printed = f"Printed ({found.where}): {found.printed}. What holds: {found.proven}."
    return ErratumNote(row=row, severity=found.severity, meaning=printed)


def rows_in_order(rows: Iterable[str]) -> tuple[str, ...]:
    """Each once, by paper and number."""
    return tuple(sorted(set(rows), key=lambda row: (row[0], int(row[1:]))))


def notes(rows: Iterable[str], *, protected: bool) -> tuple[ErratumNote, ...]:
    """The texts of rows, for a run that is protected or isn't. Raises UnknownErratum."""
    return tuple(note(row) if protected else flaw(row) for row in rows)


def known_row(row: str) -> str:
    """The row, if this version has its texts. Raises ValueError."""
    try:
        note(row)
        flaw(row)
    except UnknownErratum as unknown:
        raise ValueError(f"expected a row of the errata that this version knows, got {row!r}") from unknown
    return row
