r"""The rows of the errata that apply to a certified run.

Papers are full of formulas that promise more than holds. A certificate names the rows that touch its mechanism or algorithm, so that a
reader who knows the paper sees which figure was corrected, and how this run differs from the printed text.
"""

from __future__ import annotations

from collections.abc import Iterable

from zetadp.mechanisms.errata import Erratum, UnknownRow, erratum


def meaning(row: Erratum, *, protected: bool) -> str:
    """What is done here instead of what was printed; for an unprotected run, which may do just that, the print and what holds."""
    if protected and row.here is not None:
        return row.here
    return f"Printed ({row.where}): {row.printed}. What holds: {row.proven}."


def rows_in_order(rows: Iterable[str]) -> tuple[str, ...]:
    """The rows, each once, by paper and number. Raises UnknownRow if the errata don't have one: then nothing is signed."""
    return tuple(erratum(row).row for row in sorted(set(rows), key=lambda row: (row[0], int(row[1:]))))


def known_row(row: str) -> str:
    """The row, if this version knows it. Raises ValueError."""
    try:
        return erratum(row).row
    except UnknownRow as unknown:
        raise ValueError(f"expected a row of the errata that this version knows, got {row!r}") from unknown
