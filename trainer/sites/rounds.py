r"""A coordinator's rounds: a signed request to all sites, and what counts of the answers that come until time is up."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.sites.coding import decoded
from zetadp.trainer.sites.frames import LOOK_SECONDS
from zetadp.trainer.sites.messages import Opened, Refusal, RoundRequest, Statement, digest, opened, read, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import FederationRecord
from zetadp.trainer.specs.algorithms.federation import Reason, SiteStanding

LARGEST: Final = 2**52
"""A release's integers are below: further ones would be rounded."""

Answers = dict[int, tuple[Statement, Opened]]


class Line(Protocol):
    """The way to all sites at once."""

    def send(self, frame: bytes) -> None:
        """To every site that is there, and to those that come until the next one. Raises OSError if the way is gone."""
        ...

    def receive(self, seconds: float) -> bytes | None:
        """The next answer of any site; None if none comes in time. Raises OSError if the way is gone."""
        ...


@final
class Log:
    """The job's log, which says each kind of trouble of a site once."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def say(self, about: str, line: str) -> None:
        r"""Writes a line.

        Args:
          about: a site's name, or what else is in trouble.
          line: whose last part after a colon is the kind of trouble.
        """
        kind = line.rsplit(":", 1)[-1]
        if (about, kind) not in self._said:
            self._said.add((about, kind))
            sys.stderr.write(f"{line}\n")


@final
@dataclass
class Rounds:
    r"""The rounds of one run.

    Attributes:
      numbers: integers in an answer.
      should_stop: of the run.
      round_seconds: how long a round waits for the sites that answered the one before.
      first_seconds: how long it waits for any site.
      now: seconds of a clock.
    """

    proposal: Proposal
    key: Ed25519PrivateKey
    line: Line
    record: FederationRecord
    numbers: int
    should_stop: Callable[[], bool]
    round_seconds: float
    first_seconds: float
    now: Callable[[], float] = time.monotonic
    _present: set[int] | None = field(default=None, init=False)
    _reasons: dict[int, Reason] = field(default_factory=dict[int, Reason], init=False)
    _log: Log = field(default_factory=Log, init=False)

    def round(self, number: int, parameters: NDArray[np.float32]) -> Mapping[int, NDArray[np.int64]]:
        r"""What arrived of a round, by sites' numbers.

        Raises:
          TrainingStopped: a stop was requested before it was over; asked again, each site gives the answer that it has given.
          InvalidParameter: no site answers.
          OSError: the way to the sites is gone.
        """
        payload = np.ascontiguousarray(parameters, "<f4").tobytes()
        request = RoundRequest(proposal=self.proposal.digest, round=number, numbers=len(parameters), payload=digest(payload))
        frame = sealed(request, payload, self.key)
        asked = digest(opened(frame).header)
        kept = self.record.kept(number)
        answers: Answers = {}
        if kept is not None:
            answers = self._answers(kept, asked)
            self._present = set(answers)
        else:
            self.line.send(frame)
            try:
                self._wait(asked, number, answers)
            except BaseException:
                self.record.write_late()
                raise
            self.record.keep(number, answers)
        return {site: decoded(found.payload, statement.numbers, statement.width) for site, (statement, found) in answers.items()}

    @property
    def answered(self) -> frozenset[int]:
        """The numbers of the sites whose answers to the last round count."""
        return frozenset(self._present or ())

    def standing(self) -> tuple[SiteStanding, ...]:
        """Of every site, after the last round."""
        return standing_of(self.record, self.answered, self._reasons)

    def _answers(self, kept: Sequence[Opened], asked: str) -> Answers:
        """What counted when the round was over, if it was asked for the same parameters."""
        found = [(read(Statement, one), one) for one in kept]
        numbers = [self.proposal.federation.number(statement.site) for statement, _ in found]
        return {number: one for number, one in zip(numbers, found, strict=True) if number is not None and one[0].request == asked}

    def _wait(self, asked: str, number: int, answers: Answers) -> None:
        sites = set(range(len(self.proposal.federation.sites)))
        refused: set[int] = set()
        self._reasons.clear()
        awaited = set(sites) if self._present is None else self._present
        began = self.now()
        patience = self.first_seconds if self._present is None else self.round_seconds
        while not awaited <= answers.keys() | refused or (not answers and refused != sites):
            if self.should_stop():
                raise TrainingStopped(number - 1)
            if self.now() - began > (patience if answers else self.first_seconds):
                break
            frame = self.line.receive(LOOK_SECONDS)
            if frame is not None:
                awaited |= self._heard(frame, asked, number, answers, refused)
        if not answers:
            raise InvalidParameter(
                "sites", "at least one that answers", f"{len(refused)} that refuse, {len(sites - refused)} that are silent"
            )
        # Whoever is missing isn't waited for again until it is heard of: a slow one's answer to this round comes in a later one.
        self._present = set(answers)

    def _heard(self, frame: bytes, asked: str, number: int, answers: Answers, refused: set[int]) -> set[int]:
        """Takes what a site sent; the site, where its signature says who it is."""
        try:
            found = opened(frame)
        except InvalidParameter:
            return set()
        site = self._take(found, asked, number, answers, refused)
        return set() if site is None else {site}

    def _take(self, found: Opened, asked: str, number: int, answers: Answers, refused: set[int]) -> int | None:
        """Takes an answer that counts; the site that it is from, if its signature says so."""
        try:
            header = read(Refusal, found) if found.header.startswith(b'{"kind":"refusal"') else read(Statement, found)
        except InvalidParameter:
            return None
        federation = self.proposal.federation
        site = federation.number(header.site)
        if site is None or not found.is_by(federation.sites[site].key):
            return None
        if isinstance(header, Refusal):
            if (header.proposal, header.round) == (self.proposal.digest, number):
                refused.add(site)
                self._reasons[site] = header.reason
                self._log.say(header.site, f"site {header.site} refuses round {number}: {header.reason}")
            return site
        if header.proposal != self.proposal.digest or site in answers:
            return site  # sent twice
        if (wrong := self._wrong(header, found.payload)) is None and (header.round, header.request) == (number, asked):
            answers[site] = header, found
            return site
        # Late or wrong, it says all the same what its site has released and charged.
        if header.round <= number:
            self.record.late(header, found)
        if wrong is not None and header.round == number:
            self._log.say(header.site, f"site {header.site} {wrong}: it counts as zero")
            refused.add(site)
        return site

    def _wrong(self, header: Statement, payload: bytes) -> str | None:
        """What keeps an answer from counting: its integers, or a ledger that would make its statements' check fail."""
        if not self.record.fits(header):
            return "says of its ledger what can't be"
        return None if self._is_release(header, payload) else f"sent something else than {self.numbers} integers below 2^52"

    def _is_release(self, header: Statement, payload: bytes) -> bool:
        if header.numbers != self.numbers:
            return False
        try:
            integers = decoded(payload, header.numbers, header.width)
        except InvalidParameter:
            return False
        return -LARGEST < int(integers.min()) <= int(integers.max()) < LARGEST


def standing_of(record: FederationRecord, answered: Set[int], reasons: Mapping[int, Reason]) -> tuple[SiteStanding, ...]:
    r"""Of every site, after a round.

    Args:
      answered: numbers of the sites whose answers count.
      reasons: why others refused.
    """
    return tuple(
        SiteStanding(
            name=one.name,
            answered=number in answered,
            refusal=None if number in answered else reasons.get(number),
            arrived=one.arrived,
            charged=one.charged,
        )
        for number, one in enumerate(record.records())
    )
