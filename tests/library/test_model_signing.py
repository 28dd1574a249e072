"""OpenSSF signatures of finished trainings, by the package itself: they hold for exactly these files, and for valid certificates alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tests.library.certificates import issued, keys, settings
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, signing_key
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms import InvalidParameter

__all__ = ["issued", "keys", "settings"]  # fixtures


@pytest.fixture(scope="module")
def integration() -> ModuleType:
    pytest.importorskip("model_signing", reason="model-signing isn't installed: pip install 'zetadp[model-signing]'")
    import zetadp.integrations.model_signing

    return zetadp.integrations.model_signing


def write_key(folder: Path, key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> tuple[Path, Path]:
    """(private, public) as PEM files."""
    private, public = folder / "key.pem", folder / "key.pub"
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_key(tmp_path, ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture
def result(issued: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder as ``zetadp.train`` leaves it, with its checkpoint."""
    folder = tmp_path / "run"
    shutil.copytree(issued("plain"), folder)
    (folder / "training").mkdir()
    (folder / "training" / "checkpoint").write_bytes(b"a state")
    return folder


def test_a_signed_folder_verifies_here_and_with_the_packages_own_command(
    integration: ModuleType, result: Path, pair: tuple[Path, Path], keys: PublicKeySet
) -> None:
    signature = integration.sign_folder(result, pair[0], keys)
    assert signature == result / "model.sig"
    (result / "training" / "checkpoint").unlink()  # no part of the result
    integration.verify_folder(result, pair[1], keys)
    integration.sign_folder(result, pair[0], keys)  # again: the old signature isn't among what is signed
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(result)]
    command += ["--signature", str(signature), "--public_key", str(pair[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_changed_added_or_removed_file_is_named(
    integration: ModuleType, result: Path, pair: tuple[Path, Path], keys: PublicKeySet
) -> None:
    integration.sign_folder(result, pair[0], keys)
    (result / "README.md").write_text("more")
    with pytest.raises(InvalidParameter, match=r"what was signed with this key.*Extra files.*README\.md"):
        integration.verify_folder(result, pair[1], keys)
    (result / "README.md").unlink()
    model = bytearray((result / "model.safetensors").read_bytes())
    model[-1] ^= 1
    (result / "model.safetensors").write_bytes(model)
    with pytest.raises(InvalidParameter, match=r"got 'Hash mismatch for model\.safetensors'$"):
        integration.verify_folder(result, pair[1], keys)
    (result / "model.safetensors").unlink()
    with pytest.raises(InvalidParameter, match=r"Missing files.*model\.safetensors"):
        integration.verify_folder(result, pair[1], keys)


def test_anothers_key_and_a_damaged_signature_are_refused(
    integration: ModuleType, result: Path, pair: tuple[Path, Path], keys: PublicKeySet, tmp_path: Path
) -> None:
    signature: Path = integration.sign_folder(result, pair[0], keys)
    (tmp_path / "other").mkdir()
    _, other = write_key(tmp_path / "other", ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(InvalidParameter, match="folder must be what was signed with this key"):
        integration.verify_folder(result, other, keys)
    good = signature.read_text()
    for damaged in ("", "{}", "[]", good.replace('"sig": "', '"sig": "AAAA', 1).replace('"sig":"', '"sig":"AAAA', 1)):
        assert damaged != good
        signature.write_text(damaged)
        with pytest.raises(InvalidParameter, match="folder must be what was signed with this key"):
            integration.verify_folder(result, pair[1], keys)


def test_nothing_is_signed_that_has_no_valid_certificate_or_no_model(
    integration: ModuleType, result: Path, pair: tuple[Path, Path], keys: PublicKeySet, tmp_path: Path
) -> None:
    others = Settings(data_dir=tmp_path / "another")
    signing_key(others)
    with pytest.raises(InvalidParameter, match="certificate must be valid"):
        integration.sign_folder(result, pair[0], jwks(others))
    (result / "model.safetensors").unlink()
    with pytest.raises(InvalidParameter, match=r"folder must be one that holds model\.safetensors"):
        integration.sign_folder(result, pair[0], keys)
    assert not (result / "model.sig").exists()


def test_a_key_of_another_kind_is_refused_by_name(integration: ModuleType, result: Path, keys: PublicKeySet, tmp_path: Path) -> None:
    for key in (ec.generate_private_key(ec.SECP256K1()), ed25519.Ed25519PrivateKey.generate()):
        private, _ = write_key(tmp_path, key)
        with pytest.raises(InvalidParameter, match="private_key must be a PEM file with a key on P-256, P-384 or P-521"):
            integration.sign_folder(result, private, keys)
    assert not (result / "model.sig").exists()
