r"""The signed messages of a secure sum, and what follows from a list of them, on both sides alike.

Everything after the keys names the roster, the digest of all keys. A site checks that its own new keys are in it: so nothing that was sent
for another sum, or another attempt at this one, can be passed off as part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple, final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.keys import is_signed
from zetadp.trainer.sites.messages import FIRST, Sha256, digest, opened, signed
from zetadp.trainer.sites.secure.masks import Ring
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation
from zetadp.trainer.specs.algorithms.federation import Federation, SiteName

DOMAIN: Final = b"zetadp secure aggregation 1\n"
KEY_BYTES: Final = 32

Kind = Literal["keys", "shares", "agreed", "revealed"]


@final
class Part(Value):
    r"""The header of a site's message.

    Attributes:
      session: of the sum, the same for all sites.
      roster: digest of all sites' keys; zeros in a message of keys.
      payload: SHA-256.
    """

    kind: Kind
    session: Sha256
    roster: Sha256
    site: SiteName
    payload: Sha256


@final
class Sum(Value):
    r"""What all participants know of a sum beforehand.

    Attributes:
      session: a digest that no other sum of these sites has.
    """

    federation: Federation
    aggregation: SecureAggregation
    session: Sha256
    ring: Ring

    @property
    def least(self) -> int:
        """How many sites have to stay."""
        return self.aggregation.least(len(self.federation.sites))


def sealed(part: Part, payload: bytes, key: Ed25519PrivateKey) -> bytes:
    """The signed frame."""
    return signed(DOMAIN, part, payload, key)


class Received(NamedTuple):
    """What a site has signed: its number, the header's digest, and the payload."""

    site: int
    header: str
    payload: bytes


def received(about: Sum, kind: Kind, roster: str, frame: bytes) -> Received:
    r"""A site's message.

    Raises:
      InvalidParameter: it isn't of this kind, this sum and this roster, or not signed by the site that it names.
    """
    found = opened(frame)
    try:
        part = Part.model_validate_json(found.header)
    except ValueError as error:
        raise InvalidParameter("header", "that of a part of a secure sum", found.header[:100]) from error
    number = about.federation.number(part.site)
    if number is None or not is_signed(about.federation.sites[number].key, found.signature, DOMAIN + found.header):
        raise InvalidParameter("part", "signed by a site of the federation", part.site)
    if (part.kind, part.session, part.roster, part.payload) != (kind, about.session, roster, digest(found.payload)):
        raise InvalidParameter("part", f"{kind} of this sum", part.kind)
    return Received(number, digest(found.header), found.payload)


def all_received(about: Sum, kind: Kind, roster: str, frames: Iterable[bytes], fits: Callable[[Received], bool]) -> Mapping[int, Received]:
    r"""Messages of different sites, by their numbers, in the order of these.

    Args:
      fits: whether a payload has the right form.
    Raises:
      InvalidParameter: as ``received``; two are of one site; or there are fewer than have to stay.
    """
    found: dict[int, Received] = {}
    for frame in frames:
        one = received(about, kind, roster, frame)
        if one.site in found or not fits(one):
            raise InvalidParameter("parts", f"one of {kind} from each site", about.federation.sites[one.site].name)
        found[one.site] = one
    if len(found) < about.least:
        raise InvalidParameter("parts", f"{kind} of at least {about.least} sites", len(found))
    return dict(sorted(found.items()))


class Keys(NamedTuple):
    """A site's public keys for one sum: for shares that are sent to it, and for masks."""

    sharing: bytes
    masking: bytes


@final
class Roster(NamedTuple):
    """All sites' keys, by the sites' numbers, and the digest of them."""

    keys: Mapping[int, Keys]
    digest: str

    @property
    def salt(self) -> bytes:
        """For keys that are derived for this sum alone."""
        return bytes.fromhex(self.digest)


def roster_of(about: Sum, frames: Iterable[bytes]) -> Roster:
    """Raises InvalidParameter as ``all_received``."""
    found = all_received(about, "keys", FIRST, frames, lambda one: len(one.payload) == 2 * KEY_BYTES)
    named = "".join(f"{number} {one.header}\n" for number, one in found.items())
    return Roster(
        {number: Keys(one.payload[:KEY_BYTES], one.payload[KEY_BYTES:]) for number, one in found.items()},
        digest(about.session.encode() + named.encode()),
    )


def view_of(shared: Iterable[int], arrived: Iterable[int], parameters: Sha256) -> bytes:
    """What sites agree on before anything is revealed: whose shares they got, whose masked integers arrived, and for which parameters."""
    return f"shared {sorted(shared)} arrived {sorted(arrived)} parameters {parameters}".encode()
