r"""The cache of stored files: whole, checked, bounded, and never taken from under a user."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zetadp.app.storage.base import ObjectDamaged, StorageUnavailable
from zetadp.app.storage.cache import UNUSED_SECONDS, Cache

CONTENT = b"x" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def fetching(content: bytes, counted: list[int]):
    def fetch(into: Path) -> str:
        counted.append(1)
        into.write_bytes(content)
        return hashlib.sha256(content).hexdigest()

    return fetch


def test_object_is_fetched_once_and_stays_for_its_users_when_it_is_dropped(tmp_path: Path) -> None:
    cache, fetched = Cache(tmp_path / "cache", 1500), list[int]()
    cache.link(SHA256, 1000, tmp_path / "one", fetching(CONTENT, fetched))
    cache.link(SHA256, 1000, tmp_path / "two", fetching(CONTENT, fetched))
    assert len(fetched) == 1
    os.utime(tmp_path / "one", (1, 1))  # used longest ago
    other = b"y" * 1000
    cache.link(hashlib.sha256(other).hexdigest(), 1000, tmp_path / "three", fetching(other, []))
    assert [path.name for path in (tmp_path / "cache").iterdir() if len(path.name) == 64] == [hashlib.sha256(other).hexdigest()]
    assert (tmp_path / "two").read_bytes() == CONTENT
    assert os.stat(tmp_path / "two").st_mode & 0o777 == 0o400


def test_object_with_other_bytes_or_of_a_broken_fetch_never_gets_into_the_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 10**6)
    with pytest.raises(ObjectDamaged):
        cache.link(SHA256, 1000, tmp_path / "one", fetching(b"other", []))

    def broken(into: Path) -> str:
        into.write_bytes(b"half")
        raise StorageUnavailable("GenericError")

    with pytest.raises(StorageUnavailable):
        cache.link(SHA256, 1000, tmp_path / "one", broken)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f".lock-{SHA256[:2]}"]
    assert not (tmp_path / "one").exists()


def test_object_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 10)
    cache.link(SHA256, 1000, tmp_path / "one", fetching(CONTENT, []))
    assert (tmp_path / "one").read_bytes() == CONTENT
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_nobody_used_for_long_goes(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 10**6)
    cache.link(SHA256, 1000, tmp_path / "one", fetching(CONTENT, []))
    cache.shrink()
    assert (tmp_path / "cache" / SHA256).exists()
    old = os.stat(tmp_path / "one").st_mtime - UNUSED_SECONDS - 1
    os.utime(tmp_path / "one", (old, old))
    cache.shrink()
    assert not (tmp_path / "cache" / SHA256).exists()


def test_of_users_at_the_same_moment_one_fetches(tmp_path: Path) -> None:
    cache, fetched = Cache(tmp_path / "cache", 10**6), list[int]()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: cache.link(SHA256, 1000, tmp_path / str(number), fetching(CONTENT, fetched)), range(20)))
    assert len(fetched) == 1
