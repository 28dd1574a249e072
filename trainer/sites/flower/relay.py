r"""The coordinator's side of Flower, a ServerApp: takes the training process's requests to all nodes, and the nodes' answers to it.

It decides nothing and keeps nothing. Frames come and go on a local socket whose path is in the run's configuration.
"""

from __future__ import annotations

import select
import socket
import threading
import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse, PushAppMessagesRequest
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from google.protobuf.wrappers_pb2 import BytesValue
from zetadp_relay import bundles  # as the app's folder has it beside this file

NODES_SECONDS = 0.5
"""How often it looks for nodes that came."""
LIFE_SECONDS = 3600.0
"""Of a message that nobody takes."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Until the training process closes the socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(context.run_config["socket"]))
        _Relay(grid, connection).run()


class _Relay:
    """Takes the newest request to every node once, and in a thread of its own passes on whatever comes back."""

    def __init__(self, grid: Grid, connection: socket.socket) -> None:
        self._grid, self._connection = grid, connection
        self._body: bytes | None = None
        self._sent: set[int] = set()
        self._nodes: list[int] = []
        self._looked = 0.0
        self._failed: BaseException | None = None

    def run(self) -> None:
        threading.Thread(target=self._pass_on, daemon=True).start()
        while True:
            left = self._looked + NODES_SECONDS - time.monotonic()
            if select.select([self._connection], [], [], max(0.0, left))[0]:
                body = self._received()
                if body is None:
                    break
                self._body = body
                self._sent.clear()
                self._send()
            if time.monotonic() - self._looked >= NODES_SECONDS:
                self._nodes = list(self._grid.get_node_ids())
                # Whoever is gone may come again, with the same number if it has a key, and without the request.
                self._sent.intersection_update(self._nodes)
                self._looked = time.monotonic()
                self._send()
        if self._failed is not None:
            raise self._failed

    def _send(self) -> None:
        new = [node for node in self._nodes if node not in self._sent]
        if self._body is None or not new:
            return
        content = RecordDict({"zetadp": ConfigRecord({"body": self._body})})
        messages = [Message(content=content, message_type="query", dst_node_id=node, ttl=LIFE_SECONDS) for node in new]
        asked, objects = PushAppMessagesRequest(), {}
        with no_object_id_recompute():
            for message in messages:
                message.metadata.__dict__["_message_id"] = message.object_id
                asked.messages_list.append(message_to_proto(remove_content_from_message(message)))
                asked.message_object_trees.append(get_object_tree(message))
                objects |= get_all_nested_objects(message)
            run, here = messages[0].metadata.run_id, Node(node_id=SUPERLINK_NODE_ID)
            contents = [
                PushObjectRequest(node=here, run_id=run, object_id=name, object_content=one.deflate()).SerializeToString()
                for name, one in objects.items()
            ]
        self._asked(bundles.RELAY_PUSH, [asked.SerializeToString(), *contents])
        self._sent.update(new)

    def _pass_on(self) -> None:
        try:
            while True:
                self._pull()
        except BaseException as failed:  # the other thread raises it
            self._failed = failed
            # Which wakes the other thread too.
            self._connection.shutdown(socket.SHUT_RDWR)

    def _pull(self) -> None:
        first, *contents = self._asked(bundles.RELAY_PULL, [PullAppMessagesRequest().SerializeToString()])
        found, place = PullAppMessagesResponse.FromString(first), 0
        for tree in found.message_object_trees:
            parts = [part.object_id for part in iterate_object_tree(tree)]
            own = dict(zip(parts, contents[place : place + len(parts)], strict=True))
            place += len(parts)
            message = inflate_object_from_contents(tree.object_id, own)
            if message.has_content():
                records = message.content.config_records
                body = records["zetadp"].get("body") if "zetadp" in records else None
                if isinstance(body, bytes):
                    self._connection.sendall(len(body).to_bytes(8, "big") + body)

    def _asked(self, path: str, parts: list[bytes]) -> list[bytes]:
        request = BytesValue(value=bundles.joined(parts))
        client = self._grid._runtime_client
        return bundles.split(client._unary_unary(path=path, rpc_method=path, request=request, response_type=BytesValue).value)

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
