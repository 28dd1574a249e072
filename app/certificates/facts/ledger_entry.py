r"""The entry of a privacy budget that a run was charged to, as its certificate names it."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field, StringConstraints

from zetadp.mechanisms.base import Count, Value, is_absent

LedgerId = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]


@final
class LedgerFacts(Value):
    r"""The reservation of the run's whole plan before it began; what it released is committed with the certificate.

    Attributes:
      ledger, reservation: ids.
      entry: number of the ledger's entry that made the reservation.
      sha256: digest of that entry, which every later one is chained to.
      renews_after_days: the ledger's budget is free again after each such period, so that it bounds one period's releases alone; absent
        where it never is.
    """

    ledger: LedgerId
    reservation: LedgerId
    entry: Count
    sha256: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
    renews_after_days: Annotated[Count | None, Field(exclude_if=is_absent)] = None


def ledger_line(facts: LedgerFacts) -> str:
    """The entry in words, for a reader of the certificate."""
    return f"reserved in ledger {facts.ledger}, entry {facts.entry}, whose digest is {facts.sha256}{renewed(facts)}"


def renewed(facts: LedgerFacts) -> str:
    """Whether the budget is renewed, and what a renewed one doesn't bound."""
    if facts.renews_after_days is None:
        return "; this budget is never renewed"
    return f"; its budget is free again every {facts.renews_after_days} days, so it bounds no uses of the same data over longer times"


def is_kept_for_good(facts: LedgerFacts | None) -> bool:
    """Whether a budget that is never renewed paid: it bounds all uses of the data that are charged to it."""
    return facts is not None and facts.renews_after_days is None
