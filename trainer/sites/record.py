r"""What a coordinator keeps of its sites' answers: their statements, and the answers to rounds that no checkpoint holds yet."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.messages import FIRST, Opened, Statement, digest, opened
from zetadp.trainer.specs.algorithms.federation import Federation, SiteRecord

STATEMENTS: Final = "statements.jsonl"
ROUNDS: Final = "rounds"


@final
class FederationRecord:
    r"""In a run's folder; what an earlier attempt kept is taken up.

    A run that continues from its checkpoint takes the rounds after it from here: a site keeps its last answer alone, and would refuse to
    give an earlier one again.
    """

    def __init__(self, workdir: Path, federation: Federation) -> None:
        self._statements, self._rounds, self._federation = workdir / STATEMENTS, workdir / ROUNDS, federation
        self._known: dict[tuple[str, int], str] = {}
        if not self._statements.exists():
            return
        *lines, unfinished = self._statements.read_bytes().split(b"\n")
        for line in lines:
            statement, _ = read_line(line)
            self._known[statement.site, statement.round] = line.decode()
        if unfinished:  # a crash cut it off
            os.truncate(self._statements, self._statements.stat().st_size - len(unfinished))

    def kept(self, number: int) -> list[Opened] | None:
        """The answers that arrived to a round, if it is over; None if it isn't, or its checkpoint was written."""
        path = self._rounds / str(number)
        return [opened(frame) for frame in _split(path.read_bytes())] if path.exists() else None

    def keep(self, number: int, answers: Mapping[int, tuple[Statement, Opened]]) -> None:
        """The round is over, and these answers count."""
        self._rounds.mkdir(exist_ok=True)
        lines = {(statement.site, number): _line(found) for statement, found in answers.values()}
        with self._statements.open("a") as file:
            file.writelines(f"{line}\n" for place, line in lines.items() if place not in self._known)
        self._known |= lines
        frames = [_joined(found) for _, found in answers.values()]
        unfinished = self._rounds / f".{number}"
        unfinished.write_bytes(b"".join(len(frame).to_bytes(8, "big") + frame for frame in frames))
        unfinished.replace(self._rounds / str(number))

    def forget(self, step: int) -> None:
        """A checkpoint holds everything up to this step."""
        for path in self._rounds.glob("[0-9]*"):
            if int(path.name) <= step:
                path.unlink()

    def finished(self, artifacts: Path) -> tuple[SiteRecord, ...]:
        """Writes all statements to the artifacts, in the order of rounds and sites, and counts them."""
        order = sorted(self._known, key=lambda place: (place[1], self._federation.number(place[0]) or 0))
        (artifacts / STATEMENTS).write_text("".join(f"{self._known[place]}\n" for place in order))
        return tuple(self._counted(site.name, site.key) for site in self._federation.sites)

    def charged_before(self, name: str, number: int) -> int:
        """How many rounds a site's last statement before a round says were charged; 0 where there is none."""
        rounds = [known for site, known in self._known if site == name and known < number]
        return read_line(self._known[name, max(rounds)].encode())[0].charged if rounds else 0

    def _counted(self, name: str, key: str) -> SiteRecord:
        rounds = sorted(number for site, number in self._known if site == name)
        if not rounds:
            return SiteRecord(name=name, key=key, arrived=0, charged=0)
        last, found = read_line(self._known[name, rounds[-1]].encode())
        return SiteRecord(name=name, key=key, arrived=len(rounds), charged=last.charged, statement=digest(found.header))


def checked_statements(
    federation: Federation, proposal: str, rounds: int, content: bytes
) -> tuple[tuple[SiteRecord, ...], tuple[str, ...]]:
    r"""What a file's statements say of each site, and where one doesn't follow the one before: an answer there never arrived.

    Args:
      proposal: its digest.
      rounds: that were agreed on.
      content: of ``statements.jsonl``.
    Raises:
      InvalidParameter: a line isn't a statement of a site of this federation, signed by it; or two are of one round, or charge wrongly.
    """
    last: dict[str, tuple[Statement, Opened]] = {}
    arrived: dict[str, int] = {}
    gaps: list[str] = []
    for line in content.splitlines():
        statement, found = read_line(line)
        number = federation.number(statement.site)
        if number is None or not found.is_by(federation.sites[number].key):
            raise InvalidParameter("statement", "signed by a site of the federation", line[:100])
        if statement.proposal != proposal or statement.round > rounds:
            raise InvalidParameter("statement", f"of proposal {proposal} and a round up to {rounds}", line[:200])
        before = last.get(statement.site)
        past = (0, 0) if before is None else (before[0].round, before[0].charged)
        if not past[0] < statement.round or not past[1] < statement.charged <= statement.round:
            raise InvalidParameter("statement", f"after round {past[0]}, with more than {past[1]} rounds charged", line[:200])
        if statement.previous != (FIRST if before is None else digest(before[1].header)) or statement.charged != past[1] + 1:
            gaps.append(f"{statement.site}, before round {statement.round}: rounds were charged whose answers aren't here")
        last[statement.site] = statement, found
        arrived[statement.site] = arrived.get(statement.site, 0) + 1
    records = (
        SiteRecord(
            name=site.name,
            key=site.key,
            arrived=arrived.get(site.name, 0),
            charged=last[site.name][0].charged if site.name in last else 0,
            statement=digest(last[site.name][1].header) if site.name in last else None,
        )
        for site in federation.sites
    )
    return tuple(records), tuple(gaps)


def read_line(line: bytes) -> tuple[Statement, Opened]:
    """A line of ``statements.jsonl``. Raises InvalidParameter if it isn't one; its signature isn't checked."""
    try:
        document: dict[str, Any] = json.loads(line)
        found = Opened(document["statement"].encode(), bytes.fromhex(document["signature"]), b"")
        return Statement.model_validate_json(found.header), found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidParameter("statement", "a line of statements.jsonl", line[:100]) from error


def _line(found: Opened) -> str:
    return json.dumps({"statement": found.header.decode(), "signature": found.signature.hex()})


def _joined(found: Opened) -> bytes:
    return len(found.header).to_bytes(4, "big") + found.header + found.signature + found.payload


def _split(content: bytes) -> list[bytes]:
    frames, place = list[bytes](), 0
    while place < len(content):
        length = int.from_bytes(content[place : place + 8], "big")
        frames.append(content[place + 8 : place + 8 + length])
        place += 8 + length
    return frames


__all__ = ["STATEMENTS", "FederationRecord", "checked_statements", "read_line"]
