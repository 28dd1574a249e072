r"""Digests of what a certificate is about: files, the project's own code, and the training data behind a commitment.

A bare digest of the training data would let anyone with a guess of the whole data set check it, and the guarantee is
against exactly such people. So the data manifest holds the digest together with 256 random bits and stays with the service; only the
manifest's own digest is published. Whoever is shown the manifest can check that it was this data.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, final

from pydantic import StringConstraints

from zetadp.app.certificates.signing.canonical import canonical_json
from zetadp.app.storage.base import KeyTaken, Store
from zetadp.mechanisms.base import Count, PrivacyUnit, Value

MANIFESTS = "manifests"
"""What the keys of data manifests begin with."""
CODE_PACKAGES = ("zetadp", "zetadp.accountants", "zetadp.app", "zetadp.mechanisms", "zetadp.trainer")

_Hex256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]


@final
class DataManifest(Value):
    """Opens the commitment to the training data: private, stored by the service next to its keys."""

    description: str
    training_records: Count
    unit: PrivacyUnit
    data_sha256: _Hex256
    nonce: _Hex256


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in pieces. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(content: bytes) -> str:
    """SHA-256 of bytes in memory."""
    return hashlib.sha256(content).hexdigest()


def code_manifest() -> bytes:
    """One line for each Python file of this project, digest and path as ``sha256sum`` writes them, sorted by path."""
    files: dict[str, Path] = {}
    for name in CODE_PACKAGES:
        spec = find_spec(name)  # found without being imported: torch stays out
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            files |= {f"{name.replace('.', '/')}/{path.relative_to(folder).as_posix()}": path for path in Path(folder).rglob("*.py")}
    return "".join(f"{sha256_of_file(path)}  {name}\n" for name, path in sorted(files.items())).encode()


def store_data_manifest(store: Store, job_id: str, manifest: DataManifest) -> bytes:
    """Store the manifest for this job, unless an earlier attempt did: then that one stays. Returns the stored bytes.

    Raises StorageUnavailable.
    """
    key, content = f"{MANIFESTS}/{sha256_of(job_id.encode())[:32]}.json", canonical_json(manifest)
    with suppress(KeyTaken):
        store.create(key, content)
    found = store.get(key)
    assert found is not None  # nothing deletes a manifest
    return found.content


def fresh_nonce() -> str:
    """256 bits from the operating system, in hexadecimal."""
    return secrets.token_hex(32)
