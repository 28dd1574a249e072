r"""The entry of a privacy budget that a run was charged to, as its certificate names it."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import StringConstraints

from zetadp.mechanisms.base import Count, Value

LedgerId = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]


@final
class LedgerFacts(Value):
    r"""The reservation of the run's whole plan before it began; what it released is committed with the certificate.

    Attributes:
      ledger, reservation: ids.
      entry: number of the ledger's entry that made the reservation.
      sha256: digest of that entry, which every later one is chained to.
    """

    ledger: LedgerId
    reservation: LedgerId
    entry: Count
    sha256: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]


def ledger_line(facts: LedgerFacts) -> str:
    """The entry in words, for a reader of the certificate."""
    return f"reserved in ledger {facts.ledger}, entry {facts.entry}, whose digest is {facts.sha256}"
