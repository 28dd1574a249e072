r"""A coordinator's secure sums, one a round, over the same line as plain rounds."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from pydantic import TypeAdapter

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.sites.frames import LOOK_SECONDS
from zetadp.trainer.sites.keys import is_signed
from zetadp.trainer.sites.messages import Opened, Refusal, SecureRequest, Statement, Step, digest, opened, read, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import FederationRecord
from zetadp.trainer.sites.rounds import Line, Log, standing_of
from zetadp.trainer.sites.secure.masks import Residues, Ring
from zetadp.trainer.sites.secure.parts import DOMAIN, Part
from zetadp.trainer.sites.secure.requests import joined, sum_of
from zetadp.trainer.sites.secure.summing import Summing
from zetadp.trainer.specs.algorithms.federation import Reason, SiteStanding

SUMS: Final = "sums"
_ANSWERS: TypeAdapter[Part | Statement | Refusal] = TypeAdapter(Part | Statement | Refusal)
"""Whatever a site sends. Nobody has signed it when it is read, so its depth is bounded, as this reader bounds it."""


@final
class _Void(Exception):
    """The round gives nothing: too few sites are left, and some have charged it."""


@final
@dataclass
class SecureRounds:
    r"""The rounds of one run.

    A round in which too few sites stay to its end gives nothing: what they drew is charged and lost.

    Attributes:
      folder: for sums whose round no checkpoint holds yet.
      numbers: of the network's parameters.
      should_stop: of the run.
      round_seconds: how long a step waits for the sites that answered the one before.
      first_seconds: how long the first step waits for enough sites.
      now: seconds of a clock.
    """

    proposal: Proposal
    key: Ed25519PrivateKey
    line: Line
    record: FederationRecord
    folder: Path
    numbers: int
    should_stop: Callable[[], bool]
    round_seconds: float
    first_seconds: float
    now: Callable[[], float] = time.monotonic
    _present: set[int] | None = field(default=None, init=False)
    _log: Log = field(default_factory=Log, init=False)
    answered: frozenset[int] = field(default=frozenset(), init=False)
    """The numbers of the sites in the last round's sum."""
    _reasons: dict[int, Reason] = field(default_factory=dict[int, Reason], init=False)
    _heard: set[int] = field(default_factory=set[int], init=False)
    _number: int = field(default=0, init=False)
    _session: str = field(default="", init=False)

    def round(self, number: int, parameters: NDArray[np.float32]) -> Mapping[int, NDArray[np.int64]]:
        r"""The sum of what arrived of a round, as the one of the first site in it, and zeros for the others; nothing for a void round.

        Raises:
          TrainingStopped: a stop was requested before it was over: sites that have drawn for it won't again.
          InvalidParameter: too few sites answer, or too many refuse.
          OSError: the way to the sites is gone.
        """
        kept = self._kept(number)
        if kept is None:
            self._number, self._session = number, secrets.token_hex(32)
            self._reasons.clear()
            try:
                sites, total = self._sum(parameters)
            except _Void:
                sites, total = [], np.zeros(self.numbers, np.int64)
                self._present = set(range(len(self.proposal.federation.sites)))
                self._log.say("round", f"round {number} gives nothing: fewer than {self._least} sites stayed to its end")
            finally:
                self.record.write_late()
            self._keep(number, sites, total)
        else:
            sites, total = kept
        # Not before the sum is there: what a void round drew counts nowhere.
        self.record.count(number, [self.proposal.federation.sites[site].name for site in sites])
        self.answered = frozenset(sites)
        nothing = np.broadcast_to(np.int64(0), total.shape)
        return {site: nothing if place else total for place, site in enumerate(sites)}

    @property
    def _least(self) -> int:
        aggregation = self.proposal.plan.aggregation
        assert aggregation is not None  # whoever made this has looked
        return aggregation.least(len(self.proposal.federation.sites))

    def _sum(self, parameters: NDArray[np.float32]) -> tuple[list[int], NDArray[np.int64]]:
        asked, frame = self._request("keys", b"")
        about = sum_of(self.proposal, asked, self.numbers)
        summing = Summing(about)
        keys = self._keys(frame, summing)
        summing.take_keys(keys.values())
        shares = self._gathered("shares", joined(list(keys.values())), set(keys), summing.counts_shares)
        summing.take_shares(self._enough(shares))
        content = np.ascontiguousarray(parameters, "<f4").tobytes()
        arrived = self._masked(content + joined(list(shares.values())), set(shares), about.ring)
        names = " ".join(self.proposal.federation.sites[site].name for site in sorted(arrived)).encode()
        summing.take_masked(arrived, digest(content))
        agreed = self._gathered("agreed", names, set(arrived), summing.counts_agreed)
        revealed = self._gathered("revealed", joined(self._enough(agreed)), set(agreed), summing.counts_revealed)
        try:
            total = summing.total(self._enough(revealed))
        except InvalidParameter as error:  # the shares of more than one are wrong, or a site handed out wrong ones
            self._log.say("shares", str(error))
            raise _Void from error
        if summing.wrong is not None:
            name = self.proposal.federation.sites[summing.wrong].name
            self._log.say(name, f"site {name} revealed wrong shares, which the others' make up for")
        return sorted(arrived), total

    def _enough(self, frames: Mapping[int, bytes]) -> list[bytes]:
        if len(frames) < self._least:
            raise _Void
        return [frames[site] for site in sorted(frames)]

    def _keys(self, frame: bytes, summing: Summing) -> Mapping[int, bytes]:
        """Of enough sites, for whom it waits long."""
        every = set(range(len(self.proposal.federation.sites)))
        # Whoever was missing isn't waited for again until it is heard of.
        wanted = every if self._present is None else self._present | self._heard
        self._heard.clear()
        frames, refused = self._wait("keys", frame, wanted, summing.counts_keys, self._least)
        if len(frames) >= self._least:
            return dict(sorted(frames.items()))
        if "spent_round" in refused.values():  # by a coordinator that died since
            raise _Void
        silent = len(every) - len(frames) - len(refused)
        got = f"{len(refused)} that refuse, {silent} that are silent"
        raise InvalidParameter("sites", f"at least {self._least} that answer", got)

    def _gathered(self, step: Step, payload: bytes, wanted: set[int], counts: Callable[[bytes], int | None]) -> Mapping[int, bytes]:
        _, frame = self._request(step, payload)
        frames, _ = self._wait(step, frame, wanted, counts, 0)
        return dict(sorted(frames.items()))

    def _masked(self, payload: bytes, wanted: set[int], ring: Ring) -> Mapping[int, Residues]:
        _, frame = self._request("masked", payload)
        about = digest(opened(frame).header)
        answers: dict[int, tuple[Statement, Opened]] = {}
        arrived: dict[int, Residues] = {}

        def counts(sent: bytes) -> int | None:
            stated = self._stated(sent)
            if stated is None:
                return None
            site, statement, found = stated
            is_asked = (statement.request, statement.round) == (about, self._number)
            is_whole = (statement.numbers, statement.width, statement.size) == (ring.numbers, ring.width, ring.size)
            if not (is_asked and is_whole and self.record.fits(statement)):
                return None
            try:
                arrived.setdefault(site, ring.unpacked(found.payload))
            except InvalidParameter:  # bits of no integer
                return None
            answers.setdefault(site, (statement, found))
            return site

        try:
            self._wait("masked", frame, wanted, counts, 0)
        finally:
            # Sites have charged it, whatever comes of it.
            self.record.state(answers)
        self._present = set(answers)
        if len(answers) < self._least:
            raise _Void
        return arrived

    def _stated(self, sent: bytes) -> tuple[int, Statement, Opened] | None:
        """A site's statement in this federation."""
        try:
            statement = read(Statement, found := opened(sent))
        except InvalidParameter:
            return None
        site = self.proposal.federation.number(statement.site)
        if site is None or not found.is_by(self.proposal.federation.sites[site].key):
            return None
        return (site, statement, found) if statement.proposal == self.proposal.digest else None

    def _request(self, step: Step, payload: bytes) -> tuple[SecureRequest, bytes]:
        request = SecureRequest(
            proposal=self.proposal.digest,
            round=self._number,
            session=self._session,
            step=step,
            numbers=self.numbers,
            payload=digest(payload),
        )
        return request, sealed(request, payload, self.key)

    def _wait(
        self, step: Step, frame: bytes, wanted: set[int], counts: Callable[[bytes], int | None], least: int
    ) -> tuple[Mapping[int, bytes], Mapping[int, Reason]]:
        """Until all who are wanted answered or refused, or time is up; for ``least`` sites it waits ``first_seconds``."""
        self.line.send(frame)
        frames, refused = dict[int, bytes](), dict[int, Reason]()
        sites = len(self.proposal.federation.sites)
        began = self.now()
        while not wanted <= frames.keys() | refused.keys() or len(frames) < least:
            if self.should_stop():
                raise TrainingStopped(self._number - 1)
            passed = self.now() - began
            is_long = step == "keys" and (self._present is None or len(frames) < least)
            if passed > (self.first_seconds if is_long else self.round_seconds) or sites - len(refused) < least:
                break
            sent = self.line.receive(LOOK_SECONDS)
            if sent is None:
                continue
            if (site := counts(sent)) is not None:
                frames.setdefault(site, sent)
            elif (found := self._refusal(sent)) is not None:
                refused[found[0]] = found[1]
                # Whoever has refused one step refuses the next ones too, since it is no part of the sum any more: the first reason is why.
                self._reasons.setdefault(found[0], found[1])
                name = self.proposal.federation.sites[found[0]].name
                self._log.say(name, f"site {name} refuses {step}: {found[1]}")
            elif (stated := self._stated(sent)) is not None:
                # Late or wrong, it says all the same what its site has charged.
                self._heard.add(stated[0])
                if stated[1].round <= self._number:
                    self.record.late(stated[1], stated[2])
            elif (site := self._sender(sent)) is not None:
                self._heard.add(site)
                name = self.proposal.federation.sites[site].name
                self._log.say(name, f"site {name} sent what is late or wrong in {step}")
        return frames, refused

    def _sender(self, sent: bytes) -> int | None:
        """Of another answer that is late: it is there again."""
        try:
            found = opened(sent)
            site = self.proposal.federation.number(_ANSWERS.validate_json(found.header).site)
        except ValueError:
            return None
        key = None if site is None else self.proposal.federation.sites[site].key
        signed = key is not None and (found.is_by(key) or is_signed(key, found.signature, DOMAIN + found.header))
        return site if signed else None

    def _refusal(self, sent: bytes) -> tuple[int, Reason] | None:
        try:
            refusal = read(Refusal, found := opened(sent))
        except InvalidParameter:
            return None
        site = self.proposal.federation.number(refusal.site)
        if site is None or not found.is_by(self.proposal.federation.sites[site].key):
            return None
        return (site, refusal.reason) if (refusal.proposal, refusal.round) == (self.proposal.digest, self._number) else None

    def _kept(self, number: int) -> tuple[list[int], NDArray[np.int64]] | None:
        """What an earlier attempt at the run kept of a round; nothing of one whose sum it hadn't got."""
        path = self.folder / SUMS / str(number)
        if path.exists():
            head, _, content = path.read_bytes().partition(b"\n")
            return [int(site) for site in head.split()], np.frombuffer(content, "<i8").astype(np.int64)
        return ([], np.zeros(self.numbers, np.int64)) if self.record.stated(number) else None

    def _keep(self, number: int, sites: Iterable[int], total: NDArray[np.int64]) -> None:
        head = " ".join(map(str, sites)).encode()
        write_atomically(self.folder / SUMS / str(number), head + b"\n" + total.astype("<i8").tobytes())

    def standing(self) -> tuple[SiteStanding, ...]:
        """Of every site, after the last round."""
        return standing_of(self.record, self.answered, self._reasons)

    def forget(self, step: int) -> None:
        """A checkpoint holds everything up to this step."""
        for path in (self.folder / SUMS).glob("[0-9]*"):
            if int(path.name) <= step:
                path.unlink()
