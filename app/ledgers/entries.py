r"""The history of a ledger: one entry for each thing that happened, each with the digest of the one before. Nothing is ever changed.

What is hashed is the entry's JSON text, as stored, to the byte: SHA-256 of its UTF-8. Every entry holds its ledger, its number and the
digest of the entry before it (64 zeros before the first), so that no entry can be changed, moved, taken out or put in between without
changing the digest of the last one. Anyone who noted that digest can tell whether anything before it was changed.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Literal, final

from pydantic import AwareDatetime, Field, ValidationError

from zetadp.accountants.filters import Steps
from zetadp.app.ledgers.errors import EntryUnreadable
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent, UserName
from zetadp.app.ledgers.rules import Purpose
from zetadp.mechanisms.base import Value, is_absent

BEFORE_THE_FIRST = "0" * 64

Charge = tuple[Steps, ...]
"""For each limit of the budget, whole steps of its grid (2^128 to 2^130 of them make the limit), as decimal text."""

Fate = Literal["spent", "refunded"]
"""What happens to a reservation that wasn't settled in time."""


@final
class Opened(Value):
    """The first entry."""

    kind: Literal["opened"] = "opened"
    definition: LedgerDefinition


@final
class Reserved(Value):
    r"""A spend was admitted: set aside before its noise is drawn.

    Attributes:
      reservation: its id.
      spend: what it is for.
      charge: what it takes from the data set's balance or from each of these users' balances.
      users: who is charged; empty where the ledger protects the data set as a whole.
      left_out: users who were named but have too little left; they are not charged and must not be part of the release.
      job: the job it is for.
      purpose: what it is for, by whoever asked; absent if they didn't say.
      analyst: the key whose quota it counts in; absent where the ledger has none.
      expires: when it lapses; null: never.
      then: what happens to it then; null if it never lapses.
    """

    kind: Literal["reserved"] = "reserved"
    reservation: str
    spend: Spent
    charge: Charge
    users: tuple[UserName, ...]
    left_out: tuple[UserName, ...]
    job: str | None
    purpose: Annotated[Purpose | None, Field(exclude_if=is_absent)] = None
    analyst: Annotated[str | None, Field(exclude_if=is_absent)] = None
    expires: AwareDatetime | None
    then: Fate | None


@final
class Committed(Value):
    """``released``, or all of the reservation if null, was really released and costs ``charge``; the rest is free again."""

    kind: Literal["committed"] = "committed"
    reservation: str
    released: Spent | None
    charge: Charge


@final
class Released(Value):
    """Nothing of the reservation was released: all of it is free again."""

    kind: Literal["released"] = "released"
    reservation: str


@final
class Lapsed(Value):
    """The reservation wasn't settled in time. Spent: it may have been released, so it counts in full. Refunded: it was agreed that nothing
    leaves before it is committed, and now it can't be committed any more."""

    kind: Literal["lapsed"] = "lapsed"
    reservation: str
    then: Fate


@final
class Approved(Value):
    """Another key than the one that reserved agreed, so that it can be committed."""

    kind: Literal["approved"] = "approved"
    reservation: str


@final
class Renewed(Value):
    """A period of the budget began, its number counted from 0: what was committed before no longer counts, what is reserved does."""

    kind: Literal["renewed"] = "renewed"
    period: int


@final
class Closed(Value):
    """No further reservation is admitted; those that are open can still be settled."""

    kind: Literal["closed"] = "closed"


Settlement = Committed | Released | Lapsed
AnyAct = Opened | Reserved | Committed | Released | Lapsed | Closed | Approved | Renewed
Act = Annotated[AnyAct, Field(discriminator="kind")]


@final
class Entry(Value):
    r"""One entry.

    Attributes:
      ledger: id of the ledger.
      number: from 1 without gaps.
      time: when, by the clock of the machine that wrote it; the order is that of the numbers.
      by: the requesting key, by the id of the first one of its rotations; null if no key was sent or the service itself acted.
      previous: digest of the entry before.
      act: what happened.
    """

    ledger: str
    number: int
    time: AwareDatetime
    by: str | None
    previous: str
    act: Act

    def text(self) -> str:
        """The text that is stored and hashed."""
        return self.model_dump_json()


def digest(text: str) -> str:
    """SHA-256 of an entry's text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@final
class Unreadable(Value):
    """What no entry says: the stored text is none. The service never wrote it; a verification names it."""

    kind: Literal["unreadable"] = "unreadable"


def read_entry(number: int, text: str) -> Entry:
    """The entry of this number with this text. Raises EntryUnreadable."""
    try:
        return Entry.model_validate_json(text)
    except ValidationError as invalid:
        raise EntryUnreadable(number) from invalid


def read_reserved(number: int, text: str) -> Reserved:
    """What the entry of this number reserved. Raises EntryUnreadable: it isn't one that did."""
    act = read_entry(number, text).act
    if not isinstance(act, Reserved):
        raise EntryUnreadable(number)
    return act


@final
class EntryRecord(Value):
    """An entry as stored (``text``: the exact bytes that are hashed), its digest, and its meaning, if it has one."""

    number: int
    time: datetime
    sha256: str
    text: str
    act: Annotated[AnyAct | Unreadable, Field(discriminator="kind")]


def act_in(text: str) -> AnyAct | Unreadable:
    """What an entry with this text says."""
    try:
        return Entry.model_validate_json(text).act
    except ValidationError:
        return Unreadable()


@final
class EntryPage(Value):
    """Entries in order; ``next`` is the cursor of the following page, null on the last."""

    entries: tuple[EntryRecord, ...]
    next: int | None
