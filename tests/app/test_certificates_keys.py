"""Signing keys: private on disk, created once, named by thumbprint, rotated without forgetting."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from zetadp.app.certificates.errors import SigningKeyUnusable
from zetadp.app.certificates.signing.keys import PublicKey, jwks, rotate, signer
from zetadp.app.kit.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def _key_file(settings: Settings) -> Path:
    jwks(settings)
    return settings.data_dir / "keys" / "0001.pem"


def test_key_folder_is_open_to_its_owner_alone(settings: Settings) -> None:
    assert stat.S_IMODE(_key_file(settings).parent.stat().st_mode) == 0o700


def test_key_file_is_readable_by_its_owner_alone(settings: Settings) -> None:
    assert stat.S_IMODE(_key_file(settings).stat().st_mode) == 0o600


def test_the_same_key_is_found_again(settings: Settings) -> None:
    assert jwks(settings) == jwks(settings)


def test_threads_that_race_for_the_first_key_all_get_one_and_the_same(settings: Settings) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: signer(settings).public_key.keyid, range(16)))
    assert len(ids) == 1


@pytest.mark.slow
def test_processes_that_race_for_the_first_key_all_get_one_and_the_same(settings: Settings) -> None:
    code = (
        "from zetadp.app.kit.settings import Settings; from zetadp.app.certificates.signing.keys import signer; "
        "print(signer(Settings()).public_key.keyid)"
    )
    environment = {**os.environ, "ZETADP_DATA_DIR": str(settings.data_dir)}
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    assert len({process.communicate(timeout=120)[0] for process in running}) == 1


def test_nothing_but_the_key_is_left_in_the_folder(settings: Settings) -> None:
    assert [path.name for path in _key_file(settings).parent.iterdir()] == ["0001.pem"]


def test_key_id_is_the_rfc_7638_thumbprint(settings: Settings) -> None:
    key = jwks(settings).keys[0]
    members = json.dumps({"crv": key.crv, "kty": key.kty, "x": key.x}, sort_keys=True, separators=(",", ":")).encode()
    assert key.kid == base64.urlsafe_b64encode(hashlib.sha256(members).digest()).decode().rstrip("=")


def test_rfc_8037_example_has_its_printed_thumbprint() -> None:
    # RFC 8037, appendices A.2 and A.3.
    key = PublicKey(x="11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", kid="kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k")
    assert key.raw.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


def test_a_key_with_another_keys_name_is_refused(settings: Settings) -> None:
    first = jwks(settings).keys[0]
    second = rotate(settings)
    with pytest.raises(ValidationError, match="kid must be the key's own thumbprint"):
        PublicKey(x=first.x, kid=second.kid)


def test_public_set_holds_no_private_part(settings: Settings) -> None:
    assert set(json.loads(jwks(settings).model_dump_json())["keys"][0]) == {"kty", "crv", "x", "kid", "use"}


def test_after_rotation_the_new_key_signs(settings: Settings) -> None:
    jwks(settings)
    assert rotate(settings).kid == signer(settings).public_key.keyid


def test_after_rotation_the_old_key_stays_published_behind_the_new(settings: Settings) -> None:
    old = jwks(settings).keys[0]
    new = rotate(settings)
    assert jwks(settings).keys == (new, old)


def test_a_key_that_others_may_read_is_refused(settings: Settings) -> None:
    _key_file(settings).chmod(0o644)
    with pytest.raises(SigningKeyUnusable, match=r"other users may read it \(mode 0644\); it must be 0600"):
        signer(settings)


def test_a_file_that_is_no_key_is_refused(settings: Settings) -> None:
    _key_file(settings).write_text("hello")
    with pytest.raises(SigningKeyUnusable, match="it isn't an unencrypted PEM private key"):
        signer(settings)
