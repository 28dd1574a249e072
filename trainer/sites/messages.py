r"""What a coordinator and a site send each other: a JSON header, its sender's signature, and numbers whose digest the header has.

A frame is the header's length (4 bytes, big-endian), the header, 64 bytes of signature over ``DOMAIN`` and the header, and the payload.
The signature is over the bytes that were sent, so nothing depends on how JSON is written.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Literal, NamedTuple, Self, TypeVar, final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, Strict, StringConstraints, model_validator

from zetadp.mechanisms.base import Count, Tally, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.coding import MOST_BITS, packed_bytes
from zetadp.trainer.sites.keys import SIGNATURE_BYTES, is_signed
from zetadp.trainer.specs.algorithms.federation import Reason, SiteName

DOMAIN: Final = b"zetadp federation 1\n"
LONGEST_HEADER: Final = 4096
HEAD: Final = 4 + LONGEST_HEADER + SIGNATURE_BYTES
"""Of a frame's first bytes, so many have its header and its signature."""
MOST_BYTES: Final = 8
"""Of an integer, on average."""
PARAMETER_BYTES: Final = 4
"""Of a network's parameter, in float32."""
PARTS_BYTES: Final = 2**21
"""Of what sites send each other in a step of a secure sum, more than 64 sites' shares take."""
FIRST: Final = "0" * 64
"""Stands for the statement before a site's first."""

Sha256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]


@final
class RoundRequest(Value):
    r"""The coordinator asks for the noisy sum of a round; the payload is the parameters, (numbers,) float32, little-endian.

    Attributes:
      proposal: the digest of the proposal that all sites agreed to.
      payload: SHA-256.
    """

    kind: Literal["round"] = "round"
    proposal: Sha256
    round: Count
    numbers: Count
    payload: Sha256


Step = Literal["keys", "shares", "masked", "agreed", "revealed"]


@final
class SecureRequest(Value):
    r"""The coordinator asks for a step of a round's secure sum (``secure/party.py``).

    The payload is empty for keys; all sites' messages of keys for shares; the parameters as in a ``RoundRequest``, and all sites' messages
    of shares, for masked; the names of the sites whose integers arrived for agreed; all sites' messages of agreed for revealed.

    Attributes:
      proposal: the digest of the proposal that all sites agreed to.
      session: the same in all steps of a sum, new for each attempt at one.
      numbers: of the network's parameters.
      payload: SHA-256.
    """

    kind: Literal["secure"] = "secure"
    proposal: Sha256
    round: Count
    session: Sha256
    step: Step
    numbers: Count
    payload: Sha256


@final
class Statement(Value):
    r"""A site's answer, which is also its statement of the round; the payload is the integers that it released, in Rice's code.

    In a secure sum they are under masks, each of as many bits as the sum, and ``request`` is the one for masked integers.

    Attributes:
      request: SHA-256 of the request's header.
      width: bits of each integer under masks; in Rice's code the low bits of each, which are written as they are (``coding``).
      size: bytes of the payload.
      payload: SHA-256.
      previous: SHA-256 of the header of the statement before it in this federation.
      charged: rounds of this federation that the site's ledger has charged, this one included.
    """

    kind: Literal["statement"] = "statement"
    proposal: Sha256
    site: SiteName
    round: Count
    request: Sha256
    numbers: Count
    width: Annotated[int, Strict(), Field(ge=0, le=MOST_BITS)]
    size: Count
    payload: Sha256
    previous: Sha256
    charged: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.size < (least := packed_bytes(self.numbers, max(1, self.width))):
            raise InvalidParameter("size", f"at least {least} bytes, of {self.numbers} integers of {self.width} bits", self.size)
        return self


@final
class Refusal(Value):
    r"""A site's refusal; ``round`` is 0 where none was read. It has no payload.

    Attributes:
      charged: rounds of this federation that the site's ledger has charged; absent where it can't be read.
    """

    kind: Literal["refusal"] = "refusal"
    proposal: Sha256
    site: SiteName
    round: Tally
    reason: Reason
    charged: Tally | None


class Opened(NamedTuple):
    """A frame in its parts."""

    header: bytes
    signature: bytes
    payload: bytes

    def is_by(self, public: str) -> bool:
        """Whether this key signed the header."""
        return is_signed(public, self.signature, DOMAIN + self.header)


_Header = TypeVar("_Header", RoundRequest, SecureRequest, Statement, Refusal)


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sealed(header: RoundRequest | SecureRequest | Statement | Refusal, payload: bytes, key: Ed25519PrivateKey) -> bytes:
    """The signed frame."""
    return signed(DOMAIN, header, payload, key)


def signed(domain: bytes, header: Value, payload: bytes, key: Ed25519PrivateKey) -> bytes:
    """The frame of a header that is signed after ``domain``, which no other kind of message has."""
    text = header.model_dump_json().encode()
    return len(text).to_bytes(4, "big") + text + key.sign(domain + text) + payload


def opened(frame: bytes) -> Opened:
    """The parts of a frame, of which nothing is checked yet. Raises InvalidParameter if it isn't one."""
    length = int.from_bytes(frame[:4], "big")
    begins = 4 + length + SIGNATURE_BYTES
    if len(frame) < begins or not 0 < length <= LONGEST_HEADER:
        raise InvalidParameter("frame", "a header, a signature and a payload", f"{len(frame)} bytes")
    return Opened(frame[4 : 4 + length], frame[4 + length : begins], frame[begins:])


def read(kind: type[_Header], found: Opened) -> _Header:
    r"""The header, whose payload has its digest.

    Raises:
      InvalidParameter: it is another kind of message, or the payload isn't the one that was signed.
    """
    try:
        header = kind.model_validate_json(found.header)
    except ValueError as error:
        raise InvalidParameter("header", f"that of a {kind.__name__}", found.header[:100]) from error
    if isinstance(header, Statement) and header.size != len(found.payload):
        raise InvalidParameter("payload", f"{header.size} bytes, as was signed", f"{len(found.payload)} bytes")
    if not isinstance(header, Refusal) and header.payload != digest(found.payload):
        raise InvalidParameter("payload", "the one whose digest was signed", f"{len(found.payload)} bytes")
    return header
