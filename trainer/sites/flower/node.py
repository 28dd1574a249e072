r"""A site's side of Flower: takes messages from the coordinator's SuperLink to the site's process beside it, and its answers back.

    python node.py SUPERLINK SOCKET OPTIONS

It speaks as a SuperNode does, through Flower's own connection, and keeps running: Flower's own SuperNode starts a process for each message,
which takes seconds, and runs there whatever code the server sends. This one never fetches code: a message is bytes, and so is its answer.
It opens no port, and ends with its standard input.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, iterate_object_tree, pull_objects, push_objects
from flwr.supernode import fleet_http_connection

LEAST_PAUSE, MOST_PAUSE = 0.005, 0.1
"""Seconds between two looks for a message: at least, and at most."""
EARLY = 0.8
"""Of the time that the message before took to come, after which this one is looked for closely."""
UPLOAD_SECONDS = 60.0


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
    keys = None
    if options.node_key is not None:
        private = load_ssh_private_key(Path(options.node_key).read_bytes(), None)
        keys = (private, private.public_key())
    certificates = None if options.root_certificates is None else Path(options.root_certificates).read_bytes()
    with fleet_http_connection.http_request_response(
        options.superlink, options.insecure, certificates, keys, max_retries=8, max_wait_time=20.0
    ) as connection:
        node, receive, send, _run, _fab, pull, push, confirm = connection
        sys.stdout.write(f"connected as node {node}\n")
        sys.stdout.flush()
        usual, answered = 0.0, time.monotonic()
        while True:
            found = receive()
            waited = time.monotonic() - answered
            if found is None:
                time.sleep(_pause(waited, usual))
                continue
            usual = waited
            _answer(options.socket, found, pull, push, confirm, send)
            answered = time.monotonic()


def _new_keys() -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    private = ec.generate_private_key(ec.SECP256R1())
    return private, private.public_key()


def _pause(waited: float, usual: float) -> float:
    """Until the next look: each is a request that the server works at, so most are made about when a message is due."""
    due = EARLY * usual
    return min(MOST_PAUSE, due - waited if waited < due - LEAST_PAUSE else max(LEAST_PAUSE, (waited - due) / 4.0))


def _answer(path: str, found: tuple, pull, push, confirm, send) -> None:
    message, tree = found
    run = message.metadata.run_id
    # The message may be announced before all of it has arrived.
    contents = pull_objects(
        [part.object_id for part in iterate_object_tree(tree)],
        lambda part: pull(run, part),
        max_time=UPLOAD_SECONDS,
        max_tries_per_object=None,
        initial_backoff=0.005,
        backoff_cap=0.1,
    )
    confirm(run, tree.object_id)
    whole = inflate_object_from_contents(tree.object_id, contents)
    whole.metadata.__dict__["_message_id"] = tree.object_id
    body = whole.content.config_records["zetadp"]["body"]
    answer = Message(content=RecordDict({"zetadp": ConfigRecord({"body": ask(path, body)})}), reply_to=whole)
    answer.metadata.__dict__["_message_id"] = answer.object_id
    with no_object_id_recompute():
        wanted, session = send(answer, get_object_tree(answer), 0.0)
        push_objects(get_all_nested_objects(answer), lambda part, content: push(run, session, part, content), object_ids_to_push=wanted)


def _end_with_input() -> None:
    """The site's process holds the other end of standard input, and its end is ours."""
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
