r"""OpenSSF model signing beside our certificate: one signature over every file of a finished training.

The certificate says what is guaranteed, and names the model by its digest. The signature says in the form of the OpenSSF that these files,
and no others, come from whoever holds a key; ``model_signing verify key`` checks it without zetadp. Both are made and checked offline.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from cryptography.exceptions import InvalidSignature

from zetadp.app.certificates.facts.statement import MODEL_FILE
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.integrations import missing
from zetadp.integrations.valid_certificate import valid_folder
from zetadp.mechanisms.errors import InvalidParameter

try:
    # As import statements Pyright takes them for this module.
    hashing, signing, verifying = (import_module(f"model_signing.{name}") for name in ("hashing", "signing", "verifying"))
except ImportError as error:
    raise missing("model-signing", "model-signing") from error

__all__ = ["SIGNATURE_FILE", "sign_folder", "verify_folder"]

SIGNATURE_FILE = "model.sig"
"""A Sigstore bundle, in the folder that it signs."""
_LEFT_OUT = (SIGNATURE_FILE, "training")
"""The signature itself, and the checkpoint of ``zetadp.train``, which isn't part of the result."""


def sign_folder(folder: Path, private_key: Path, keys: PublicKeySet) -> Path:
    r"""Signs every file in the folder and below it, and writes the signature there; an earlier one is replaced.

    Links are refused; ``training/``, the checkpoint of ``zetadp.train``, and git's own files are left out.

    Args:
      folder: with ``certificate.json`` and ``model.safetensors``, as ``zetadp.train`` or ``zetadp certificate JOB --folder`` leaves it.
      private_key: a PEM file with a key on the curve P-256, P-384 or P-521, without a password; our certificates' Ed25519 isn't among those
        that this form of signature has.
      keys: that you trust to sign certificates; a folder whose certificate isn't valid with them isn't signed.
    Returns:
      the path of the signature.
    Raises:
      InvalidParameter: the certificate isn't valid, the model isn't there, or the key isn't such a key.
    """
    _check(folder, keys)
    with _refused("private_key", "a PEM file with a key on P-256, P-384 or P-521 that has no password"):
        signer = signing.Config().use_elliptic_key_signer(private_key=private_key)
    with _refused("folder", "of files, without links"):
        signer.set_hashing_config(hashing.Config().set_ignored_paths(paths=_LEFT_OUT)).sign(folder, folder / SIGNATURE_FILE)
    return folder / SIGNATURE_FILE


def verify_folder(folder: Path, public_key: Path, keys: PublicKeySet) -> None:
    r"""Checks the folder's signature, that no file was changed, added or removed since, and the certificate.

    Args:
      folder: as ``sign_folder`` leaves it.
      public_key: a PEM file with the key that you trust to sign folders.
      keys: that you trust to sign certificates.
    Raises:
      InvalidParameter: one of them isn't valid.
    """
    with _refused("public_key", "a PEM file with a public key on P-256, P-384 or P-521"):
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=public_key)
    with _refused("folder", "what was signed with this key"):
        verifier.verify(folder, folder / SIGNATURE_FILE)
    _check(folder, keys)


def _check(folder: Path, keys: PublicKeySet) -> None:
    if not (folder / MODEL_FILE).is_file():
        raise InvalidParameter("folder", f"one that holds {MODEL_FILE}", str(folder))
    valid_folder(folder, keys)


@contextmanager
def _refused(field: str, expected: str) -> Generator[None]:
    """The package's errors (of JSON, of fields, of keys, of digests) as ours."""
    try:
        yield
    except InvalidSignature as error:
        raise InvalidParameter(field, expected, "a signature that doesn't fit") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Of files that differ the names, without the bytes of their digests.
        found = re.sub(r"[\[\]\\'\"]", "", str(error).removeprefix("Signature mismatch: ").partition(": Expected")[0])
        raise InvalidParameter(field, expected, found or type(error).__name__) from error
