r"""What a coordinator keeps of its sites' answers: their statements, and the answers to rounds that no checkpoint holds yet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple, final

from pydantic import Strict, StringConstraints

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.sites.forms import Form
from zetadp.trainer.sites.keys import SIGNATURE_BYTES
from zetadp.trainer.sites.messages import FIRST, LONGEST_HEADER, Opened, Statement, digest, opened, read
from zetadp.trainer.specs.algorithms.federation import FederatedSite, Federation, SiteRecord

STATEMENTS: Final = "statements.jsonl"
ROUNDS: Final = "rounds"


class Stated(NamedTuple):
    """A site's statement, the frame that it came in, and whether its integers counted."""

    statement: Statement
    found: Opened
    counts: bool


@final
class _Line(Value):
    """Of ``statements.jsonl``. Anybody may have written it: this reader bounds how deep it is, as ``json`` doesn't."""

    statement: Annotated[str, StringConstraints(strict=True, max_length=LONGEST_HEADER)]
    signature: Annotated[str, StringConstraints(strict=True, pattern=rf"^[0-9a-f]{{{2 * SIGNATURE_BYTES}}}$")]
    counts: Annotated[bool, Strict()]


@final
class FederationRecord:
    r"""In a run's folder; what an earlier attempt kept is taken up.

    A run that continues from its checkpoint takes the rounds after it from here: a site keeps its last answer alone, and would refuse to
    give an earlier one again. Every site's first statement of a round is kept, whether its integers counted or not.
    """

    def __init__(self, workdir: Path, federation: Federation) -> None:
        self._statements, self._rounds, self._federation = workdir / STATEMENTS, workdir / ROUNDS, federation
        self._known: dict[str, dict[int, Stated]] = {site.name: {} for site in federation.sites}
        # By site and round: what came besides, until it is written. However much a site sends, it is no more than this.
        self._late: dict[tuple[str, int], Stated] = {}
        *lines, unfinished = self._statements.read_bytes().split(b"\n") if self._statements.exists() else [b""]
        for line in lines:
            stated = read_line(line)
            self._known[stated.statement.site][stated.statement.round] = stated
        if unfinished:  # a crash cut it off
            os.truncate(self._statements, self._statements.stat().st_size - len(unfinished))
        # A round is over once its answers are on disk; a crash may have kept their statements from being written after them.
        found = [one for path in self._rounds.glob("[0-9]*") for one in _split(path.read_bytes())]
        self._note([Stated(read(Statement, opened(frame)), opened(frame), counts=True) for frame in found])

    def kept(self, number: int) -> list[Opened] | None:
        """The answers that arrived to a round, if it is over; None if it isn't, or its checkpoint was written."""
        path = self._rounds / str(number)
        return [opened(frame) for frame in _split(path.read_bytes())] if path.exists() else None

    def keep(self, number: int, answers: Mapping[int, tuple[Statement, Opened]]) -> None:
        """The round is over, and these answers count. Both are on disk when it returns, and so is what came late."""
        frames = [_joined(found) for _, found in answers.values()]
        write_atomically(self._rounds / str(number), b"".join(len(frame).to_bytes(8, "big") + frame for frame in frames))
        self._note([Stated(statement, found, counts=True) for statement, found in answers.values()])
        self.write_late()

    def late(self, statement: Statement, found: Opened) -> None:
        """A site stated this besides, of this round or of an earlier one. What doesn't fit the rest (``fits``) is left out."""
        if self.fits(statement):
            self._late.setdefault((statement.site, statement.round), Stated(statement, found._replace(payload=b""), counts=False))

    def write_late(self) -> None:
        """What came late is on disk when it returns."""
        late, self._late = self._late, {}
        self._note(list(late.values()))

    def state(self, answers: Mapping[int, tuple[Statement, Opened]]) -> None:
        """Sites have charged a secure sum's round, whatever comes of it. On disk when it returns, as uncounted until ``count``."""
        self._note([Stated(statement, found, counts=False) for statement, found in answers.values()])
        self.write_late()

    def stated(self, number: int) -> bool:
        """Whether any site is known to have stated this round."""
        return any(number in known for known in self._known.values())

    def count(self, number: int, sites: Iterable[str]) -> None:
        """The round's secure sum is there, and has these sites' integers in it. On disk when it returns."""
        known = [self._known[site][number] for site in sites if number in self._known[site]]
        counted = [one._replace(counts=True) for one in known if not one.counts]
        for one in counted:
            self._known[one.statement.site][number] = one
        self._append(counted)

    def _note(self, stated: Sequence[Stated]) -> None:
        """Adds what isn't there yet."""
        added = list[Stated]()
        for whole in stated:
            # Integers would fill the memory, a round after the other.
            one = whole._replace(found=whole.found._replace(payload=b""))
            if self.fits(one.statement):
                added.append(one)
                self._known[one.statement.site][one.statement.round] = one
        self._append(added)

    def _append(self, stated: Sequence[Stated]) -> None:
        """Lines, of which a site's last one of a round holds."""
        if stated:
            with self._statements.open("a") as file:
                file.writelines(f"{_line(one)}\n" for one in stated)
                file.flush()
                os.fsync(file.fileno())

    def forget(self, step: int) -> None:
        """A checkpoint holds everything up to this step."""
        for path in self._rounds.glob("[0-9]*"):
            if int(path.name) <= step:
                path.unlink()

    def finished(self, artifacts: Path) -> tuple[SiteRecord, ...]:
        """Writes all statements to the artifacts, in the order of rounds and sites, and counts them."""
        self.write_late()
        places = {site.name: number for number, site in enumerate(self._federation.sites)}
        every = [one for known in self._known.values() for one in known.values()]
        every.sort(key=lambda one: (one.statement.round, places[one.statement.site]))
        (artifacts / STATEMENTS).write_text("".join(f"{_line(one)}\n" for one in every))
        return self.records()

    def records(self) -> tuple[SiteRecord, ...]:
        """What each site's statements say so far."""
        known = {name: [one for _, one in sorted(stated.items())] for name, stated in self._known.items()}
        return tuple(_record(site, known[site.name]) for site in self._federation.sites)

    def fits(self, statement: Statement) -> bool:
        """Whether a site hasn't stated this round, and says of its ledger what can be so after and before its other statements."""
        known, charged = self._known[statement.site], statement.charged
        before = max((number for number in known if number < statement.round), default=None)
        after = min((number for number in known if number > statement.round), default=None)
        least = 0 if before is None else known[before].statement.charged
        most = statement.round if after is None else min(statement.round, known[after].statement.charged - 1)
        return statement.round not in known and least < charged <= most


def checked_statements(
    sites: Sequence[FederatedSite], proposal: str, rounds: int, form: Form, content: bytes
) -> tuple[tuple[SiteRecord, ...], tuple[str, ...]]:
    r"""What a file's statements say of each site, and where one doesn't follow the one before: a statement there never arrived.

    Args:
      sites: of the federation, in their order.
      proposal: its digest.
      rounds: that were agreed on.
      form: of what counts (``form_of``).
      content: of ``statements.jsonl``.
    Raises:
      InvalidParameter: a line isn't a statement of a site of this federation, signed by it; two are of one round, or charge wrongly; or one
        is said to count though its integers can't.
    """
    keys = {site.name: site.key for site in sites}
    known: dict[str, list[Stated]] = {name: [] for name in keys}
    gaps: list[str] = []
    for line in content.splitlines():
        statement, found, counts = stated = read_line(line)
        if statement.site not in keys or not found.is_by(keys[statement.site]):
            raise InvalidParameter("statement", "signed by a site of the federation", line[:100])
        if statement.proposal != proposal or statement.round > rounds:
            raise InvalidParameter("statement", f"of proposal {proposal} and a round up to {rounds}", line[:200])
        if counts and not form(statement.numbers, statement.width):
            raise InvalidParameter("statement", "of as many integers, of as many bits, as the plan's sums have", line[:200])
        before = known[statement.site][-1] if known[statement.site] else None
        past = (0, 0) if before is None else (before.statement.round, before.statement.charged)
        if not past[0] < statement.round or not past[1] < statement.charged <= statement.round:
            raise InvalidParameter("statement", f"after round {past[0]}, with more than {past[1]} rounds charged", line[:200])
        if statement.previous != (FIRST if before is None else digest(before.found.header)) or statement.charged != past[1] + 1:
            gaps.append(f"{statement.site}, before round {statement.round}: rounds were charged whose statements aren't here")
        known[statement.site].append(stated)
    return tuple(_record(site, known[site.name]) for site in sites), tuple(gaps)


def _record(site: FederatedSite, stated: Sequence[Stated]) -> SiteRecord:
    """``stated``: by this site, in the order of rounds."""
    arrived = sum(one.counts for one in stated)
    return SiteRecord(
        name=site.name,
        key=site.key,
        arrived=arrived,
        uncounted=len(stated) - arrived,
        sent_bytes=sum(one.statement.size for one in stated),
        charged=stated[-1].statement.charged if stated else None,
        statement=digest(stated[-1].found.header) if stated else None,
    )


def read_line(line: bytes) -> Stated:
    """A line of ``statements.jsonl``. Raises InvalidParameter if it isn't one; its signature isn't checked."""
    try:
        document = _Line.model_validate_json(line)
        found = Opened(document.statement.encode(), bytes.fromhex(document.signature), b"")
        return Stated(Statement.model_validate_json(found.header), found, document.counts)
    except ValueError as error:
        raise InvalidParameter("statement", "a line of statements.jsonl", line[:100]) from error


def _line(one: Stated) -> str:
    return json.dumps({"statement": one.found.header.decode(), "signature": one.found.signature.hex(), "counts": one.counts})


def _joined(found: Opened) -> bytes:
    return len(found.header).to_bytes(4, "big") + found.header + found.signature + found.payload


def _split(content: bytes) -> list[bytes]:
    frames, place = list[bytes](), 0
    while place < len(content):
        length = int.from_bytes(content[place : place + 8], "big")
        frames.append(content[place + 8 : place + 8 + length])
        place += 8 + length
    return frames


__all__ = ["STATEMENTS", "FederationRecord", "Stated", "checked_statements", "read_line"]
