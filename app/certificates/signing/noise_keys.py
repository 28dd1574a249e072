r"""The secret key of a run that an auditor may repeat: made once for a job, kept apart from its files, and committed to in its plan.

The plan has a digest of the key. The run's randomness follows from the key, from the number of each start of the job, and from a
signature that others gave only after the plan was logged (the ``beacon``: see ``log/beacons.py``). So an auditor who is given the key finds
out whether the run that was planned is the one that was certified. That it began after the beacon is shown only to those who check that
signature with the key of somebody whom they trust. Whoever learns the key can take the noise away from what was released: for them the
guarantee is void.

What the operator still chooses: where a run is interrupted, since each start is another draw (certificates count the starts, not the places
where they might have been), and which of the signatures that they have is the beacon.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress

from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.storage.base import KeyTaken, Store

NOISE_KEYS = "noise-keys"
"""What the keys of stored noise keys begin with."""
BYTES = 32


def noise_key_of(store: Store, job_id: str) -> bytes:
    """The job's key, made at the first call. Raises StorageUnavailable."""
    with suppress(KeyTaken):
        store.create(_place(job_id), secrets.token_bytes(BYTES))
    found = kept_noise_key(store, job_id)
    assert found is not None  # nothing deletes one
    return found


def kept_noise_key(store: Store, job_id: str) -> bytes | None:
    """The job's key; None if it has none. Raises StorageUnavailable."""
    found = store.get(_place(job_id))
    return None if found is None else found.content


def read_noise_key(content: bytes) -> bytes | None:
    """The key in a file that ``zetadp noise-key`` wrote; None if it isn't one."""
    try:
        key = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        return None
    return key if len(key) == BYTES else None


def commitment(key: bytes) -> str:
    """What the plan says of the key."""
    return sha256_of(b"zetadp noise key\n" + key)


def run_secret(key: bytes, beacon: str | None) -> bytes:
    """What the run's randomness follows from, 32 bytes."""
    return hmac.new(key, f"zetadp run\n{beacon or ''}".encode(), hashlib.sha256).digest()


def _place(job_id: str) -> str:
    return f"{NOISE_KEYS}/{sha256_of(job_id.encode())[:32]}.key"
