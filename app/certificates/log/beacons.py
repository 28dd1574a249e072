r"""What a run's randomness follows from beside its noise key: a signature that somebody else gave on the plan's head before the first step.

Nobody who lacks the signer's key can know it before it is given, unlike a stamp's contents (a time and a running number). A stamp's answer
around it can be written in many ways, and an ECDSA signature in two, so what the signer alone determines of it counts. Its digest is the
*beacon*. Who asks chooses among the signatures that they have: by several signers, by one who was asked again, on a later head. So a beacon
says when a run began, not that there was only one draw.

The head isn't asked to be the one that ends with the plan, though that would leave one choice less: of two trainings that begin at once one
would find that the witnesses have signed a longer log already, and witnesses sign no shorter one. Who is asked again signs anew anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import final

from zetadp.app.certificates.log.cosignatures import cosignatures_on
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, Proofs
from zetadp.app.certificates.log.notes import Note, NoteRefused, NoteSignature
from zetadp.app.certificates.log.time_stamps import StampRefused, check_stamp, signature_in
from zetadp.app.certificates.log.trust import Trust
from zetadp.app.certificates.signing.digests import sha256_of


@final
@dataclass(frozen=True)
class Given:
    """A signature that was checked: when it was given, by the signer's clock, and by whom."""

    time: datetime
    by: str


def beacon_of(stamps: Sequence[str], checkpoint: str) -> str | None:
    """Of the first stamp on this head, or else of the first witness's signature; None if there is neither. Nothing is checked."""
    for stamp in stamps:
        with suppress(StampRefused):
            return _of_stamp(stamp)
    others = Note.read(checkpoint).signatures[1:]  # the first is the log's own
    return _of_cosignature(others[0]) if others else None


def given(beacon: str, proofs: Proofs, trust: Trust) -> Given | None:
    """The trusted authority's or witness's signature on the plan's head that this is the beacon of; None if it isn't one of theirs.

    The caller has checked that the plan is under that head.
    """
    if proofs.plan is None:
        return None
    note = Note.read(InclusionProof.read(proofs.plan).checkpoint)
    return next(chain(_stamped(beacon, proofs.time_stamps, note.text, trust), _cosigned(beacon, note, trust)), None)


def _stamped(beacon: str, stamps: Sequence[str], text: str, trust: Trust) -> Iterator[Given]:
    for stamp in stamps:
        with suppress(StampRefused):
            if _of_stamp(stamp) == beacon:
                checked = check_stamp(stamp, text, trust.authorities)
                yield Given(checked.time, checked.authority)


def _cosigned(beacon: str, note: Note, trust: Trust) -> Iterator[Given]:
    for signature in note.signatures:
        if _of_cosignature(signature) != beacon:
            continue
        with suppress(NoteRefused):
            for one in cosignatures_on(Note(note.text, (signature,)), trust.witnesses):
                yield Given(one.time, f"the witness {one.witness.name}")


def _of_stamp(stamp: str) -> str:
    return sha256_of(b"zetadp time stamp\n" + signature_in(stamp))


def _of_cosignature(signature: NoteSignature) -> str:
    return sha256_of(b"zetadp cosignature\n" + signature.signature)
