r"""Where an attempt works, and how what it keeps gets to the next one.

With a data folder that all workers share, an attempt works in the job's own folder there (``folders.py``). With a store elsewhere it works
on its machine's disk, and its worker takes snapshots to the store: before an event of the training is recorded, everything that it had
written by then is in the store. So what anybody has heard of is never lost with a machine.

The job's *head* in the store names the files of the newest snapshot and the attempt that may write the next one. A new attempt takes
the head over, with a write that succeeds only over the version it has read; from then on every such write of an earlier attempt is refused.
A snapshot that was uploaded and never got into the head is invisible, and the next attempt deletes it: nobody has heard of its steps,
which are run again.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from errno import EBUSY
from pathlib import Path
from typing import Annotated, Literal, Protocol, final

from pydantic import Field

from zetadp.app.jobs.folders import ATTEMPTS, FolderTaken, take_over
from zetadp.app.kit.settings import Settings
from zetadp.app.storage.base import KeyTaken, ObjectDamaged, Stored, checked
from zetadp.app.storage.opening import Storage, storage_of
from zetadp.mechanisms.base import Value

JOBS, HEAD, ARTIFACTS = "jobs", "head.json", "artifacts"
NOT_KEPT = re.compile(r"request\.json|(.*/)?(\.[^/]*|team-[^/]*|[^/]*\.log)")
"""Files of an attempt's folder that aren't kept: its request, which is written anew at each start; hidden ones, which are unfinished; those
by which several processes find each other; and logs, which may quote a record."""
ROUNDS, ROUND_SECONDS = 100, 0.05
"""How often a snapshot is begun again because a file was written meanwhile, and the pause before that."""


@final
class KeptFile(Value):
    """A file of a snapshot: the object that holds it, its size and its digest."""

    key: str
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@final
class Head(Value):
    r"""What a job's attempts have kept so far.

    Attributes:
      attempt: the one that may write the next head.
      owner: random, of this start of the attempt.
      token: random, of this write.
      files: of the newest snapshot, by their path in the attempt's folder.
    """

    format: Literal["zetadp head 1"] = "zetadp head 1"
    attempt: int
    owner: str
    token: str
    files: dict[str, KeptFile]


class Workspace(Protocol):
    """The folder of one attempt, and what becomes of what is written there."""

    @property
    def folder(self) -> Path:
        """Where the attempt's process works; there it finds what the earlier attempts kept."""
        ...

    def keep(self) -> None:
        """Before anything is told that the process said: a later attempt will find all that it had written by then.

        Raises:
          FolderTaken: a later attempt has begun; nothing was kept.
          StorageUnavailable: try again.
        """
        ...

    def publish(self, names: Sequence[str]) -> None:
        """Put these files of the folder of artifacts where every process of the service reads them. Raises StorageUnavailable."""
        ...

    def settle(self) -> None:
        """The job has ended with success: no attempt follows, and only its artifacts are needed. Raises StorageUnavailable."""
        ...

    def leave(self) -> None:
        """The attempt is over, however it ended."""
        ...


def job_prefix(job_id: str) -> str:
    """What the keys of a job's objects begin with."""
    return f"{JOBS}/{job_id}/"


def artifact_key(job_id: str, attempt: int, name: str) -> str:
    """The key of an artifact; in a folder, this is its path in the attempt's own."""
    return f"{job_prefix(job_id)}{ATTEMPTS}/{attempt:06d}/{ARTIFACTS}/{name}"


def scratch_folder(settings: Settings) -> Path:
    """Where this worker's attempts work with a store elsewhere. Nothing in it is needed once the worker has ended."""
    return settings.data_dir.absolute() / "scratch" / (settings.executor_id or "unnamed")


def workspace(settings: Settings, job_id: str, attempt: int, owner: str) -> Workspace:
    r"""The workspace of a new attempt, with everything that the earlier ones kept; from now on none of them can write.

    Args:
      owner: random, and the same when this is tried again.
    Raises:
      FolderTaken: a later attempt has already begun.
      ObjectDamaged, ObjectMissing: what was kept can't be read.
      StorageUnavailable: try again.
      OSError: the folder can't be made.
    """
    storage = storage_of(settings)
    if storage.is_elsewhere:
        return StoredWorkspace(storage, scratch_folder(settings) / job_id, job_id, attempt, owner)
    return FolderWorkspace(settings.job_dir(job_id), attempt)


@final
class FolderWorkspace:
    """In the job's own folder, which all workers share: what is written there is kept."""

    def __init__(self, job_folder: Path, attempt: int) -> None:
        self._folder = take_over(job_folder, attempt)

    @property
    def folder(self) -> Path:
        return self._folder

    def keep(self) -> None:
        """Does nothing: files are durable once the process has written them."""

    def publish(self, names: Sequence[str]) -> None:
        """Does nothing: they are where they are read."""

    def settle(self) -> None:
        """Does nothing: the folder stays until its retention time is over."""

    def leave(self) -> None:
        """Does nothing: the next attempt takes the folder over."""


_Stamp = tuple[int, int, int]


@final
class StoredWorkspace:
    """On this machine's disk, with snapshots in a store elsewhere."""

    def __init__(self, storage: Storage, scratch: Path, job_id: str, attempt: int, owner: str) -> None:
        self._store = storage.store
        self._scratch = scratch
        self._job_id = job_id
        self._attempt = attempt
        self._owner = owner
        self._head_key = f"{job_prefix(job_id)}{HEAD}"
        self._folder = scratch / ATTEMPTS / f"{attempt:06d}"
        self._staging = scratch / "staged"
        self._seen: dict[str, _Stamp] = {}
        self._head, self._version = self._taken_over()
        self._forget_unkept()
        self._lay_out()

    @property
    def folder(self) -> Path:
        return self._folder

    def keep(self) -> None:
        if self._stamps() == self._seen:
            return
        for _ in range(ROUNDS):
            found = self._stamps()
            if self._staged(found):
                files = {name: self._uploaded(name) for name in found}
                if all(_stamp(self._staging / name) == stamp for name, stamp in found.items()):
                    self._move_head(files)
                    self._seen = found
                    return
            time.sleep(ROUND_SECONDS)
        raise OSError(EBUSY, f"the files are written all the time: no snapshot in {ROUNDS} rounds", str(self._folder))

    def publish(self, names: Sequence[str]) -> None:
        self._clear_staging()
        for name in names:
            file = self._staging / name
            os.link(self._folder / ARTIFACTS / name, file)
            self._store.take(artifact_key(self._job_id, self._attempt, name), file, _sha256(file))

    def settle(self) -> None:
        # The head stays: an attempt that began long ago and comes only now finds that it is too late.
        self._move_head({})
        self._forget_unkept(but=artifact_key(self._job_id, self._attempt, ""))

    def leave(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _taken_over(self) -> tuple[Head, str]:
        """The head, which now is this attempt's. Raises FolderTaken."""
        while True:
            before = self._store.get(self._head_key)
            known = None if before is None else Head.model_validate_json(before.content)
            if known is not None and known.attempt >= self._attempt and known.owner != self._owner:
                raise FolderTaken(self._folder)
            head = self._next({} if known is None else known.files)
            try:
                return head, self._write(head, before)
            except KeyTaken:
                continue  # an earlier attempt was still writing, or another one takes over: look again

    def _write(self, head: Head, before: Stored | None) -> str:
        content = head.model_dump_json().encode()
        if before is None:
            return self._store.create(self._head_key, content)
        return self._store.replace(self._head_key, content, before.version)

    def _move_head(self, files: dict[str, KeptFile]) -> None:
        earlier = self._head.files
        head = self._next(files)
        try:
            self._version = self._store.replace(self._head_key, head.model_dump_json().encode(), self._version)
        except KeyTaken:
            # Perhaps by a write of our own whose answer was lost and that came through later.
            self._check_owner()
            return self._move_head(files)
        self._head = head
        # Only now: until the head had moved, these were what the next attempt would have continued from.
        left = {file.key for file in earlier.values()} - {file.key for file in files.values()}
        self._store.delete(sorted(left))
        return None

    def _check_owner(self) -> None:
        found = self._store.get(self._head_key)
        if found is None or Head.model_validate_json(found.content).owner != self._owner:
            raise FolderTaken(self._folder)
        self._version = found.version

    def _next(self, files: dict[str, KeptFile]) -> Head:
        return Head(attempt=self._attempt, owner=self._owner, token=secrets.token_hex(16), files=files)

    def _forget_unkept(self, but: str | None = None) -> None:
        """Delete what attempts uploaded that never got into a head, or artifacts of attempts that didn't succeed."""
        kept = {file.key for file in self._head.files.values()}
        found = self._store.listed(f"{job_prefix(self._job_id)}{ATTEMPTS}/")
        self._store.delete([one.key for one in found if one.key not in kept and not (but is not None and one.key.startswith(but))])

    def _lay_out(self) -> None:
        # What lies here of an earlier attempt may be newer than what anybody has heard of: it is never continued from.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._folder.mkdir(parents=True, mode=0o700)
        for name, file in self._head.files.items():
            place = self._folder / checked(name)
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            got = self._store.fetch(file.key, place)
            if got != file.sha256:
                raise ObjectDamaged(file.key, file.sha256, got)
        self._seen = self._stamps()

    def _stamps(self) -> dict[str, _Stamp]:
        """Every file that is kept, by its path in the folder. Files are never changed in place: a new content has a new stamp."""
        found: dict[str, _Stamp] = {}
        for place, folders, names in os.walk(self._folder):
            folders.sort()
            for name in sorted(names):
                path = Path(place) / name
                relative = path.relative_to(self._folder).as_posix()
                if not NOT_KEPT.fullmatch(relative) and (stamp := _stamp(path)) is not None:
                    found[relative] = stamp
        return found

    def _staged(self, found: Mapping[str, _Stamp]) -> bool:
        """Whether the links made now are to what the folder held at one moment: then they are a snapshot, whatever is written later."""
        self._clear_staging()
        for name in found:
            link = self._staging / name
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                os.link(self._folder / name, link)
            except FileNotFoundError:
                return False
        return self._stamps() == found

    def _clear_staging(self) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(mode=0o700)

    def _uploaded(self, name: str) -> KeptFile:
        """The file as an object, which is uploaded if the head's snapshot doesn't have it."""
        staged, before = self._staging / name, self._head.files.get(name)
        size, digest = staged.stat().st_size, _sha256(staged)
        if before is not None and before.sha256 == digest:
            return before
        # The attempt's number is in the key: nobody else writes there, and nothing that another attempt deletes is meant.
        key = f"{job_prefix(self._job_id)}{ATTEMPTS}/{self._attempt:06d}/{secrets.token_hex(8)}-{digest}"
        upload = staged.with_name(f".{staged.name}")
        os.link(staged, upload)
        self._store.take(key, upload, digest)
        return KeptFile(key=key, bytes=size, sha256=digest)


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
