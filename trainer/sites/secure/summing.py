r"""The coordinator's side of a secure sum: collects messages, and takes the masks off the sum of what arrived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.messages import Sha256
from zetadp.trainer.sites.secure.masks import Residues, committed, expanded, has_secrets
from zetadp.trainer.sites.secure.parts import Roster, Sum, all_received, received, roster_of, view_of
from zetadp.trainer.sites.secure.party import COMMITMENT_BYTES, SEALED_BYTES, pair_key, shares_revealed
from zetadp.trainer.sites.secure.sharing import joined


@final
class Summing:
    r"""One sum. A step that fails for want of sites ends it: the round gives nothing.

    Every method raises InvalidParameter if fewer sites are left than have to stay. Messages that are wrong should be left out before
    (``counts``): a site that sends them has dropped out.
    """

    def __init__(self, about: Sum) -> None:
        self._about = about
        self._roster: Roster | None = None
        self._seeds: dict[int, bytes] = {}
        self._arrived: Mapping[int, Residues] = {}
        self._parameters = ""
        self.wrong: int | None = None

    @property
    def roster(self) -> Roster:
        """All sites' keys. Raises InvalidParameter before they are known."""
        if self._roster is None:
            raise InvalidParameter("step", "one after the keys", None)
        return self._roster

    def counts_keys(self, frame: bytes) -> int | None:
        """The number of the site whose keys these are; None if they are nobody's, or such that no site could use them."""
        try:
            ((number, keys),) = roster_of(_alone(self._about), [frame]).keys.items()
        except InvalidParameter:
            return None
        return number if all(has_secrets(key) for key in keys) else None

    def counts_shares(self, frame: bytes) -> int | None:
        """The number of the site whose shares these are; None if they don't fit."""
        length = COMMITMENT_BYTES + SEALED_BYTES * (len(self.roster.keys) - 1)
        try:
            found = received(self._about, "shares", self.roster.digest, frame)
        except InvalidParameter:
            return None
        return found.site if found.site in self.roster.keys and len(found.payload) == length else None

    def counts_agreed(self, frame: bytes) -> int | None:
        """The number of the site that has signed what arrived; None if it is something else."""
        try:
            found = received(self._about, "agreed", self.roster.digest, frame)
        except InvalidParameter:
            return None
        view = view_of(self._seeds, self._arrived, self._parameters)
        return found.site if found.payload == view and found.site in self._arrived else None

    def counts_revealed(self, frame: bytes) -> int | None:
        """The number of the site whose answer this is; None if it doesn't fit."""
        try:
            found = received(self._about, "revealed", self.roster.digest, frame)
        except InvalidParameter:
            return None
        return found.site if shares_revealed(found.payload, self._seeds) is not None else None

    def take_keys(self, frames: Iterable[bytes]) -> None:
        """Of all sites that are there."""
        self._roster = roster_of(self._about, frames)

    def take_shares(self, frames: Iterable[bytes]) -> None:
        """Of all sites that handed them out."""
        found = all_received(self._about, "shares", self.roster.digest, frames, lambda one: one.site in self.roster.keys)
        self._seeds = {number: one.payload[:COMMITMENT_BYTES] for number, one in found.items()}

    def take_masked(self, arrived: Mapping[int, Residues], parameters: Sha256) -> None:
        """The masked integers of those sites whose arrived, for parameters with this digest."""
        if len(arrived) < self._about.least or not arrived.keys() <= self._seeds.keys():
            raise InvalidParameter("masked", f"integers of at least {self._about.least} sites with shares", sorted(arrived))
        self._arrived, self._parameters = dict(arrived), parameters

    def total(self, revealed: Iterable[bytes]) -> NDArray[np.int64]:
        r"""The sum of the integers that arrived, modulo 2^(8 width), (numbers,): the ones of least size.

        One site that reveals wrong shares is left out, where enough others have revealed theirs: ``wrong`` is its number then.

        Raises:
          InvalidParameter: also where the shares don't give the secrets that sites were bound to.
        """
        roster, ring = self.roster, self._about.ring
        found = all_received(
            self._about, "revealed", roster.digest, revealed, lambda one: shares_revealed(one.payload, self._seeds) is not None
        )
        secrets = self._secrets({number: shares_revealed(one.payload, self._seeds) or {} for number, one in found.items()})
        total = ring.residues(np.zeros(ring.numbers, np.int64))
        for residues in self._arrived.values():
            total = total + residues
        for number, secret in secrets.items():
            has_arrived = number in self._arrived
            total = total - (ring.mask(expanded(secret, roster.salt)) if has_arrived else self._left_by(number, secret))
        return ring.centred(total)

    def _secrets(self, held: Mapping[int, Mapping[int, bytes]]) -> Mapping[int, bytes]:
        """Every site's seed, or its key if its integers didn't arrive, from the shares that each holder has revealed."""
        holders, least = list(held), self._about.least
        failed = 0
        for left_out in (None, *(holders[:least] if len(holders) > least else ())):
            chosen = [holder for holder in holders if holder != left_out][:least]
            secrets = dict[int, bytes]()
            for number in self._seeds:
                secret = joined({holder + 1: held[holder][number] for holder in chosen})
                if secret is None or not self._is_bound(number, secret):
                    failed = number
                    break
                secrets[number] = secret
            else:
                self.wrong = left_out
                return secrets
        raise InvalidParameter("shares", "of the secret that its site was bound to", self._about.federation.sites[failed].name)

    def _is_bound(self, number: int, secret: bytes) -> bool:
        if number in self._arrived:
            return committed(secret, self.roster.salt) == self._seeds[number]
        return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw() == self.roster.keys[number].masking

    def _left_by(self, gone: int, secret: bytes) -> Residues:
        """What the sites whose integers arrived have in their masks for one whose didn't."""
        roster, ring = self.roster, self._about.ring
        private = X25519PrivateKey.from_private_bytes(secret)
        left = ring.residues(np.zeros(ring.numbers, np.int64))
        for number in self._arrived:
            mask = ring.mask(pair_key(private, roster, gone, number))
            left = left + mask if number < gone else left - mask
        return left


def _alone(about: Sum) -> Sum:
    """The same for the messages of a single site."""
    every = len(about.federation.sites) - 1
    return Sum.model_validate(dict(about) | {"aggregation": dict(about.aggregation) | {"dropouts": every}})
