r"""A witness of logs (C2SP tlog-witness): it signs a head if the log that it knows has only grown into it, and never a second history.

It knows the logs by their keys, from a file with one key a line, which is read at each request. What it signed last of each log is in a
SQLite file, written before the signature is given: two requests at once, or a crash in between, give no two heads that contradict.
"""

from __future__ import annotations

import base64
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from zetadp.app.certificates.log.checkpoint import ReadHead, read_head
from zetadp.app.certificates.log.cosignatures import cosign, witness_key
from zetadp.app.certificates.log.notes import Note, NoteKey, NoteRefused, from_base64
from zetadp.app.certificates.log.tree import is_consistent
from zetadp.app.certificates.signing.keys import write_once

LARGEST_REQUEST = 16_000
SIZE_TYPE = "text/x.tlog.size"
KEY_FILE, STATE_FILE = "witness.pem", "witness.sqlite"
_REQUEST = re.compile(r"old (0|[1-9][0-9]{0,18})\n((?:[A-Za-z0-9+/]{43}=\n){0,63})\n(.+)", re.DOTALL)


@final
@dataclass(frozen=True)
class Answer:
    """As HTTP gives it."""

    status: int
    text: str
    content_type: str = "text/plain; charset=utf-8"


@final
class Witness:
    r"""One witness.

    Args:
      folder: of its key and its state; made if needed.
      name: under which it signs, such as ``witness.example.org``.
      logs: file of the logs' keys, one a line; empty lines and those that begin with # don't count.
    """

    def __init__(self, folder: Path, name: str, logs: Path) -> None:
        self._name, self._logs, self._state = name, logs, folder / STATE_FILE
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_once(folder / KEY_FILE, fresh)
        private = load_pem_private_key((folder / KEY_FILE).read_bytes(), None)
        if not isinstance(private, Ed25519PrivateKey):
            raise NoteRefused(f"{folder / KEY_FILE} isn't an Ed25519 key")
        self._private = private
        with closing(self._connected()) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS heads (origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL)")

    @property
    def key(self) -> NoteKey:
        """What its signatures are checked with."""
        return witness_key(self._name, self._private)

    def add_checkpoint(self, request: bytes) -> Answer:
        """Sign the head that continues what was signed last; or the answer that says why not."""
        try:
            old, path, note, head = _read(request)
            known = [key for key in log_keys(self._logs.read_text()) if key.name == head.origin]
        except (NoteRefused, UnicodeDecodeError) as refused:
            return Answer(400, f"{refused}\n")
        if not known:
            return Answer(404, "this witness doesn't know a log of this name\n")
        ids = {(one.name, one.key_id): one.signature for one in note.signatures}
        if not any((signature := ids.get((key.name, key.id))) and key.has_signed(signature, note.text.encode()) for key in known):
            return Answer(403, "the head isn't signed by a key of this log that the witness knows\n")
        if old > head.size:
            return Answer(400, "the old size is above the head's\n")
        return self._signed_once(old, path, note, head)

    def _signed_once(self, old: int, path: Sequence[bytes], note: Note, head: ReadHead) -> Answer:
        with closing(self._connected()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                row = connection.execute("SELECT size, root FROM heads WHERE origin = ?", (head.origin,)).fetchone()
                size, root = row or (0, b"")
                if old != size:
                    return Answer(409, f"{size}\n", SIZE_TYPE)
                if size == head.size and row is not None and root != head.root:
                    return Answer(409, f"{size}\n", SIZE_TYPE)
                if not (is_consistent(size, root, head.size, head.root, path) if size else not path):
                    return Answer(422, "the proof doesn't show that the log only grew\n")
                kept = "INSERT INTO heads VALUES (?, ?, ?) ON CONFLICT (origin) DO UPDATE SET size = excluded.size, root = excluded.root"
                connection.execute(kept, (head.origin, head.size, head.root))
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        return Answer(200, cosign(self._name, self._private, note.text, int(time.time())).line)

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._state, timeout=10.0, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def log_keys(text: str) -> list[NoteKey]:
    """The keys in a file of them. Raises NoteRefused."""
    return [NoteKey.read(line.strip()) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def add_request(old: int, path: Sequence[bytes], checkpoint: str) -> bytes:
    """What a log sends: the size that the witness knows, the proof from there, and the head."""
    hashes = "".join(f"{base64.b64encode(part).decode()}\n" for part in path)
    return f"old {old}\n{hashes}\n{checkpoint}".encode()


def _read(request: bytes) -> tuple[int, list[bytes], Note, ReadHead]:
    found = _REQUEST.fullmatch(request.decode()) if len(request) <= LARGEST_REQUEST else None
    if found is None:
        raise NoteRefused("isn't an old size, a proof and a head")
    old, hashes, checkpoint = found.groups()
    note = Note.read(checkpoint)
    return int(old), [from_base64(line) for line in hashes.splitlines()], note, read_head(note)
