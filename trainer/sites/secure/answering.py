r"""What a site answers to the steps of secure sums: it charges a round in its ledger before it draws, and takes part once."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from zetadp.accountants.events import Event
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.ledger import Reserved, RoundRefused, SiteLedger
from zetadp.trainer.sites.messages import PARAMETER_BYTES, Opened, SecureRequest, digest
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.secure.parts import Sum
from zetadp.trainer.sites.secure.party import Party
from zetadp.trainer.sites.secure.requests import parted, sum_of
from zetadp.trainer.sites.stating import Stating

Draw = Callable[[int, bytes], Callable[[], NDArray[np.int64]]]
"""A round's number and the parameters' bytes -> what draws its integers; raises RoundRefused if these aren't the network's parameters."""


@final
class DrawingFailed(Exception):
    """A round was charged and couldn't be drawn, for ``__cause__``: the coordinator's messages were right, and the data may be why."""


@final
class SecureAnswers:
    r"""Answers one sum's steps, the last one that was begun. Its secrets are nowhere else: they end with the process.

    A step that is asked again gets the bytes that it got, as long as no other step was answered.
    """

    def __init__(self, name: str, key: Ed25519PrivateKey, ledger: SiteLedger) -> None:
        self._key, self._ledger, self._stating = key, ledger, Stating(name, key, ledger)
        self._name = name
        self._about: Sum | None = None
        self._event: Event | None = None
        self._party: Party | None = None
        self._last = ("", b"")

    def answer(self, proposal: Proposal, request: SecureRequest, found: Opened, numbers: int, draw: Draw) -> bytes:
        r"""The answer's frame.

        Args:
          found: the request, whose signature was checked.
          numbers: of the network's parameters.
        Raises:
          RoundRefused: as the ledger and ``draw`` do; protocol if this isn't the next step, or what came with it isn't right.
          DrawingFailed: in a round that is charged.
        """
        asked = digest(found.header)
        if asked == self._last[0]:
            return self._last[1]
        about = sum_of(proposal, request, numbers)
        try:
            if request.step == "keys":
                frame = self._begun(about, proposal, request)
            else:
                frame = self._next(about, request, found.payload, asked, draw)
        except InvalidParameter as error:
            self._party = None
            raise RoundRefused("protocol") from error
        self._last = asked, frame
        return frame

    def _begun(self, about: Sum, proposal: Proposal, request: SecureRequest) -> bytes:
        event = proposal.plan.event_after(1)
        self._ledger.check_next(proposal.digest, event, request.round)
        number = about.federation.number(self._name)
        assert number is not None  # the operator has signed this federation
        self._about, self._event, self._party = about, event, Party(about, number, self._key)
        return self._party.keys()

    def _next(self, about: Sum, request: SecureRequest, payload: bytes, asked: str, draw: Draw) -> bytes:
        party = self._party
        if party is None or about != self._about:
            raise RoundRefused("protocol")
        match request.step:
            case "shares":
                return party.shares(parted(payload))
            case "masked":
                return self._masked(party, request, payload, asked, draw)
            case "agreed":
                return party.agreed(_numbers(about, payload))
            case _:
                self._party = None
                return party.revealed(parted(payload))

    def _masked(self, party: Party, request: SecureRequest, payload: bytes, asked: str, draw: Draw) -> bytes:
        about, event = self._about, self._event
        assert about is not None  # of this party
        assert event is not None  # likewise
        ring, after = about.ring, PARAMETER_BYTES * about.ring.numbers
        parameters = payload[:after]
        drawing, charged = draw(request.round, parameters), list[Reserved]()

        def integers() -> NDArray[np.int64]:
            reserved = self._ledger.reserve(request.proposal, event, request.round, asked)
            if isinstance(reserved, bytes):  # of a process whose secrets are gone
                raise RoundRefused("spent_round")
            charged.append(reserved)
            try:
                return drawing()
            except InvalidParameter as error:
                raise DrawingFailed from error

        masked = ring.packed(party.masked(parted(payload[after:]), digest(parameters), integers))
        return self._stating.answer(
            request.proposal, request.round, asked, charged[0], numbers=ring.numbers, width=ring.width, payload=masked
        )


def _numbers(about: Sum, payload: bytes) -> list[int]:
    """Of the sites whose names these are. Raises InvalidParameter if one isn't of the federation."""
    found = [about.federation.number(name) for name in payload.decode(errors="replace").split()]
    if None in found:
        raise InvalidParameter("arrived", "names of sites", payload[:100])
    return [number for number in found if number is not None]
