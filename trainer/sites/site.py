r"""A site: what it answers to a coordinator's requests. Everything is checked against what its operator signed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import Any, Final, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.trainer.sites.code import code_digest
from zetadp.trainer.sites.coding import coded
from zetadp.trainer.sites.ledger import RoundRefused, SiteLedger
from zetadp.trainer.sites.messages import (
    FIRST,
    HEAD,
    PARAMETER_BYTES,
    PARTS_BYTES,
    Opened,
    Reason,
    Refusal,
    RoundRequest,
    SecureRequest,
    digest,
    opened,
    read,
    sealed,
)
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.secure.answering import SecureAnswers
from zetadp.trainer.sites.secure.party import SharesUnreadable
from zetadp.trainer.sites.stating import Stating

MOST_NUMBERS: Final = 2**30
"""Parameters of a network, before it is known how many it has."""
Parameters = NDArray[np.float32]
Draw = Callable[[int, Parameters], NDArray[np.int64]]
"""A round's number and the parameters, (numbers,) -> the integers of a new noisy sum; called once for a round, after it was charged."""
Drawing = Callable[[Proposal], tuple[int, Draw]]
"""A proposal -> the number of its network's parameters, and how its rounds are drawn."""


@final
class Site:
    r"""Answers requests, one at a time.

    Args:
      name, key: the site's.
      agreed: gives the proposals that the operator has signed, by digest.
      drawing: prepares a proposal's training the first time that it is asked for; raises PrivacyError if it can't be trained here.
      failed: is told of an error, for the site's own log.
    """

    def __init__(
        self,
        name: str,
        key: Ed25519PrivateKey,
        ledger: SiteLedger,
        agreed: Callable[[], Mapping[str, Proposal]],
        drawing: Drawing,
        failed: Callable[[Exception], None],
    ) -> None:
        self._name, self._key, self._ledger, self._agreed, self._drawing, self._failed = name, key, ledger, agreed, drawing, failed
        self._prepared: dict[str, tuple[int, Draw]] = {}
        self._secure = SecureAnswers(name, key, ledger)
        self._one_at_a_time = Lock()
        code_digest()  # of what is loaded now: files that are replaced later aren't what runs here

    def admitted(self, head: bytes) -> int:
        """The most bytes of a frame with these first ones: as many as its signed header says, if a coordinator agreed on signed it."""
        try:
            found = opened(head)
            request = _kind(found).model_validate_json(found.header)
        except ValueError:
            return len(head)
        proposal = self._agreed().get(request.proposal)
        if proposal is None or not found.is_by(proposal.federation.coordinator):
            return len(head)
        known = self._prepared.get(request.proposal)
        numbers = min(request.numbers, MOST_NUMBERS) if known is None else known[0]
        return HEAD + PARAMETER_BYTES * numbers + (PARTS_BYTES if isinstance(request, SecureRequest) else 0)

    def answer(self, frame: bytes) -> bytes:
        """The signed answer to a request: a statement with integers, or a refusal. It never raises because of what it was sent."""
        with self._one_at_a_time:
            try:
                found = opened(frame)
                request = read(SecureRequest, found) if _kind(found) is SecureRequest else read(RoundRequest, found)
            except InvalidParameter:
                return self._refusal(FIRST, 0, "unreadable")
            try:
                return self._answer(request, found)
            except RoundRefused as refused:
                if isinstance(refused.__cause__, SharesUnreadable):
                    refused.__cause__.add_note(f"in round {request.round} of proposal {request.proposal}")
                    self._failed(refused.__cause__)
                return self._refusal(request.proposal, request.round, refused.reason)
            except Exception as error:
                # Whatever it is, the coordinator learns no more than that, and a round that was charged stays so.
                self._failed(error)
                return self._refusal(request.proposal, request.round, "failed")

    def _answer(self, request: RoundRequest | SecureRequest, found: Opened) -> bytes:
        proposal = self._agreed().get(request.proposal)
        if proposal is None:
            raise RoundRefused("not_agreed")
        if not found.is_by(proposal.federation.coordinator):
            raise RoundRefused("not_signed")
        if proposal.code != code_digest():
            raise RoundRefused("other_code")
        if request.round > proposal.plan.steps:
            raise RoundRefused("no_such_round")
        # A share of the noise is never released outside of a secure sum.
        if isinstance(request, SecureRequest) != (proposal.plan.aggregation is not None):
            raise RoundRefused("protocol")
        try:
            numbers, draw = self._ready(proposal)
        except Exception:
            # That these data can't be trained on may depend on one record, so it is never said of a round that isn't charged.
            _ = self._ledger.reserve(request.proposal, proposal.plan.event_after(1), request.round, digest(found.header))
            raise
        if request.numbers != numbers:
            raise RoundRefused("parameters")
        if isinstance(request, SecureRequest):
            return self._secure.answer(proposal, request, found, numbers, partial(_drawn, draw, numbers))
        parameters = _parameters(found.payload, numbers)
        if parameters is None:
            raise RoundRefused("parameters")
        asked = digest(found.header)
        reserved = self._ledger.reserve(request.proposal, proposal.plan.event_after(1), request.round, asked)
        if isinstance(reserved, bytes):
            return reserved
        integers = draw(request.round, parameters)
        width, payload = coded(integers)
        stating = Stating(self._name, self._key, self._ledger)
        return stating.answer(request.proposal, request.round, asked, reserved, numbers=len(integers), width=width, payload=payload)

    def _ready(self, proposal: Proposal) -> tuple[int, Draw]:
        found = self._prepared.get(proposal.digest)
        if found is None:
            found = self._prepared[proposal.digest] = self._drawing(proposal)
        return found

    def _refusal(self, proposal: str, number: int, reason: Reason) -> bytes:
        try:
            charged = self._ledger.charged(proposal)
        except (PrivacyError, OSError, sqlite3.Error) as error:
            self._failed(error)
            charged = None
        return sealed(Refusal(proposal=proposal, site=self._name, round=number, reason=reason, charged=charged), b"", self._key)


def _kind(found: Opened) -> type[RoundRequest] | type[SecureRequest]:
    return SecureRequest if found.header.startswith(b'{"kind":"secure"') else RoundRequest


def _drawn(draw: Draw, numbers: int, number: int, content: bytes) -> Callable[[], NDArray[np.int64]]:
    parameters = _parameters(content, numbers)
    if parameters is None:
        raise RoundRefused("parameters")
    return partial(draw, number, parameters)


def _parameters(payload: bytes, numbers: int) -> Parameters | None:
    """The parameters; None if they are of another length or not finite."""
    if len(payload) != PARAMETER_BYTES * numbers:
        return None
    found: NDArray[Any] = np.frombuffer(payload, "<f4").astype(np.float32)
    return found if np.isfinite(found).all() else None
