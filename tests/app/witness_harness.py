"""Logs in memory, witnesses of them, and witnesses that answer over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zetadp.app.certificates.log.checkpoint import head_text
from zetadp.app.certificates.log.cosignatures import cosign, witness_key
from zetadp.app.certificates.log.notes import ED25519, NoteKey, NoteSignature
from zetadp.app.certificates.log.tree import consistency_spans, leaf_hash, root_over
from zetadp.app.certificates.log.witness import Answer, Witness, add_request

ORIGIN = "log.example.org/one"


class Log:
    """A log in memory, whose owner shows whatever suits."""

    def __init__(self, entries: list[bytes], private: Ed25519PrivateKey, origin: str = ORIGIN) -> None:
        self.leaves, self._private = [leaf_hash(entry) for entry in entries], private
        self.key = NoteKey(origin, ED25519, private.public_key().public_bytes_raw())

    def checkpoint(self, size: int) -> str:
        text = head_text(self.key.name, size, root_over(self.leaves[:size]))
        return f"{text}\n{NoteSignature(self.key.name, self.key.id, self._private.sign(text.encode())).line}"

    def request(self, old: int, size: int) -> bytes:
        path = [root_over(self.leaves[first:end]) for first, end in consistency_spans(old, size)]
        return add_request(old, path, self.checkpoint(size))


def made(folder: Path, log: Log, name: str = "witness.example.org") -> Witness:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "logs").write_text(f"# logs\n{log.key.text}\n")
    return Witness(folder, name, folder / "logs")


class Sly:
    """A witness that signs, instead of the head, a text that begins with it."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.key = witness_key("sly.example.org", self._private)

    def add_checkpoint(self, request: bytes) -> Answer:
        checkpoint = request.decode().split("\n\n", 1)[1]
        return Answer(200, "\n" + cosign(self.key.name, self._private, checkpoint, 1_800_000_000).line)


@contextmanager
def serving(witness: Witness | Sly) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = witness.add_checkpoint(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.text.encode())))
            self.end_headers()
            self.wfile.write(answer.text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
