r"""The interface of a store: keys like ``uploads/default/1f2e`` and the bytes under them. A folder and S3 implement it.

A key has its whole content or doesn't exist: nobody ever reads half of one. Whoever needs to be fenced writes with ``create`` or
``replace``, which fail where somebody else wrote first; ``take`` is for keys that only one writer has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from io import BufferedReader
from pathlib import Path
from typing import Protocol, final

from zetadp.app.kit.errors import RETRY_SECONDS, ProblemType, Unavailable
from zetadp.mechanisms.base import Value

_PART = re.compile(r"[^/\x00-\x1f\\]{1,255}")


class StorageUnavailable(Unavailable):
    """The store doesn't answer, or refuses this service. A write may or may not have been done."""

    problem = ProblemType(503, "storage-unavailable", "The service's storage doesn't answer.")

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the service's storage doesn't answer; try again in {RETRY_SECONDS} s")


class KeyTaken(Exception):
    """Somebody else created or replaced the object first; nothing was written."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"expected {key!r} as this writer knew it, got another's")


class ObjectMissing(Exception):
    """There is no object under this key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"there is no object {key!r}")


class ObjectDamaged(Exception):
    """What was read isn't what was written: its digest differs."""

    def __init__(self, key: str, expected: str, got: str) -> None:
        self.key = key
        super().__init__(f"object {key!r} is damaged: expected contents of SHA-256 {expected}, got {got}")


@final
class Stored(Value):
    r"""A small object that was read whole.

    Attributes:
      version: of exactly this content; what ``replace`` asks for.
    """

    content: bytes
    version: str


@final
class Listed(Value):
    r"""What a listing says about an object.

    Attributes:
      modified: when it was written, by the store's clock.
    """

    key: str
    bytes: int
    modified: datetime


@final
class ObjectFacts(Value):
    """An object's size and the SHA-256 that it was stored with."""

    bytes: int
    sha256: str


class Store(Protocol):
    """A store of objects. Every method but ``path`` raises StorageUnavailable where a store elsewhere doesn't answer."""

    def check(self) -> None:
        """Find out whether it answers, may be written, and refuses what its conditions forbid.

        Raises:
          InvalidParameter: it ignores conditions: two attempts of a job could then both write.
          StorageUnavailable: it doesn't answer, or refuses.
        """
        ...

    def path(self, key: str) -> Path | None:
        """The file of this key where the store is a folder of this machine, which may not exist; None where it is elsewhere."""
        ...

    def get(self, key: str) -> Stored | None:
        """A small object, or None where there is none."""
        ...

    def create(self, key: str, content: bytes) -> str:
        """Write a new object and return its version. Raises KeyTaken if there is one with other content."""
        ...

    def replace(self, key: str, content: bytes, version: str) -> str:
        """Write over the object that still has this version and return the new version. Raises KeyTaken if it has another, or is gone.

        The content has to differ from every other writer's, by a random part: it is how a writer knows its own write again whose answer
        was lost.
        """
        ...

    def take(self, key: str, file: Path, sha256: str) -> None:
        """Store a file of any size whole, with this SHA-256, over whatever was there. The file is gone afterwards."""
        ...

    def open(self, key: str) -> BufferedReader:
        """Read it from its beginning, as a stream. Raises ObjectMissing."""
        ...

    def fetch(self, key: str, into: Path) -> str:
        """Write it into a new file, flushed to the disk, and return the SHA-256 of its bytes.

        Raises:
          ObjectMissing: it isn't there.
          ObjectDamaged: it isn't what was stored, as far as the store itself knows the digest.
        """
        ...

    def facts(self, key: str) -> ObjectFacts:
        """Its size and digest. Raises ObjectMissing."""
        ...

    def listed(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with ``prefix``, which ends in a slash."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The parts of keys that come directly after ``prefix``, each once, sorted."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete these objects, as far as they exist."""
        ...

    def delete_all(self, prefix: str) -> None:
        """Delete every object whose key begins with ``prefix``, which ends in a slash."""
        ...


def checked(key: str) -> str:
    """The key, if it is one: parts with slashes between them, none of them empty, ``.`` or ``..``. Raises ValueError."""
    if any(part in (".", "..") or not _PART.fullmatch(part) for part in key.split("/")):
        raise ValueError(f"a key must have plain parts with slashes between them, got {key[:200]!a}")
    return key
