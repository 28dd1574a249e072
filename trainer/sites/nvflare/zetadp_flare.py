r"""zetadp's parts of an NVFLARE job. They carry frames as they are, decide nothing, and import nothing of zetadp.

``SumController`` runs in the server's job process, beside the coordinator's training process; ``SiteExecutor`` runs in a client's job
process, beside the site's process, which has the data, the key and the ledger. ``OnlySigned`` is for the client's results: nothing but what
the site's process has signed gets through. This file belongs into ``local/custom`` of the server and of every client.
"""

# ruff: noqa: ARG002 (NVFLARE calls these methods by position)
from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from nvflare.apis.controller_spec import Task
from nvflare.apis.executor import Executor
from nvflare.apis.filter import ContentBlockedException, Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

TASK = "zetadp"
BODY = "body"
LOOK_SECONDS = 0.05
COORDINATOR_SECONDS = 120.0
"""How long a controller waits for the coordinator's process that is starting: it loads data and torch first."""
START_SECONDS = 60.0
"""How long an executor waits for a site's process that is starting."""
ANSWER_SECONDS = 600.0
"""How long it waits for the answer then: sites compute one at a time."""
SITE_SOCKET = "ZETADP_SITE_SOCKET"
"""The environment variable with the path of a site's socket, in which ``{site}`` stands for the client's name."""
SIGNATURE_BYTES = 64
DOMAINS = b"zetadp federation 1\n", b"zetadp secure aggregation 1\n"
"""What zetadp's sites begin the signed bytes with: of answers, and of parts of secure sums."""


class SumController(Controller):
    r"""Offers the coordinator's newest request to every site, and passes on whatever comes back, until the coordinator is done.

    Args:
      socket_path: where the coordinator's training process listens (``relay`` in its settings), within ``COORDINATOR_SECONDS``.
      sites: the names of all clients.
    """

    def __init__(self, socket_path: str, sites: list[str]) -> None:
        super().__init__(task_check_period=LOOK_SECONDS)
        self._path, self._sites = socket_path, list(sites)
        self._connection: socket.socket | None = None
        self._one_at_a_time = threading.Lock()
        self._task: Task | None = None

    def start_controller(self, fl_ctx) -> None:
        pass  # the coordinator is waited for where a job that is aborted says so

    def control_flow(self, abort_signal, fl_ctx) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            _connect(self._connection, self._path, COORDINATOR_SECONDS, abort_signal)
        except InterruptedError:
            return
        except OSError as error:
            self.system_panic(f"the coordinator's training process isn't at {self._path}, where its settings say relay: {error}", fl_ctx)
            return
        while not abort_signal.triggered:
            if not select.select([self._connection], [], [], LOOK_SECONDS)[0]:
                continue
            body = _received(self._connection)
            if body is None:
                break
            self._offer(body, fl_ctx)
        self._withdraw(fl_ctx)

    def stop_controller(self, fl_ctx) -> None:
        if self._connection is not None:
            self._connection.close()

    def process_result_of_unknown_task(self, client, task_name, client_task_id, result, fl_ctx) -> None:
        """An answer that came after the next request: late ones are counted too, by the training process."""
        self._pass_on(result)

    def _offer(self, body: bytes, fl_ctx) -> None:
        self._withdraw(fl_ctx)
        data = Shareable()
        data[BODY] = body
        self._task = Task(TASK, data, result_received_cb=self._answered)
        self.broadcast(self._task, fl_ctx, targets=self._sites, min_responses=len(self._sites))

    def _withdraw(self, fl_ctx) -> None:
        if self._task is not None:
            self.cancel_task(self._task, fl_ctx=fl_ctx)
            self._task = None

    def _answered(self, client_task, fl_ctx) -> None:
        self._pass_on(client_task.result)

    def _pass_on(self, result) -> None:
        body = result.get(BODY) if result is not None else None
        if isinstance(body, bytes) and self._connection is not None:
            with self._one_at_a_time:
                self._connection.sendall(len(body).to_bytes(8, "big") + body)


class SiteExecutor(Executor):
    """Takes a request to the site's process, whose socket's path is in ``ZETADP_SITE_SOCKET``, and its answer back."""

    def execute(self, task_name, shareable, fl_ctx, abort_signal) -> Shareable:
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            answer = _asked(os.environ[SITE_SOCKET].replace("{site}", fl_ctx.get_identity_name()), shareable[BODY], abort_signal)
        except (OSError, KeyError) as error:
            self.log_error(fl_ctx, f"the site's process doesn't answer: {error!r}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        reply = make_reply(ReturnCode.OK)
        reply[BODY] = answer
        return reply


class OnlySigned(Filter):
    r"""A filter of a client's results, for all its jobs: a result is bytes that a zetadp site signed, or nothing.

    Args:
      keys: the public keys of the federation's sites, in hexadecimal.
    """

    def __init__(self, keys: list[str]) -> None:
        super().__init__()
        self._keys = [Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for key in keys]

    def process(self, shareable, fl_ctx) -> Shareable:
        # Nothing of what came but its code and its bytes: NVFLARE puts its own headers on afterwards.
        code = shareable.get_return_code()
        kept = make_reply(code if code in {ReturnCode.EXECUTION_EXCEPTION, ReturnCode.TASK_UNKNOWN} else ReturnCode.OK)
        if kept.get_return_code() == ReturnCode.OK:
            body = shareable.get(BODY)
            if not isinstance(body, bytes) or not any(is_signed(key, body) for key in self._keys):
                raise ContentBlockedException("a result that no zetadp site of this federation signed")
            kept[BODY] = body
        return kept


def is_signed(key: Ed25519PublicKey, frame: bytes) -> bool:
    """Whether a frame is what the holder of a key signed, to its last byte: a header, its signature, and the payload that it names."""
    begins = 4 + int.from_bytes(frame[:4], "big")
    header, signature, payload = frame[4:begins], frame[begins : begins + SIGNATURE_BYTES], frame[begins + SIGNATURE_BYTES :]
    if not any(_verifies(key, signature, domain + header) for domain in DOMAINS):
        return False
    # Signed, so it is as zetadp writes it. A refusal has no payload, and names none.
    named = json.loads(header).get("payload")
    return not payload if named is None else named == hashlib.sha256(payload).hexdigest()


def _verifies(key: Ed25519PublicKey, signature: bytes, content: bytes) -> bool:
    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


def _asked(path: str, body: bytes, abort_signal) -> bytes:
    """The site's answer. Raises InterruptedError when NVFLARE ends the job, TimeoutError when time is up, and other kinds of OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)  # where it takes no more of a request, or sends no more of an answer
        _connect(connection, path, START_SECONDS, abort_signal)
        connection.sendall(len(body).to_bytes(8, "big") + body)
        for _ in _looks(ANSWER_SECONDS, "didn't answer", abort_signal):
            if select.select([connection], [], [], LOOK_SECONDS)[0]:
                break
        answer = _received(connection)
    if answer is None:
        raise ConnectionError("it is gone")
    return answer


def _connect(connection: socket.socket, path: str, seconds: float, abort_signal) -> None:
    """Waits for whoever listens there. Raises InterruptedError, TimeoutError, and other kinds of OSError."""
    for _ in _looks(seconds, "didn't start", abort_signal):
        try:
            connection.connect(path)
            return
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            time.sleep(LOOK_SECONDS)


def _looks(seconds: float, failed: str, abort_signal) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if abort_signal.triggered:
            raise InterruptedError("the job ends")
        yield
    raise TimeoutError(f"it {failed} within {seconds:g} s")


def _received(connection: socket.socket) -> bytes | None:
    length = _bytes(connection, 8)
    return None if length is None else _bytes(connection, int.from_bytes(length, "big"))


def _bytes(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
