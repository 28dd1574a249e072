r"""What the five papers print, and what is true: one row per statement. Everything here that corrects a statement names its row.

A row explains a difference and is never a source of numbers. ``mechanisms.published`` computes what is printed; the mechanisms and
accountants compute what holds.
"""

from __future__ import annotations

from zetadp.mechanisms.errata.complex_dp_federated import ROWS as FEDERATED
from zetadp.mechanisms.errata.complex_feature_obfuscation import ROWS as OBFUSCATION
from zetadp.mechanisms.errata.row import SEVERITIES, Erratum, Paper, Severity
from zetadp.mechanisms.errata.spectral_dp import ROWS as SPECTRAL
from zetadp.mechanisms.errata.spof import ROWS as SPOF
from zetadp.mechanisms.errata.zeta_dp import ROWS as ZETA

ERRATA: tuple[Erratum, ...] = (*ZETA, *FEDERATED, *SPOF, *OBFUSCATION, *SPECTRAL)
"""Every row, paper by paper."""

_BY_NAME = {found.row: found for found in ERRATA}


class UnknownRow(LookupError):
    """No row has this name."""

    def __init__(self, row: str) -> None:
        self.row = row
        super().__init__(f"the errata have no row {row!r}")


def erratum(row: str) -> Erratum:
    """The row with this name.

    Raises:
      UnknownRow: no row has this name.

    >>> erratum("Z2").severity, erratum("C3").paper
    ('O', 'complex_dp_federated')
    """
    if (found := _BY_NAME.get(row)) is None:
        raise UnknownRow(row)
    return found


__all__ = ["ERRATA", "SEVERITIES", "Erratum", "Paper", "Severity", "UnknownRow", "erratum"]
