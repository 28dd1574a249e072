r"""The first key of a service, and that no secret of any key is ever in its files, its log or its answers: with real processes."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from click.testing import Result
from fastapi.testclient import TestClient
from pydantic import SecretStr
from typer.testing import CliRunner

from tests.app.access_harness import shown
from tests.app.forked import Command
from tests.app.jobs_harness import spec, wait_until
from zetadp.app.cli import app
from zetadp.app.kit.key_text import KeyText
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms.errors import InvalidParameter

FIRST_LINE = "admin key, shown this once: "


@dataclass
class Started:
    """A service in a process of its own; ``lines`` is all it printed."""

    address: str
    lines: list[str]


def environment(folder: Path, **changes: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ZETADP_")}
    fixed = {"ZETADP_DATA_DIR": str(folder / "data"), "ZETADP_LOG_LEVEL": "debug", "ZETADP_CALCULATING_PROCESSES": "0"}
    return {**plain, **fixed, **changes}


@contextmanager
def started(folder: Path, *arguments: str, **changes: str) -> Generator[Started]:
    process = Command(folder, "serve", "--port", "0", *arguments, env=environment(folder, **changes))
    found = Started("", [])

    def answers() -> bool:
        found.lines = process.stdout.splitlines()
        assert process.is_running, process.stderr
        if len(found.lines) < 2:
            return False
        found.address = found.lines[0].removeprefix("zetadp is at ").replace("0.0.0.0", "127.0.0.1")
        try:
            return httpx2.get(f"{found.address}/livez").status_code == 200
        except httpx2.TransportError:
            return False

    try:
        wait_until(answers)
        yield found
    finally:
        process.terminate()
        try:
            process.wait()
        finally:
            process.kill()


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, code: int = 0, **changes: str) -> Result:
    """A command of this process."""
    for name in [name for name in os.environ if name.startswith("ZETADP_")]:
        monkeypatch.delenv(name)
    for name, value in environment(folder, **changes).items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    return done


def holding(folder: Path, secret: str) -> list[str]:
    """The files that hold the secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if secret.encode() in path.read_bytes()]


def test_without_a_key_no_other_machine_is_listened_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run(tmp_path, monkeypatch, "serve", "--port", "0", "--host", "0.0.0.0", code=2)
    assert "host must be a loopback address as long as there are no keys, got '0.0.0.0'" in refused.output
    assert "zdp_" not in refused.output


def test_the_first_start_prints_one_admin_key_and_no_secret_is_kept_or_logged(tmp_path: Path) -> None:
    with started(tmp_path) as service:
        (line,) = [line for line in service.lines if line.startswith(FIRST_LINE)]
        first = line.removeprefix(FIRST_LINE)
        with httpx2.Client(base_url=service.address, timeout=120) as client:
            made = client.post("/v1/keys", json={"name": "second", "scopes": ["submit"]}, headers=shown(first)).json()
            second = made["text"]
            answers = _asked_with_keys_in_wrong_places(client, first, second)
    secrets = [KeyText.read(key).secret for key in (first, second)]  # pyright: ignore[reportOptionalMemberAccess]
    for secret in secrets:
        assert not any(secret in answer for answer in answers)
    # What was printed to the operator is theirs; everything else stays in the folder.
    (tmp_path / "stdout").unlink()
    assert [holding(tmp_path, secret) for secret in secrets] == [[], []]
    assert KeyText.read(first).id in (tmp_path / "stderr").read_text()  # pyright: ignore[reportOptionalMemberAccess]

    with started(tmp_path, "--host", "0.0.0.0", ZETADP_REQUESTS_PER_ADDRESS="2/minute") as service:
        assert not any("zdp_" in line for line in service.lines)
        assert httpx2.get(f"{service.address}/v1/jobs", headers=shown(second)).status_code == 200
        # Nobody's word is taken for where a request comes from, not even this machine's.
        asked = [{"X-Forwarded-For": f"192.0.2.{part}"} for part in range(3)]
        answers = [httpx2.get(f"{service.address}/v1/mechanisms", headers=header).status_code for header in asked]
        assert answers == [200, 200, 429]


def _asked_with_keys_in_wrong_places(client: httpx2.Client, first: str, second: str) -> list[str]:
    """Every answer, with its headers, of requests that carry keys where they don't belong; and of ordinary ones."""
    header = shown(first)
    answers = [
        client.post("/v1/jobs", json={"spec": spec()}, headers={**header, "Idempotency-Key": "plain"}),
        client.get("/v1/keys", headers=header),
        client.delete(f"/v1/keys/{second}x", headers={**header, "X-Request-ID": "short"}),
        client.get("/v1/audit-log", headers=header),
        client.get("/v1/jobs", params={"cursor": "x"}, headers=header),
        client.get(f"/v1/nowhere?key={second}"),
        client.get("/v1/jobs", headers={"Authorization": f"Basic {second}"}),
        client.get("/v1/jobs", headers={"X-Request-ID": second[:64]}),
    ]
    return [answer.text + str(answer.headers) for answer in answers if "/keys/zdp_" not in str(answer.url)]


def test_a_key_of_the_environment_is_the_first_and_stays_revoked(tmp_path: Path) -> None:
    key = KeyText.fresh()
    of = Settings(data_dir=tmp_path, admin_key=SecretStr(key.text))
    with TestClient(create_app(of), base_url="http://localhost", headers=shown(key.text)) as client:
        answer = client.get("/v1/keys").json()
        assert [(found["id"], found["name"]) for found in answer["keys"]] == [(key.id, "first admin key")]
        assert client.delete(f"/v1/keys/{key.id}").status_code == 200
    with TestClient(create_app(of), base_url="http://localhost", headers=shown(key.text)) as client:
        assert client.get("/v1/keys").status_code == 401
    assert holding(tmp_path, key.secret) == []


def test_another_secret_under_a_known_id_is_refused_at_the_start(tmp_path: Path) -> None:
    key = KeyText.fresh()
    other = KeyText(key.id, KeyText.fresh().secret)
    with TestClient(create_app(Settings(data_dir=tmp_path, admin_key=SecretStr(key.text)))):
        pass
    again = TestClient(create_app(Settings(data_dir=tmp_path, admin_key=SecretStr(other.text))))
    with pytest.raises(InvalidParameter, match="admin_key must be the key that is stored under its id, got 'another secret'"), again:
        pass


@pytest.mark.parametrize("text", ["hunter2-hunter2", "zdp_1_2"])
def test_a_key_of_the_environment_that_is_none_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    refused = run(tmp_path, monkeypatch, "serve", "--port", "0", code=2, ZETADP_ADMIN_KEY=text)
    assert "settings: ZETADP_ADMIN_KEY: must be a key made by `zetadp keys generate`" in refused.output
    assert text not in refused.output


def test_a_password_in_a_setting_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run(tmp_path, monkeypatch, "serve", "--port", "0", code=2, ZETADP_DATABASE_URL="mysql://user:hunter2@host/db")
    assert "ZETADP_DATABASE_URL" in refused.output
    assert "hunter2" not in refused.output


def test_the_command_line_makes_lists_rotates_and_revokes_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(*arguments: str, code: int = 0) -> str:
        return run(tmp_path, monkeypatch, "keys", *arguments, code=code).output

    made = json.loads(keys("create", "--name", "ward 3", "--scope", "admin", "--tenant", "clinic-b", "--json"))
    assert (made["key"]["tenant"], made["key"]["scopes"]) == ("clinic-b", ["admin"])
    rotated = keys("rotate", made["key"]["id"], "--tenant", "clinic-b", "--grace-seconds", "0").splitlines()[-1]
    new = KeyText.read(rotated)
    assert new is not None
    of = Settings(data_dir=tmp_path / "data")
    with TestClient(create_app(of), base_url="http://localhost") as client:
        assert [client.get("/v1/keys", headers=shown(text)).status_code for text in (made["text"], rotated)] == [401, 200]
        keys("revoke", new.id, "--tenant", "clinic-b")
        assert client.get("/v1/keys", headers=shown(rotated)).status_code == 401
    listing = keys("list", "--tenant", "clinic-b")
    assert [line.split()[0] for line in listing.splitlines()] == [new.id, made["key"]["id"]]
    assert ("revoked" in listing, "expired" in listing) == (True, True)
    assert keys("list") == ""
    assert "there is no key" in keys("revoke", new.id, code=4)
    assert "is revoked and can't be rotated" in keys("rotate", new.id, "--tenant", "clinic-b", code=1)
    assert "tenant must be small letters" in keys("create", "--name", "x", "--scope", "ledger", "--tenant", "A B", code=2)
    assert KeyText.read(keys("generate").strip()) is not None
    assert [holding(tmp_path, text.rpartition("_")[2]) for text in (made["text"], rotated)] == [[], []]


def test_what_the_operator_does_is_in_the_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = json.loads(run(tmp_path, monkeypatch, "keys", "create", "--name", "x", "--scope", "admin", "--json").output)
    with TestClient(create_app(Settings(data_dir=tmp_path / "data")), base_url="http://localhost", headers=shown(made["text"])) as client:
        (entry,) = client.get("/v1/audit-log").json()["entries"]
    assert (entry["action"], entry["address"], entry["target"]) == ("keys create", "local", made["key"]["id"])
