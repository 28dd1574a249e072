r"""Uploads over HTTP: kept whole or not at all, within limits, and told without their values."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import httpx2
import numpy as np
import pytest

from tests.app.access_harness import made as key_of
from tests.app.access_harness import shown
from tests.app.jobs_harness import AUTHORIZED, postgresql_server, serving, settings, wait_until
from tests.app.uploads_harness import InProcess, files_below, npz, reading_in_process, upload, uploaded
from tests.selection import chosen, thinned
from zetadp.app.kit import problems as errors
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import Store
from zetadp.app.tables.uploads import UploadRow
from zetadp.app.uploads import service as service_module
from zetadp.app.uploads import storage
from zetadp.app.uploads.errors import QuotaExceeded, UploadCutOff
from zetadp.app.uploads.housekeeping import sweep
from zetadp.app.uploads.receiving import content_digest
from zetadp.app.uploads.service import Begun, UploadAsked, UploadService
from zetadp.app.uploads.storage import Landing
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.formats import ArrayFacts, Contents

CONTENT = npz()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    changes = {"upload_bytes": 100_000, "tenant_bytes": 250_000}
    return Settings.model_validate({**dict(settings(tmp_path_factory.mktemp("uploads"))), **changes})


@pytest.fixture(scope="module")
def service(of: Settings) -> Generator[httpx2.Client]:
    with reading_in_process(), serving(of) as client:
        yield client


@pytest.fixture
def client(service: httpx2.Client, of: Settings) -> Generator[httpx2.Client]:
    """Of a tenant that has nothing before, nor afterwards."""
    yield service
    for found in service.get("/v1/uploads").json()["uploads"]:
        assert service.delete(f"/v1/uploads/{found['id']}").status_code == 204
    assert files_below(of.uploads_dir) == []


def nothing_is_kept(client: httpx2.Client, of: Settings) -> None:
    database = Database(of)

    def rows() -> int:
        with database.reading() as session:
            return session.query(UploadRow).count()

    # The file goes first, then its row, after the connection is gone.
    wait_until(lambda: files_below(of.uploads_dir) == [] and rows() == 0)
    database.close()
    assert client.get("/v1/uploads").json() == {"uploads": [], "next": None}


def test_an_upload_is_told_by_its_arrays_and_kept_for_this_account_alone(client: httpx2.Client, of: Settings) -> None:
    response = upload(client, CONTENT, name="../../etc/passwd")
    assert response.status_code == 201
    told = response.json()
    assert response.headers["location"] == f"/v1/uploads/{told['id']}"
    assert (told["name"], told["bytes"], told["sha256"]) == ("../../etc/passwd", len(CONTENT), SHA256)
    assert {array["name"]: (array["shape"], array["dtype"]) for array in told["arrays"]} == {
        "x": ([60, 4], "complex64"),
        "y": ([60], "int64"),
        "patient": ([60], "int64"),
    }
    assert client.get(f"/v1/uploads/{told['id']}").json() == told
    assert client.get("/v1/uploads").json()["uploads"] == [told]
    (path,) = files_below(of.uploads_dir)
    assert path == of.uploads_dir / "default" / told["id"]
    assert path.read_bytes() == CONTENT
    assert [place.stat().st_mode & 0o777 for place in (path, path.parent, of.uploads_dir)] == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("how", thinned(["query", "header", "both"], every=3))
def test_the_digest_that_a_client_names_is_compared(client: httpx2.Client, of: Settings, how: str) -> None:
    def headers(digest: bytes) -> dict[str, str]:
        return {"Content-Digest": f"sha-512=:AA==:, sha-256=:{base64.b64encode(digest).decode()}:"}

    right, wrong = hashlib.sha256(CONTENT).digest(), hashlib.sha256(b"").digest()
    query = {"format": "npz", "name": "a"} | ({} if how == "header" else {"sha256": (wrong if how == "query" else right).hex()})
    refused = client.post("/v1/uploads", params=query, content=CONTENT, headers={} if how == "query" else headers(wrong))
    assert refused.status_code == 422, refused.text
    assert f"sha256 must be the digest of the received body, {SHA256}" in refused.json()["detail"]
    nothing_is_kept(client, of)
    query |= {} if how == "header" else {"sha256": right.hex()}
    assert client.post("/v1/uploads", params=query, content=CONTENT, headers={} if how == "query" else headers(right)).status_code == 201


def test_a_digest_that_is_none_is_refused() -> None:
    for header in ("sha-256=abc", "sha-256=:AAAA:"):
        with pytest.raises(InvalidParameter, match="Content-Digest must be like sha-256"):
            content_digest(header)
    assert content_digest("sha-512=:AAAA:") == ()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_body_beyond_the_limit_is_refused_and_nothing_of_it_kept(client: httpx2.Client, of: Settings, is_known: bool) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(11):
            yield bytes(10_000)

    headers = {"Content-Length": "110000"} if is_known else {}
    response = client.post("/v1/uploads", params={"format": "npz", "name": "a"}, content=pieces(), headers=headers)
    assert (response.status_code, response.json()["type"]) == (413, "upload-too-large")
    assert "at most 100000 bytes" in response.json()["detail"]
    nothing_is_kept(client, of)


def test_a_length_beyond_the_limit_is_refused_before_a_byte_of_the_body(client: httpx2.Client, of: Settings) -> None:
    with connected(client) as connection:
        send_head(connection, 10**12)
        assert connection.recv(12) == b"HTTP/1.1 413"
    nothing_is_kept(client, of)


def test_a_tenants_room_is_used_up_and_free_again(client: httpx2.Client, of: Settings) -> None:
    filled = npz(x=np.zeros(11_900))
    first, _ = uploaded(client, filled), uploaded(client, filled)
    refused = upload(client, filled)
    assert (refused.status_code, refused.json()["type"]) == (409, "quota-exceeded")
    assert f"uploads and data sets already take {2 * len(filled)} of the tenant's 250000 bytes" in refused.json()["detail"]
    pieces = client.post("/v1/uploads", params={"format": "npz", "name": "a"}, content=iter([filled]))
    assert pieces.json()["type"] == "quota-exceeded"
    assert client.delete(f"/v1/uploads/{first}").status_code == 204
    assert upload(client, filled).status_code == 201


@contextmanager
def connected(client: httpx2.Client) -> Generator[socket.socket]:
    address = (client.base_url.host, client.base_url.port)
    with socket.create_connection(address, timeout=120) as connection:
        yield connection


def send_head(connection: socket.socket, length: int) -> None:
    head = f"POST /v1/uploads?format=npz&name=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: {AUTHORIZED['Authorization']}\r\n"
    connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode())


def test_a_body_that_is_cut_off_leaves_nothing(client: httpx2.Client, of: Settings) -> None:
    with connected(client) as connection:
        send_head(connection, len(CONTENT))
        connection.sendall(CONTENT[:500])
        wait_until(lambda: len(files_below(of.uploads_dir)) == 1)
    nothing_is_kept(client, of)


@pytest.mark.parametrize("content", thinned([b"", b"no archive", CONTENT[:-40]], every=3))
def test_what_is_no_whole_file_of_its_format_leaves_nothing(client: httpx2.Client, of: Settings, content: bytes) -> None:
    response = upload(client, content)
    assert (response.status_code, response.json()["type"]) == (422, "invalid-parameter")
    nothing_is_kept(client, of)


def test_a_full_disk_leaves_nothing(client: httpx2.Client, of: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(storage.PART):
            raise OSError(errno.ENOSPC, "No space left on device")
        synced(descriptor)

    monkeypatch.setattr(storage.os, "fsync", full)
    response = upload(client)
    assert (response.status_code, response.json()["type"]) == (507, "storage-full")
    nothing_is_kept(client, of)


def test_an_error_that_nobody_foresaw_leaves_nothing(client: httpx2.Client, of: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InProcess, "instead", RuntimeError("a value"))
    monkeypatch.setattr(errors, "get_logger", Mock())  # which draws the whole stack, for seconds
    response = upload(client)
    assert response.status_code == 500
    assert "a value" not in response.text
    nothing_is_kept(client, of)


def test_a_key_makes_one_upload_and_another_body_is_refused(client: httpx2.Client, of: Settings) -> None:
    header = {"Idempotency-Key": "once"}
    query = {"format": "npz", "name": "a"}
    first, again = (client.post("/v1/uploads", params=query, content=CONTENT, headers=header) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    for changed, content in ((query, CONTENT + b"0"), (query | {"name": "b"}, CONTENT)):
        refused = client.post("/v1/uploads", params=changed, content=content, headers=header)
        assert (refused.status_code, refused.json()["type"]) == (409, "upload-idempotency-conflict")
    assert len(files_below(of.uploads_dir)) == 1


def test_another_tenant_has_room_and_files_of_its_own(client: httpx2.Client, of: Settings) -> None:
    own = uploaded(client)
    with httpx2.Client(base_url=client.base_url, headers=shown(key_of(of, "b")), timeout=120) as other:
        assert other.get("/v1/uploads").json()["uploads"] == []
        for answer in (other.get(f"/v1/uploads/{own}"), other.delete(f"/v1/uploads/{own}")):
            assert (answer.status_code, answer.json()["detail"]) == (404, f"there is no upload '{own}'")
        theirs = uploaded(other)
        assert client.get(f"/v1/uploads/{theirs}").status_code == 404
        assert other.delete(f"/v1/uploads/{theirs}").status_code == 204


def test_pages_hold_every_upload_once(client: httpx2.Client) -> None:
    ids = [uploaded(client) for _ in range(3)]
    first = client.get("/v1/uploads", params={"limit": 2}).json()
    second = client.get("/v1/uploads", params={"limit": 2, "cursor": first["next"]}).json()
    assert [one["id"] for one in (*first["uploads"], *second["uploads"])] == ids[::-1]
    assert second["next"] is None


def test_an_upload_is_in_the_audit_log(client: httpx2.Client) -> None:
    made = uploaded(client)
    client.delete(f"/v1/uploads/{made}")
    entries = client.get("/v1/audit-log", params={"limit": 2}).json()["entries"]
    assert [(entry["action"], entry["target"], entry["status"]) for entry in entries] == [
        ("delete_upload", f"/v1/uploads/{made}", 204),
        ("upload_file", f"/v1/uploads/{made}", 201),
    ]


def asked(length: int | None = 100, key: str | None = None) -> UploadAsked:
    return UploadAsked(name="a", format="npz", length=length, digests=(), key=key)


@pytest.fixture(params=chosen(["sqlite", "postgresql"], ["postgresql"]))
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[UploadService]:
    """The uploads of one tenant, without a server; there is room for 1000 bytes."""
    small = {**dict(settings(tmp_path)), "tenant_bytes": 1000, "upload_bytes": 400}
    if request.param == "sqlite":
        yield from _local(Settings.model_validate(small))
        return
    with postgresql_server() as url:
        yield from _local(Settings.model_validate({**small, "database_url": url}))


def _local(of: Settings) -> Generator[UploadService]:
    database = Database(of)
    database.migrate()
    opened: list[Landing] = []

    def landing(part: Path, store: Store, key: str) -> Landing:
        opened.append(Landing(part, store, key))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service_module, "Landing", landing)
        yield UploadService(of, database, InProcess(of), "a")  # pyright: ignore[reportArgumentType]
    for one in opened:
        one.abandon()
    database.close()


@pytest.mark.parametrize("length", thinned([300, None], every=2))
def test_uploads_that_begin_at_once_never_take_more_than_a_tenants_room(local: UploadService, length: int | None) -> None:
    begun: list[Begun] = []
    refused: list[QuotaExceeded] = []
    together = threading.Barrier(8)

    def begin() -> None:
        together.wait()
        try:
            begun.append(local.begin(asked(length)))
        except QuotaExceeded as error:
            refused.append(error)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Of unknown length: 400, 400, and what is left.
    assert (len(begun), len(refused)) == (3, 5)
    assert sum(one.room for one in begun) <= 1000
    for one in begun:
        local.abandon(one)
    assert local.begin(asked(400)).room == 400


def test_a_body_of_unknown_length_ends_with_the_room_that_was_left(local: UploadService) -> None:
    first, second, third = (local.begin(asked(length)) for length in (400, 400, None))
    assert (first.room, second.room, third.room) == (400, 400, 200)
    local.check_size(third, 200)
    with pytest.raises(QuotaExceeded, match="take 800 of the tenant's 1000 bytes"):
        local.check_size(third, 201)


def test_a_key_that_is_used_at_once_makes_one_upload(local: UploadService) -> None:
    outcomes: list[str] = []
    together = threading.Barrier(4)

    def begin() -> None:
        together.wait()
        try:
            local.begin(asked(key="one"))
            outcomes.append("begun")
        except Exception as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["UploadKeyReused"] * 3 + ["begun"]


def test_what_a_process_that_died_had_begun_is_given_up_when_it_is_overdue(local: UploadService) -> None:
    begun = local.begin(asked(400))
    begun.landing.write(b"half")
    database, of = local._database, local.settings
    sweep(of, database)
    assert begun.landing.part.exists()  # somebody may be at it still
    with database.writing() as session:
        row = session.get(UploadRow, begun.id)
        assert row is not None
        row.due = now() - timedelta(seconds=1)
    local.begin(asked(400))
    assert not begun.landing.part.exists()
    assert local.begin(asked(400)).used == 400
    begun.landing.part.write_bytes(b"half")
    with pytest.raises(UploadCutOff):
        local.finish(begun, Contents(arrays=(ArrayFacts(name="x", shape=(1,), dtype="float64"),)))
    local.abandon(begun)


def test_files_that_nothing_is_known_of_are_swept(local: UploadService) -> None:
    of = local.settings
    kept = local.begin(asked())
    stray = of.uploads_dir / "a" / ("0" * 32)
    stray.write_bytes(b"data")
    folder = of.made_data_sets_dir / ("1" * 32)
    folder.mkdir(parents=True)
    (folder / "x.npy").write_bytes(b"data")
    sweep(of, local._database)
    assert files_below(of.uploads_dir) == [kept.landing.part]
    assert files_below(of.made_data_sets_dir) == []
