r"""A site's side of a secure sum. Whatever the coordinator sends, the site shows its integers in no smaller sum than was agreed on.

Proof: mechanisms/proofs/secure_sum.md. Secrets live in this object alone and are never written: a site that restarts has dropped out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Final, final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.messages import FIRST, Sha256, digest
from zetadp.trainer.sites.secure.masks import Residues, committed, derived, expanded
from zetadp.trainer.sites.secure.parts import Kind, Part, Roster, Sum, all_received, roster_of, sealed, view_of
from zetadp.trainer.sites.secure.sharing import SECRET_BYTES, SHARE_BYTES, split

SEALED_BYTES: Final = 2 * SHARE_BYTES + 16
"""Of two shares for one site, encrypted."""
COMMITMENT_BYTES: Final = 32
_NONCE: Final = bytes(12)
"""Each key encrypts one message."""

STEPS: Final = ("keys", "shares", "masked", "agreed", "revealed")


@final
class SharesUnreadable(InvalidParameter):
    """A site handed out shares that this one can't decrypt, under its signature. For this site's own log: the others have only its word."""

    def __init__(self, sender: str) -> None:
        self.sender = sender
        super().__init__("shares", f"encrypted for this site by site {sender}, whose signature they have", "what can't be decrypted")


@final
class Party:
    r"""One site in one sum. Its methods are called in the order of ``STEPS``, each once: one that fails ends the site's part.

    Args:
      number: the site's, in the federation.
    """

    def __init__(self, about: Sum, number: int, key: Ed25519PrivateKey) -> None:
        self._about, self._number, self._key = about, number, key
        self._next = 0
        self._sharing, self._masking, self._seed = X25519PrivateKey.generate(), X25519PrivateKey.generate(), os.urandom(SECRET_BYTES)
        self._roster: Roster | None = None
        self._own = b""
        # By the site that handed them out: the share of its seed, and of its key.
        self._shares: dict[int, tuple[bytes, bytes]] = {}
        self._arrived: frozenset[int] = frozenset()
        self._parameters = ""

    def keys(self) -> bytes:
        """The site's public keys, new for this sum."""
        with self._step("keys"):
            payload = self._sharing.public_key().public_bytes_raw() + self._masking.public_key().public_bytes_raw()
            return self._sealed("keys", FIRST, payload)

    def shares(self, keys: Iterable[bytes]) -> bytes:
        r"""The site's secrets in shares, one of each for every site, encrypted.

        Args:
          keys: all sites' messages of keys.
        Raises:
          InvalidParameter: the step was taken, the site's own keys aren't among them, or as ``roster_of``.
        """
        with self._step("shares"):
            roster = roster_of(self._about, keys)
            own = roster.keys.get(self._number)
            if own is None or own.masking != self._masking.public_key().public_bytes_raw():
                raise InvalidParameter("keys", "a list with the site's own", sorted(roster.keys))
            self._roster = roster
            points = [number + 1 for number in roster.keys]
            seeds = split(self._seed, points, self._about.least)
            privates = split(self._masking.private_bytes_raw(), points, self._about.least)
            self._shares[self._number] = seeds[self._number + 1], privates[self._number + 1]
            payload = committed(self._seed, roster.salt)
            for other in self._others(roster.keys):
                cipher = ChaCha20Poly1305(self._shared_key(roster, other, self._number, other))
                payload += cipher.encrypt(_NONCE, seeds[other + 1] + privates[other + 1], roster.salt)
            self._own = self._sealed("shares", roster.digest, payload)
            return self._own

    def masked(self, shares: Collection[bytes], parameters: Sha256, draw: Callable[[], NDArray[np.int64]]) -> Residues:
        r"""The site's integers under its masks, (numbers,).

        Args:
          shares: all sites' messages of shares.
          parameters: the digest of those that are drawn for.
          draw: charges the round, and draws; called once, if everything is right.
        Raises:
          SharesUnreadable: a share isn't for this site.
          InvalidParameter: the step was taken, the site's own message isn't among them, or as ``all_received``.
        """
        with self._step("masked"):
            roster, self._parameters = self._known(), parameters
            length = COMMITMENT_BYTES + SEALED_BYTES * (len(roster.keys) - 1)
            found = all_received(
                self._about, "shares", roster.digest, shares, lambda one: one.site in roster.keys and len(one.payload) == length
            )
            if self._own not in shares:
                raise InvalidParameter("shares", "a list with the site's own", sorted(found))
            for other in self._others(found):
                # A site's message has no shares for itself.
                place = COMMITMENT_BYTES + SEALED_BYTES * sorted(roster.keys.keys() - {other}).index(self._number)
                cipher = ChaCha20Poly1305(self._shared_key(roster, other, other, self._number))
                try:
                    both = cipher.decrypt(_NONCE, found[other].payload[place : place + SEALED_BYTES], roster.salt)
                except InvalidTag as error:
                    raise SharesUnreadable(self._about.federation.sites[other].name) from error
                self._shares[other] = both[:SHARE_BYTES], both[SHARE_BYTES:]
            ring = self._about.ring
            total = ring.mask(expanded(self._seed, roster.salt))
            for other in self._others(found):
                mask = ring.mask(pair_key(self._masking, roster, self._number, other))
                total = total + mask if self._number < other else total - mask
            return ring.residues(draw()) + total

    def agreed(self, arrived: Iterable[int]) -> bytes:
        r"""The site's signature on its view: whose shares it got, whose masked integers arrived, as it was told, and for which parameters.

        Args:
          arrived: sites' numbers.
        Raises:
          InvalidParameter: the step was taken, the site itself isn't among them, nor at least as many as have to stay, or one that
            handed out no shares is.
        """
        with self._step("agreed"):
            roster, told = self._known(), frozenset(arrived)
            if self._number not in told or len(told) < self._about.least or not told <= self._shares.keys():
                raise InvalidParameter("arrived", f"this site and others with shares, at least {self._about.least} in all", sorted(told))
            self._arrived = told
            return self._sealed("agreed", roster.digest, view_of(self._shares, told, self._parameters))

    def revealed(self, agreed: Iterable[bytes]) -> bytes:
        r"""For each site whose integers arrived the share of its seed, for each other site that of its key; never both.

        Args:
          agreed: messages of at least as many sites as have to stay, all with this site's view.
        Raises:
          InvalidParameter: the step was taken, a view is another one, or as ``all_received``.
        """
        with self._step("revealed"):
            roster, view = self._known(), view_of(self._shares, self._arrived, self._parameters)
            _ = all_received(self._about, "agreed", roster.digest, agreed, lambda one: one.payload == view and one.site in self._arrived)
            shares, self._shares = self._shares, {}
            payload = b"".join(shares[number][0 if number in self._arrived else 1] for number in sorted(shares))
            return self._sealed("revealed", roster.digest, payload)

    @contextmanager
    def _step(self, step: str) -> Generator[None]:
        """Each step once, in their order; one that fails is the last."""
        place, self._next = self._next, len(STEPS)
        if STEPS[place : place + 1] != (step,):
            raise InvalidParameter("step", "the one after the last", step)
        yield
        self._next = place + 1

    def _known(self) -> Roster:
        if self._roster is None:
            raise InvalidParameter("step", "one after keys were accepted", None)
        return self._roster

    def _others(self, numbers: Iterable[int]) -> list[int]:
        return sorted(number for number in numbers if number != self._number)

    def _shared_key(self, roster: Roster, other: int, sender: int, receiver: int) -> bytes:
        return derived(self._sharing, roster.keys[other].sharing, roster.salt, f"shares of {sender} for {receiver}")

    def _sealed(self, kind: Kind, roster: str, payload: bytes) -> bytes:
        site = self._about.federation.sites[self._number].name
        part = Part(kind=kind, session=self._about.session, roster=roster, site=site, payload=digest(payload))
        return sealed(part, payload, self._key)


def pair_key(own: X25519PrivateKey, roster: Roster, number: int, other: int) -> bytes:
    """The key of the mask that two sites share: the one with the lower number adds it, the other one subtracts it."""
    return derived(own, roster.keys[other].masking, roster.salt, f"mask of {min(number, other)} and {max(number, other)}")


def shares_revealed(payload: bytes, shared: Iterable[int]) -> Mapping[int, bytes] | None:
    """A ``revealed`` payload's shares, by the sites that handed them out; None if there are more or fewer bytes."""
    numbers = sorted(shared)
    if len(payload) != SHARE_BYTES * len(numbers):
        return None
    return {number: payload[SHARE_BYTES * place : SHARE_BYTES * (place + 1)] for place, number in enumerate(numbers)}
