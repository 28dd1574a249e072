r"""Proofs about the log as files, and their offline verification with a trusted key."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeVar, final

from pydantic import Field, StringConstraints, ValidationError

from zetadp.app.certificates.facts.statement import Sha256
from zetadp.app.certificates.log.checkpoint import LONGEST_CHECKPOINT, CheckpointRefused, CheckpointText, LogHead, LogSize, open_checkpoint
from zetadp.app.certificates.log.notes import NoteRefused, from_base64
from zetadp.app.certificates.log.tree import is_consistent, leaf_hash, root_from_inclusion
from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.certificates.signing.keys import PublicKey, PublicKeySet
from zetadp.mechanisms.base import Value, is_absent

LARGEST_PROOF = 64 * 1024
"""Bytes; those of a log of a million certificates have about 2000."""

Path = Annotated[tuple[Sha256, ...], Field(max_length=130)]

_Proof = TypeVar("_Proof", "Proofs", "ConsistencyProof", "SignedHead")

_INCLUSION = re.compile(r"c2sp\.org/tlog-proof@v1\nindex (0|[1-9][0-9]{0,18})\n((?:[A-Za-z0-9+/]{43}=\n){0,130})\n(.*)", re.DOTALL)


@final
class SignedHead(Value):
    r"""The log's size and root, signed.

    Attributes:
      checkpoint: a checkpoint in a signed note (C2SP): the log's name, its size, its root in base64, and Ed25519 signatures.
    """

    checkpoint: CheckpointText


@final
@dataclass(frozen=True)
class InclusionProof:
    r"""Proof that an entry is in the log (RFC 9162, 2.1.3); as a file it is a C2SP tlog-proof.

    Attributes:
      checkpoint: the signed head of the log that the proof leads to.
      leaf_index: the entry, counted from 0.
      path: hashes from the leaf upwards.
    """

    checkpoint: str
    leaf_index: int
    path: tuple[bytes, ...]

    @property
    def text(self) -> str:
        """The proof as text."""
        hashes = "".join(f"{base64.b64encode(part).decode()}\n" for part in self.path)
        return f"c2sp.org/tlog-proof@v1\nindex {self.leaf_index}\n{hashes}\n{self.checkpoint}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises ProofRefused for anything that isn't laid out as a proof without extra data."""
        found = _INCLUSION.fullmatch(text)
        if found is None:
            raise ProofRefused("isn't a proof of inclusion (C2SP tlog-proof, without extra data)")
        index, hashes, checkpoint = found.groups()
        try:
            path = tuple(from_base64(line) for line in hashes.splitlines())
        except NoteRefused as refused:
            raise ProofRefused(f"a hash {refused}") from refused
        return cls(checkpoint, int(index), path)


ProofText = Annotated[str, StringConstraints(strict=True, max_length=LONGEST_CHECKPOINT + 130 * 45 + 100)]
TimeStampText = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/]+={0,2}$", max_length=20_000)]


@final
class Proofs(Value):
    r"""Everything that proves where a certificate and its plan are in the log, as a file beside the certificate.

    Attributes:
      certificate: that the certificate is in the log (C2SP tlog-proof).
      plan: that its plan is, under the earlier head that the certificate names; null where the plan wasn't logged.
      time_stamps: answers of time-stamping authorities (RFC 3161, DER in base64) for that head's text.
      pending: ``witnesses`` where no witness has been asked yet about a head that the certificate is under: they are asked right after a
        training's end, so proofs that are fetched a moment later have their signatures. Absent once they were asked.
    """

    certificate: ProofText
    plan: ProofText | None = None
    time_stamps: Annotated[tuple[TimeStampText, ...], Field(max_length=16)] = ()
    pending: Annotated[Literal["witnesses"] | None, Field(exclude_if=is_absent)] = None


@final
class ConsistencyProof(Value):
    r"""Proof that the log only grew between two heads (RFC 9162, 2.1.4).

    Attributes:
      first, second: sizes of the two heads.
      path: hashes; empty if the first size is 0 or equals the second.
      checkpoint: the signed head of the second.
    """

    first: LogSize
    second: LogSize
    path: Path
    checkpoint: CheckpointText


@final
class ProofRefused(Exception):
    """A proof or the head that it rests on is invalid; the text says why."""


def encode(proof: SignedHead | Proofs | ConsistencyProof) -> bytes:
    """The one layout of a proof: canonical JSON and a newline."""
    return canonical_json(proof) + b"\n"


def read_proof(content: bytes, kind: type[_Proof]) -> _Proof:
    """A proof as issued (a missing final newline is accepted). Raises ProofRefused for anything else."""
    if len(content) > LARGEST_PROOF:
        raise ProofRefused(f"must be at most {LARGEST_PROOF} bytes, got {len(content)}")
    try:
        proof = kind.model_validate_json(content)
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ProofRefused(f"isn't a {_NAMES[kind]}: {place + ': ' if place else ''}{error.errors()[0]['msg'][:200]}") from error
    if content.removesuffix(b"\n") != encode(proof).removesuffix(b"\n"):
        raise ProofRefused("isn't laid out as issued (compact JSON with sorted keys): reformatted or changed since")
    return proof


def check_inclusion(entry: bytes, proof: InclusionProof, keys: PublicKeySet) -> tuple[LogHead, PublicKey]:
    r"""The head of a log that contains this entry, and the key that signed the head.

    Raises:
      ProofRefused: the head isn't signed by one of these keys, or its root isn't the one that the proof leads to.
    """
    head, key = _head(proof.checkpoint, keys)
    root = root_from_inclusion(leaf_hash(entry), proof.leaf_index, head.size, proof.path)
    place = proof.leaf_index + 1  # as people count
    if root is None:
        raise ProofRefused(f"{len(proof.path)} hashes don't prove entry {place} of a log of {head.size}")
    if root.hex() != head.root:
        raise ProofRefused(f"this isn't entry {place}: the proof leads to root {root.hex()}, signed is {head.root}")
    return head, key


def check_consistency(old: LogHead, proof: ConsistencyProof, keys: PublicKeySet) -> tuple[LogHead, PublicKey]:
    r"""The later head, which is proven to extend the old one, and the key that signed it.

    Raises:
      ProofRefused: it is another log, its head isn't signed by one of these keys, or it isn't the old one's continuation.
    """
    new, key = _head(proof.checkpoint, keys)
    if new.origin != old.origin:
        raise ProofRefused(f"is of another log: {new.origin}, kept was one of {old.origin}")
    if (proof.first, proof.second) != (old.size, new.size):
        raise ProofRefused(f"is about sizes {proof.first} and {proof.second}; asked was {old.size}, signed is {new.size}")
    if new.size < old.size:
        raise ProofRefused(f"the log has {new.size} entries, but had {old.size}: entries were removed")
    path = [bytes.fromhex(part) for part in proof.path]
    if not is_consistent(old.size, bytes.fromhex(old.root), new.size, bytes.fromhex(new.root), path):
        raise ProofRefused(f"the log of {new.size} entries doesn't extend the one of {old.size}: its history was changed")
    return new, key


def _head(checkpoint: str, keys: PublicKeySet) -> tuple[LogHead, PublicKey]:
    try:
        return open_checkpoint(checkpoint, keys)
    except CheckpointRefused as error:
        raise ProofRefused(f"the head {error}") from error


_NAMES: dict[type, str] = {SignedHead: "signed head", Proofs: "file of proofs", ConsistencyProof: "proof of consistency"}
