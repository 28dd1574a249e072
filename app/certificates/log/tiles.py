r"""The log as tiles (C2SP tlog-tiles): anybody may read all of it, compute its root, and see which plans have no certificate."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from sqlalchemy import select
from sqlalchemy.orm import Session

from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.entries import CERTIFICATE, NO_PLAN, PLAN
from zetadp.app.tables.certificate_log import LogEntryRow

HEIGHT, WIDTH = 8, 256
_PLACE = re.compile(r"((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


@final
@dataclass(frozen=True)
class Place:
    """Which tile of a level, and how many of its hashes or entries."""

    index: int
    width: int

    @property
    def text(self) -> str:
        """As addresses have it.

        >>> Place(1234067, 256).text, Place(0, 17).text
        ('x001/x234/067', '000.p/17')
        """
        digits = str(self.index)
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        groups = [digits[start : start + 3] for start in range(0, len(digits), 3)]
        named = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
        return named if self.width == WIDTH else f"{named}.p/{self.width}"


def place_in(text: str) -> Place | None:
    """The place that an address names; None if it names none."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    index = int(found[1].replace("x", "").replace("/", ""))
    place = Place(index, int(found[2] or WIDTH))
    return place if place.text == text and (found[2] is None or place.width < WIDTH) else None


def hash_tile(session: Session, level: int, place: Place) -> bytes | None:
    """A tile's hashes, one after the other; None if the log has none there."""
    first = place.index * WIDTH
    if level > 7 or first + place.width > journal.size_of(session) >> (HEIGHT * level):
        return None
    return b"".join(journal.nodes(session, [(HEIGHT * level, first + offset) for offset in range(place.width)]))


def entry_bundle(session: Session, place: Place) -> bytes | None:
    """Entries, each after its length in two bytes; None if the log has none there."""
    first = place.index * WIDTH
    if first + place.width > journal.size_of(session):
        return None
    asked = select(LogEntryRow.content).where(LogEntryRow.number >= first, LogEntryRow.number < first + place.width)
    found = [content.encode() for content in session.scalars(asked.order_by(LogEntryRow.number))]
    return b"".join(len(content).to_bytes(2, "big") + content for content in found)


def places(size: int) -> list[Place]:
    """The tiles of the lowest level that a log of this size consists of."""
    full, rest = divmod(size, WIDTH)
    return [*(Place(index, WIDTH) for index in range(full)), *([Place(full, rest)] if rest else [])]


def entries_in(bundle: bytes) -> list[bytes]:
    """Its entries. Raises ValueError if it ends within one."""
    found: list[bytes] = []
    place = 0
    while place < len(bundle):
        end = place + 2 + int.from_bytes(bundle[place : place + 2], "big")
        if end > len(bundle):
            raise ValueError("a bundle of entries ends within one")
        found.append(bundle[place + 2 : end])
        place = end
    return found


@final
@dataclass(frozen=True)
class LogReading:
    r"""What all of a log's entries say.

    Attributes:
      problems: what an honest log doesn't hold: a plan's number that is missing or stands there twice, a certificate of no plan in it.
      data_sets: how many plans each data set has, by its tag.
      uncertified: plans for which there is no certificate, likewise: of trainings that failed, were given up, or aren't over.
    """

    plans: int
    certificates: int
    unannounced: int
    problems: tuple[str, ...]
    data_sets: dict[str, int]
    uncertified: dict[str, int]


def read_entries(entries: Iterable[bytes]) -> LogReading:
    """Read a log from its beginning."""
    plans: dict[int, tuple[str, int]] = {}
    known: dict[str, int] = {}
    certified: dict[int, int] = {}
    problems: list[str] = []
    unannounced = 0
    for index, entry in enumerate(entries):
        kind, first, *rest = [*entry.decode("utf-8", "replace").splitlines(), "", ""]
        if kind == PLAN and _NUMBER.fullmatch(rest[0]):
            tag, number = first, int(rest[0])
            if number != known.get(tag, 0) + 1:
                problems.append(f"entry {index + 1}: plan {number} of data set {tag} follows plan {known.get(tag, 0)}")
            known[tag], plans[index] = max(number, known.get(tag, 0)), (tag, number)
        elif kind == CERTIFICATE and first == NO_PLAN:
            unannounced += 1
        elif kind == CERTIFICATE and _NUMBER.fullmatch(first) and int(first) in plans:
            if int(first) in certified:
                problems.append(
                    f"entries {certified[int(first)] + 1} and {index + 1}: two certificates of one plan, entry {int(first) + 1}"
                )
            certified[int(first)] = index
        else:
            problems.append(f"entry {index + 1}: neither a plan nor a certificate of one before it")
    left: dict[str, int] = {}
    for index, (tag, _) in plans.items():
        if index not in certified:
            left[tag] = left.get(tag, 0) + 1
    return LogReading(len(plans), len(certified) + unannounced, unannounced, tuple(problems), known, left)
