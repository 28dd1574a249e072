r"""The coordinator's side of Flower, a ServerApp: takes the training process's requests to all nodes, and the nodes' answers to it.

It decides nothing and keeps nothing. Frames come and go on a local socket whose path is in the run's configuration.
"""

from __future__ import annotations

import select
import socket
import time
from functools import partial

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import http_grid

LOOK_SECONDS = 0.02
NODES_SECONDS = 0.5
"""How often it looks for nodes that came."""
LIFE_SECONDS = 3600.0
"""Of a message that nobody takes."""
UPLOAD_SECONDS = 60.0

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Until the training process closes the socket."""
    # An answer may be announced before all of it has arrived; by default Flower looks again after a second.
    http_grid.pull_objects = partial(http_grid.pull_objects, max_time=UPLOAD_SECONDS, initial_backoff=0.005, backoff_cap=0.1)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.run_config["socket"]))
        _Relay(grid, connection).run()


class _Relay:
    def __init__(self, grid: Grid, connection: socket.socket) -> None:
        self._grid, self._connection = grid, connection
        self._body: bytes | None = None
        self._sent: set[int] = set()
        self._waiting: set[str] = set()
        self._looked = 0.0

    def run(self) -> None:
        """Sends the newest request to every node once, and passes on whatever comes back."""
        while True:
            readable, _, _ = select.select([self._connection], [], [], LOOK_SECONDS)
            if readable:
                body = self._received()
                if body is None:
                    return
                self._body, self._looked = body, 0.0
                self._sent.clear()
            self._send()
            if self._waiting:
                self._pull()

    def _send(self) -> None:
        if self._body is None or time.monotonic() - self._looked < NODES_SECONDS:
            return
        self._looked = time.monotonic()
        new = [node for node in self._grid.get_node_ids() if node not in self._sent]
        if not new:
            return
        content = RecordDict({"zetadp": ConfigRecord({"body": self._body})})
        messages = [Message(content=content, message_type="query", dst_node_id=node, ttl=LIFE_SECONDS) for node in new]
        self._waiting.update(number for number in self._grid.push_messages(messages) if number)
        self._sent.update(new)

    def _pull(self) -> None:
        for message in self._grid.pull_messages(list(self._waiting)):
            self._waiting.discard(message.metadata.reply_to_message_id)
            if message.has_content():
                records = message.content.config_records
                body = records["zetadp"].get("body") if "zetadp" in records else None
                if isinstance(body, bytes):
                    self._connection.sendall(len(body).to_bytes(8, "big") + body)

    def _received(self) -> bytes | None:
        length = self._bytes(8)
        return None if length is None else self._bytes(int.from_bytes(length, "big"))

    def _bytes(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self._connection.recv(min(count - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)
