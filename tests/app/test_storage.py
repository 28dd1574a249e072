r"""The contract of a store, on both kinds; and that whoever has no right to write a job's snapshots can't."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.app.s3_harness import CREDENTIALS, credentials, fresh_url, s3_server
from zetadp.app.jobs.folders import FolderTaken
from zetadp.app.jobs.workspaces import StoredWorkspace, artifact_key
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import KeyTaken, ObjectDamaged, ObjectMissing, StorageUnavailable, Store
from zetadp.app.storage.opening import Storage, storage_of
from zetadp.app.storage.s3 import PIECE, S3Store
from zetadp.mechanisms.errors import InvalidParameter

CONTENT = b"x" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def endpoint() -> Generator[str]:
    with s3_server() as address, credentials(address):
        yield address


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        request.getfixturevalue("endpoint")
        return storage_of(Settings(data_dir=tmp_path / "data", storage_url=fresh_url()))
    return storage_of(Settings(data_dir=tmp_path / "data"))


@pytest.fixture
def store(storage: Storage) -> Store:
    return storage.store


def put(store: Store, key: str, content: bytes, folder: Path) -> None:
    """Take a file with this content."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "given"
    file.write_bytes(content)
    store.take(key, file, hashlib.sha256(content).hexdigest())
    assert not file.exists()


# The contract


def test_object_is_created_once(store: Store) -> None:
    version = store.create("jobs/a/head.json", b"first")
    with pytest.raises(KeyTaken):
        store.create("jobs/a/head.json", b"second")
    found = store.get("jobs/a/head.json")
    assert found is not None
    assert (found.content, found.version) == (b"first", version)
    assert store.create("jobs/a/head.json", b"first") == version  # again by the same writer, whose answer was lost


def test_object_is_replaced_only_by_who_knows_its_version(store: Store) -> None:
    first = store.create("head", b"first")
    second = store.replace("head", b"second", first)
    with pytest.raises(KeyTaken):
        store.replace("head", b"third", first)
    assert store.replace("head", b"second", first) == second  # again by the same writer
    store.replace("head", b"third", second)
    with pytest.raises(KeyTaken):
        store.replace("other", b"first", second)
    assert store.get("other") is None


def test_of_writers_at_the_same_moment_exactly_one_replaces(storage: Storage) -> None:
    store = storage.store
    if storage.is_elsewhere:
        pytest.skip("moto compares and writes in two steps")
    version = store.create("head", b"before")

    def write(number: int) -> bool:
        try:
            store.replace("head", f"writer {number}".encode(), version)
        except KeyTaken:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(40))) == 1


def test_file_is_taken_and_fetched_whole(store: Store, tmp_path: Path) -> None:
    put(store, "uploads/a/1", CONTENT, tmp_path)
    put(store, "uploads/a/1", CONTENT + CONTENT, tmp_path)
    assert store.fetch("uploads/a/1", tmp_path / "copy") == hashlib.sha256(CONTENT + CONTENT).hexdigest()
    assert (tmp_path / "copy").read_bytes() == CONTENT + CONTENT
    assert store.facts("uploads/a/1").bytes == 2000
    with store.open("uploads/a/1") as stream:
        assert stream.read(5) + stream.read() == CONTENT + CONTENT
    with pytest.raises(FileExistsError):
        store.fetch("uploads/a/1", tmp_path / "copy")


def test_empty_file_is_a_file(store: Store, tmp_path: Path) -> None:
    put(store, "empty", b"", tmp_path)
    assert store.fetch("empty", tmp_path / "copy") == hashlib.sha256(b"").hexdigest()
    assert store.facts("empty").bytes == 0


def test_what_is_not_there_is_missing(store: Store, tmp_path: Path) -> None:
    assert store.get("a/b") is None
    for ask in (store.facts, store.open, lambda key: store.fetch(key, tmp_path / "copy")):
        with pytest.raises(ObjectMissing):
            ask("a/b")
    assert not (tmp_path / "copy").exists()
    assert store.names("a/") == []
    assert list(store.listed("a/")) == []
    store.delete(["a/b"])
    store.delete_all("a/")


def test_objects_are_listed_by_prefix_and_deleted(store: Store, tmp_path: Path) -> None:
    for key in ("jobs/a/1", "jobs/a/x/2", "jobs/ab/3", "jobs/b"):
        put(store, key, key.encode(), tmp_path)
    assert sorted((one.key, one.bytes) for one in store.listed("jobs/a/")) == [("jobs/a/1", 8), ("jobs/a/x/2", 10)]
    assert store.names("jobs/") == ["a", "ab", "b"]
    store.delete(["jobs/ab/3", "jobs/b", "jobs/never"])
    assert {one.key for one in store.listed("jobs/")} == {"jobs/a/1", "jobs/a/x/2"}
    store.delete_all("jobs/a/")
    assert list(store.listed("jobs/")) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a\\b", "a\x00b"])
def test_key_that_leads_elsewhere_is_refused(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match="a key must have plain parts"):
        store.get(key)


def test_object_of_several_parts_is_whole(storage: Storage, tmp_path: Path) -> None:
    content = os.urandom(PIECE + 12_345)
    put(storage.store, "large", content, tmp_path)
    assert storage.store.fetch("large", tmp_path / "copy") == hashlib.sha256(content).hexdigest()
    with storage.at_hand("large", hashlib.sha256(content).hexdigest()) as path:
        assert path.read_bytes() == content


# S3 alone


def test_bytes_changed_in_the_bucket_are_noticed(endpoint: str, tmp_path: Path) -> None:
    store = S3Store("tests", "damage")
    file = tmp_path / "given"
    file.write_bytes(b"other bytes")
    store.take("x", file, SHA256)
    with pytest.raises(ObjectDamaged, match=SHA256):
        store.fetch("x", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_store_that_honours_conditions_passes_and_leaves_nothing(endpoint: str) -> None:
    store = S3Store("tests", "checked")
    store.check()
    assert list(store.listed("checks/")) == []


def test_store_that_ignores_conditions_is_refused(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store("tests", "careless")
    monkeypatch.setattr(S3Store, "create", lambda self, key, content: self._client.put(self._bucket, key, content)["e_tag"])
    with pytest.raises(InvalidParameter, match="If-None-Match"):
        store.check()


def test_bucket_that_is_not_there_and_server_that_is_gone_are_unavailable(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageUnavailable, match="storage doesn't answer"):
        S3Store("nobody-made-it", "").create("x", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("zetadp.app.storage.s3.TRIES", 0)
    with pytest.raises(StorageUnavailable) as failed:
        S3Store("tests", "").get("x")
    assert not any(secret in repr(failed.value) for secret in CREDENTIALS.values() if secret)


@pytest.mark.parametrize("url", ["http://b/p", "s3://", "s3://Bucket", "s3://b/../c", "s3://bucket?x=1", "s3://key:secret@bucket/p"])
def test_storage_url_is_checked_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="storage_url") as refused:
        Settings(storage_url=url)
    assert "secret" not in str(refused.value)


# Snapshots of attempts, on machines that share nothing but the store


def attempt(storage: Storage, machine: Path, number: int, owner: str = "") -> StoredWorkspace:
    return StoredWorkspace(storage, machine / "job", "job", number, owner or f"attempt {number}")


def write(place: StoredWorkspace, content: str, name: str = "checkpoint.safetensors") -> None:
    """As the training writes."""
    file = place.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_name(".new").write_text(content)
    file.with_name(".new").replace(file)


def files(place: StoredWorkspace) -> dict[str, str]:
    return {path.relative_to(place.folder).as_posix(): path.read_text() for path in place.folder.rglob("*") if path.is_file()}


def objects(store: Store) -> set[str]:
    return {one.key for one in store.listed("jobs/job/")}


def test_attempt_on_another_machine_finds_what_was_kept_and_nothing_newer(storage: Storage, tmp_path: Path) -> None:
    early = attempt(storage, tmp_path / "a", 1)
    write(early, "5")
    write(early, "of a part", "parts/one/checkpoint.safetensors")
    early.keep()
    write(early, "10")  # nobody has heard of it
    late = attempt(storage, tmp_path / "b", 2)
    assert files(late) == {"checkpoint.safetensors": "5", "parts/one/checkpoint.safetensors": "of a part"}
    assert files(attempt(storage, tmp_path / "a", 3)) == files(late)  # nor does the machine that has it


def test_superseded_attempt_cannot_keep_anything(storage: Storage, tmp_path: Path) -> None:
    early = attempt(storage, tmp_path / "a", 1)
    write(early, "5")
    early.keep()
    late = attempt(storage, tmp_path / "b", 2)
    write(early, "10")
    with pytest.raises(FolderTaken):
        early.keep()
    with pytest.raises(FolderTaken):
        early.settle()
    write(late, "7")
    late.keep()
    assert files(attempt(storage, tmp_path / "c", 3)) == {"checkpoint.safetensors": "7"}


def test_attempt_that_comes_after_a_later_one_is_refused(storage: Storage, tmp_path: Path) -> None:
    attempt(storage, tmp_path / "a", 2)
    for number in (1, 2):
        with pytest.raises(FolderTaken):
            attempt(storage, tmp_path / "b", number, "another")


def test_attempt_that_is_tried_again_is_the_same_attempt(storage: Storage, tmp_path: Path) -> None:
    attempt(storage, tmp_path / "a", 1, "owner")
    again = attempt(storage, tmp_path / "a", 1, "owner")
    write(again, "5")
    again.keep()


def test_snapshot_that_never_got_into_the_head_is_deleted(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early = attempt(storage, tmp_path / "a", 1)
    write(early, "5")
    early.keep()
    kept = objects(storage.store)
    write(early, "10")
    with monkeypatch.context() as patch:
        patch.setattr(StoredWorkspace, "_move_head", lambda *_given: None)  # its machine dies just before
        early.keep()
    assert len(objects(storage.store)) == len(kept) + 1
    late = attempt(storage, tmp_path / "b", 2)
    assert objects(storage.store) == kept
    assert files(late) == {"checkpoint.safetensors": "5"}


def test_write_whose_answer_was_lost_is_known_again(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = attempt(storage, tmp_path / "a", 1)
    write(place, "5")
    store, replace = storage.store, type(storage.store).replace

    def lost(self: Store, key: str, content: bytes, version: str) -> str:
        replace(self, key, content, version)
        raise StorageUnavailable("GenericError")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "replace", lost)
        with pytest.raises(StorageUnavailable):
            place.keep()
    place.keep()
    write(place, "10")
    place.keep()
    assert files(attempt(storage, tmp_path / "b", 2)) == {"checkpoint.safetensors": "10"}


def test_unfinished_files_logs_and_the_request_are_not_kept(storage: Storage, tmp_path: Path) -> None:
    early = attempt(storage, tmp_path / "a", 1)
    (early.folder / "request.json").write_text("{}")
    (early.folder / ".checkpoint.safetensors.1.tmp").write_text("half")
    (early.folder / "team-0123").write_text("addresses")
    write(early, "the record of Jane Doe", "parts/training.log")
    write(early, "of a part", "parts/request.json")
    early.keep()
    assert files(attempt(storage, tmp_path / "b", 2)) == {"parts/request.json": "of a part"}


def test_file_that_changes_under_way_is_uploaded_again(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early, changes = attempt(storage, tmp_path / "a", 1), ["half", "whole"]
    file, uploaded = early.folder / "table.csv", StoredWorkspace._uploaded
    file.write_text("")

    def changing(self: StoredWorkspace, name: str):
        found = uploaded(self, name)
        if changes:
            file.write_text(changes.pop(0))  # in place, which nothing of ours does
        return found

    monkeypatch.setattr(StoredWorkspace, "_uploaded", changing)
    early.keep()
    assert files(attempt(storage, tmp_path / "b", 2)) == {"table.csv": "whole"}


def test_damaged_snapshot_is_not_continued_from(storage: Storage, tmp_path: Path) -> None:
    early = attempt(storage, tmp_path / "a", 1)
    write(early, "5")
    early.keep()
    (key,) = objects(storage.store) - {"jobs/job/head.json"}
    put(storage.store, key, b"6", tmp_path)
    with pytest.raises(ObjectDamaged):
        attempt(storage, tmp_path / "b", 2)


def test_after_success_only_the_artifacts_and_the_head_are_left(storage: Storage, tmp_path: Path) -> None:
    failed = attempt(storage, tmp_path / "a", 1)
    write(failed, "early model", "artifacts/model")
    failed.keep()
    failed.publish(["model"])
    place = attempt(storage, tmp_path / "b", 2)
    write(place, "model", "artifacts/model")
    write(place, "20")
    place.keep()
    place.publish(["model"])
    place.settle()
    assert objects(storage.store) == {"jobs/job/head.json", artifact_key("job", 2, "model")}
    with storage.store.open(artifact_key("job", 2, "model")) as model:
        assert model.read() == b"model"
    place.leave()
    assert not place.folder.exists()
    with pytest.raises(FolderTaken):  # of an attempt that was started long ago and comes only now
        attempt(storage, tmp_path / "a", 1, "late")
