r"""A site's statement of a round: of what it released, or of what it sent under masks. On disk before it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zetadp.trainer.sites.ledger import Reserved, SiteLedger
from zetadp.trainer.sites.messages import Statement, digest, opened, sealed


@final
@dataclass(frozen=True)
class Stating:
    """Signs with a site's key, and keeps the answers in its ledger."""

    name: str
    key: Ed25519PrivateKey
    ledger: SiteLedger

    def answer(self, proposal: str, number: int, asked: str, reserved: Reserved, *, numbers: int, width: int, payload: bytes) -> bytes:
        r"""The statement's frame.

        Args:
          number: of the round.
          asked: digest of the request's header.
          numbers, width: of the integers in the payload, as a ``Statement`` has them.
        """
        statement = Statement(
            proposal=proposal,
            site=self.name,
            round=number,
            request=asked,
            numbers=numbers,
            width=width,
            size=len(payload),
            payload=digest(payload),
            previous=reserved.previous,
            charged=reserved.charged,
        )
        frame = sealed(statement, payload, self.key)
        self.ledger.answered(proposal, number, digest(opened(frame).header), frame)
        return frame
