"""Sites and a coordinator of a secure sum in one place, without any network."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from zetadp.trainer.sites.keys import public_text
from zetadp.trainer.sites.secure.masks import Residues, Ring
from zetadp.trainer.sites.secure.parts import Sum
from zetadp.trainer.sites.secure.party import Party
from zetadp.trainer.sites.secure.summing import Summing
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation
from zetadp.trainer.specs.algorithms.federation import FederatedSite, Federation

NUMBERS = 5


@cache
def signing(number: int) -> Ed25519PrivateKey:
    """A site's certified key; the coordinator's is -1."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32)


def about(sites: int, dropouts: int, colluding: int, width: int = 4, session: str = "1" * 64) -> Sum:
    """A sum of so many sites."""
    named = tuple(FederatedSite(name=f"s{number}", key=public_text(signing(number))) for number in range(sites))
    federation = Federation(name="made-up", coordinator=public_text(signing(-1)), sites=named)
    aggregation = SecureAggregation(dropouts=dropouts, colluding=colluding)
    aggregation.check(sites)
    return Sum(federation=federation, aggregation=aggregation, session=session, ring=Ring(numbers=NUMBERS, width=width))


def integers(number: int, width: int = 4) -> NDArray[np.int64]:
    """What a site adds up: anything modulo 2^(8 width)."""
    half = 2 ** (8 * width - 1)
    return np.random.default_rng(number).integers(-half, half - 1, NUMBERS, endpoint=True)


@dataclass
class Round:
    """The course of a sum, up to any of its steps; each step takes the sites that are still there."""

    about: Sum
    draws: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.parties = [Party(self.about, number, signing(number)) for number in range(len(self.about.federation.sites))]
        self.summing = Summing(self.about)

    def keys(self, there: Collection[int]) -> list[bytes]:
        """The keys of these sites."""
        return [self.parties[number].keys() for number in there]

    def shares(self, there: Collection[int], keys: Sequence[bytes]) -> list[bytes]:
        """Their shares."""
        self.summing.take_keys(keys)
        return [self.parties[number].shares(keys) for number in there]

    def masked(self, there: Collection[int], shares: Sequence[bytes]) -> Mapping[int, Residues]:
        """Their masked integers, as they travel."""
        self.summing.take_shares(shares)
        ring = self.about.ring
        return {number: ring.unpacked(ring.packed(self.parties[number].masked(shares, partial(self.draw, number)))) for number in there}

    def draw(self, number: int) -> NDArray[np.int64]:
        """A site's integers, which are counted."""
        self.draws.append(number)
        return integers(number, self.about.ring.width)

    def agreed(self, there: Collection[int], arrived: Mapping[int, Residues]) -> list[bytes]:
        """Their signatures on what arrived."""
        self.summing.take_masked(arrived)
        return [self.parties[number].agreed(arrived) for number in there]

    def whole(self, *there: Collection[int]) -> NDArray[np.int64]:
        """The sum; ``there``: the sites that are left in each of the five steps."""
        shares = self.shares(there[1], self.keys(there[0]))
        agreed = self.agreed(there[3], self.masked(there[2], shares))
        return self.summing.total([self.parties[number].revealed(agreed) for number in there[4]])


def plain(there: Collection[int], width: int) -> list[int]:
    """The plain sum modulo 2^(8 width), centred."""
    modulus = 2 ** (8 * width)
    sums = [sum(int(integers(number, width)[place]) for number in there) % modulus for place in range(NUMBERS)]
    return [value - modulus if value >= modulus // 2 else value for value in sums]
