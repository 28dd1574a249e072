r"""The secret key of a run that an auditor may repeat: made once for a job, kept apart from its files, and committed to in its plan.

The plan has a digest of the key. The run's randomness follows from the key, from all that was logged of the plan (spec, data and code among
it), from the number of each start of the job, and from a signature that others gave only after the plan was logged (the ``beacon``: see
``log/beacons.py``). So another plan, or other code, shares no noise with this one. An auditor who is given the key finds
out whether the run that was planned is the one that was certified. That it began after the beacon is shown only to those who check that
signature with the key of somebody whom they trust. Whoever learns the key can take the noise away from what was released: for them the
guarantee is void.

A key has an end: some time after its job's (``keep_noise_keys_days``), or when the operator deletes it. A mark with the time stays in its
place, so that nobody takes the job for one that never had a key, and none is made for it again.

What the operator still chooses: where a run is interrupted, since each start is another draw (certificates count the starts, not the places
where they might have been), and which of the signatures that they have is the beacon.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress
from datetime import datetime
from typing import final

from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.storage.base import KeyTaken, Store

NOISE_KEYS = "noise-keys"
"""What the keys of stored noise keys begin with."""
BYTES = 32
_KEY, _GONE = ".key", ".deleted"


@final
class NoiseKeyDeleted(Exception):
    """The job had a key, which was deleted."""

    def __init__(self, job_id: str, time: str) -> None:
        self.job_id, self.time = job_id, time
        super().__init__(f"the noise key of job {job_id} was deleted on {time}: nobody can repeat this run any more, or go on with it")


def noise_key_of(store: Store, job_id: str) -> bytes:
    """The job's key, made at the first call. Raises NoiseKeyDeleted, StorageUnavailable."""
    if (found := kept_noise_key(store, job_id)) is not None:
        return found
    with suppress(KeyTaken):
        store.create(_place(job_id, _KEY), secrets.token_bytes(BYTES))
    found = kept_noise_key(store, job_id)
    assert found is not None  # a job that runs has no key to delete
    return found


def kept_noise_key(store: Store, job_id: str) -> bytes | None:
    """The job's key; None if it never had one. Raises NoiseKeyDeleted, StorageUnavailable."""
    gone = store.get(_place(job_id, _GONE))
    if gone is not None:
        raise NoiseKeyDeleted(job_id, gone.content.decode())
    found = store.get(_place(job_id, _KEY))
    return None if found is None else found.content


def kept_for(store: Store) -> list[str]:
    """The jobs that have a key. Raises StorageUnavailable."""
    return [name.removesuffix(_KEY) for name in store.names(f"{NOISE_KEYS}/") if name.endswith(_KEY)]


def delete_noise_key(store: Store, job_id: str, time: datetime) -> None:
    """Delete the key of a job that has ended; what a disk or a bucket keeps of deleted files is up to them. Raises StorageUnavailable."""
    with suppress(KeyTaken):  # another process deletes it as well
        store.create(_place(job_id, _GONE), f"{time:%Y-%m-%d %H:%M} UTC".encode())
    store.delete([_place(job_id, _KEY)])


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


def run_secret(key: bytes, planned: str, beacon: str | None) -> bytes:
    """What the run's randomness follows from, 32 bytes; ``planned``: digest of what was logged of its plan."""
    return hmac.new(key, f"zetadp run\n{planned}\n{beacon or ''}".encode(), hashlib.sha256).digest()


def _place(job_id: str, kind: str) -> str:
    return f"{NOISE_KEYS}/{job_id}{kind}"
