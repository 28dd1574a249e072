r"""A site's side of Flower: takes messages from the coordinator's SuperLink to the site's process beside it, and its answers back.

    python node.py SUPERLINK SOCKET OPTIONS

It speaks as a SuperNode does, through Flower's own connection, and keeps running: Flower's own SuperNode starts a process for each message,
which takes seconds, and runs there whatever code the server sends. This one never fetches code: a message is bytes, and so is its answer.
It opens no port, and ends with its standard input. Messages come and go whole (``bundles.py``).
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import bundles
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supernode import fleet_http_connection
from flwr.supernode.fleet_http_client import FleetHttpClient
from google.protobuf.wrappers_pb2 import BytesValue

END_SECONDS = 1.5
"""For telling the server."""
LEAST_SECONDS = 0.1
"""Between two requests for a message, if the server doesn't wait for one."""


def ask(path: str, body: bytes) -> bytes:
    """The site's answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(len(body).to_bytes(8, "big") + body)
        answer, length = bytearray(), None
        while length is None or len(answer) < length:
            part = connection.recv(1 << 20)
            if not part:
                raise ConnectionError("the site's process is gone")
            answer += part
            if length is None and len(answer) >= 8:
                length = int.from_bytes(answer[:8], "big")
                del answer[:8]
        return bytes(answer)


class Bundled(FleetHttpClient):
    """Flower's client, whose messages come and go with their parts: those of the last one that came, and of the next one that goes."""

    contents: list[bytes] = []  # noqa: RUF012 (a process has one client)
    objects: list[PushObjectRequest] = []  # noqa: RUF012

    def PullMessages(self, request: PullMessagesRequest) -> PullMessagesResponse:  # noqa: N802 (Flower's name)
        first, *Bundled.contents = self._asked(bundles.NODE_PULL, [request.SerializeToString()])
        return PullMessagesResponse.FromString(first)

    def PushMessages(self, request: PushMessagesRequest) -> PushMessagesResponse:  # noqa: N802
        self._asked(bundles.NODE_PUSH, [request.SerializeToString(), *(one.SerializeToString() for one in Bundled.objects)])
        return PushMessagesResponse()

    def _asked(self, path: str, parts: list[bytes]) -> list[bytes]:
        request = BytesValue(value=bundles.joined(parts))
        return bundles.split(self._unary_unary(path=path, rpc_method=path, request=request, response_type=BytesValue).value)


def main() -> None:
    """Serves until the connection ends; whoever started it starts it again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("superlink")
    parser.add_argument("socket")
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--root-certificates")
    parser.add_argument("--node-key")
    options = parser.parse_args()
    threading.Thread(target=_end_with_input, daemon=True).start()
    # A node without a key gets one for this connection. Flower's own would be of P-384: every request is signed, and the server checks a
    # signature of P-256, which `ssh-keygen` makes too, in a fifth of the time. What a node sends counts only with its site's signature.
    fleet_http_connection.generate_key_pairs = _new_keys
    fleet_http_connection.FleetHttpClient = Bundled
    keys = None
    if options.node_key is not None:
        private = load_ssh_private_key(Path(options.node_key).read_bytes(), None)
        keys = (private, private.public_key())
    certificates = None if options.root_certificates is None else Path(options.root_certificates).read_bytes()
    with fleet_http_connection.http_request_response(
        options.superlink, options.insecure, certificates, keys, max_retries=8, max_wait_time=20.0
    ) as connection:
        node, receive, send, *_others = connection
        sys.stdout.write(f"connected as node {node}\n")
        sys.stdout.flush()
        while True:
            began = time.monotonic()
            found = receive()
            if found is not None:
                _answer(options.socket, found, send)
            elif (left := began + LEAST_SECONDS - time.monotonic()) > 0.0:
                time.sleep(left)


def _new_keys() -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    private = ec.generate_private_key(ec.SECP256R1())
    return private, private.public_key()


def _answer(path: str, found: tuple, send) -> None:
    tree = found[1]
    parts = [part.object_id for part in iterate_object_tree(tree)]
    whole = inflate_object_from_contents(tree.object_id, dict(zip(parts, Bundled.contents, strict=True)))
    whole.metadata.__dict__["_message_id"] = tree.object_id
    body = whole.content.config_records["zetadp"]["body"]
    answer = Message(content=RecordDict({"zetadp": ConfigRecord({"body": ask(path, body)})}), reply_to=whole)
    answer.metadata.__dict__["_message_id"] = answer.object_id
    with no_object_id_recompute():
        run = whole.metadata.run_id
        Bundled.objects = [
            PushObjectRequest(run_id=run, object_id=name, object_content=part.deflate())
            for name, part in get_all_nested_objects(answer).items()
        ]
        send(answer, get_object_tree(answer), 0.0)


def _end_with_input() -> None:
    """The site's process holds the other end of standard input, and its end is ours."""
    while sys.stdin.buffer.read(4096):
        pass
    # The server is told, where it can be: it lets no node with a key in again before it counts as gone.
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(END_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
    os._exit(0)
