r"""What a coordinator and a site send each other: a JSON header, its sender's signature, and numbers whose digest the header has.

A frame is the header's length (4 bytes, big-endian), the header, 64 bytes of signature over ``DOMAIN`` and the header, and the payload.
The signature is over the bytes that were sent, so nothing depends on how JSON is written.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from pydantic import Field, Strict, StringConstraints

from zetadp.mechanisms.base import Count, Tally, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.keys import SIGNATURE_BYTES, is_signed
from zetadp.trainer.specs.algorithms.federation import Reason, SiteName

DOMAIN: Final = b"zetadp federation 1\n"
LONGEST_HEADER: Final = 4096
HEAD: Final = 4 + LONGEST_HEADER + SIGNATURE_BYTES
"""Of a frame's first bytes, so many have its header and its signature."""
MOST_BYTES: Final = 8
"""Of an integer."""
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
    r"""A site's answer, which is also its statement of the round; the payload is the integers that it released.

    In a secure sum they are under masks, and ``request`` is the one for masked integers.

    Attributes:
      request: SHA-256 of the request's header.
      width: bytes of each integer, little-endian, in two's complement.
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
    width: Annotated[int, Strict(), Field(ge=1, le=MOST_BYTES)]
    payload: Sha256
    previous: Sha256
    charged: Count


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
    if not isinstance(header, Refusal) and header.payload != digest(found.payload):
        raise InvalidParameter("payload", "the one whose digest was signed", f"{len(found.payload)} bytes")
    return header


def pack(integers: NDArray[np.int64]) -> tuple[int, bytes]:
    r"""Integers in as few bytes each as all of them need, which depends on what is released alone.

    >>> pack(np.array([-128, 127]))
    (1, b'\x80\x7f')
    """
    largest = max(int(integers.max(initial=0)), -int(integers.min(initial=0)) - 1)
    width = min(MOST_BYTES, largest.bit_length() // 8 + 1)
    rows: NDArray[np.uint8] = np.ascontiguousarray(integers, "<i8").view(np.uint8).reshape(-1, 8)
    return width, rows[:, :width].tobytes()


def unpack(payload: bytes, numbers: int, width: int) -> NDArray[np.int64]:
    r"""The integers that ``pack`` packed, (numbers,). Raises InvalidParameter if there are more or fewer bytes.

    >>> unpack(b"\x80\x7f", 2, 1)
    array([-128,  127])
    """
    if len(payload) != numbers * width:
        raise InvalidParameter("payload", f"{numbers} integers of {width} bytes", f"{len(payload)} bytes")
    rows = np.frombuffer(payload, np.uint8).reshape(numbers, width)
    whole: NDArray[Any] = np.empty((numbers, 8), np.uint8)
    whole[:, :width] = rows
    whole[:, width:] = np.where(rows[:, -1:] & 0x80, 0xFF, 0)
    return whole.view("<i8").reshape(-1).astype(np.int64, copy=False)
