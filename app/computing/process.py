r"""A calculating process: it answers one question at a time, with the routes of the service itself, and uses no more processor time than
it is told. It knows no database, no keys and no tenant."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import structlog
import uvloop
from pydantic import ValidationError
from starlette.types import ASGIApp, Message
from threadpoolctl import threadpool_limits

from zetadp.accountants.deadline import time_limit
from zetadp.app.computing.frames import Frame, Line
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms.errors import PrivacyError

Shortcuts = Mapping[tuple[str, str], Callable[[bytes], tuple[str, bytes]]]
JSON_SENT = [["content-type", "application/json"]]
GARBAGE_OBJECTS = 10_000
"""After so many new objects garbage is looked for: an ordinary profile makes some thousands, and none of them in a cycle."""
_DATA = re.compile(r"^VmData:\s*(\d+) kB$", re.MULTILINE)
OVERTIME_SECONDS = 5
"""Processor time beyond its limit after which the kernel ends a process: its calculation looks at the limit too rarely."""


def answer_all(line: socket.socket, settings: Settings, niceness: int, application: ASGIApp, shortcuts: Shortcuts) -> None:
    r"""Answers questions until the service at the other end of the line is gone.

    Args:
      niceness: how much this process yields to the others of the machine; 0 to 19.
      application: has the routes.
      shortcuts: by method and path, for questions that are asked often: the name of the operation, and the JSON that the application would
        answer to a body of JSON with status 200, without its detours; they raise where it may answer otherwise, and then it is asked.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal: the service ends this one
    os.nice(niceness)
    for name in [name for name in os.environ if name.startswith("ZETADP_")]:
        del os.environ[name]  # the service's secrets may be among them; its settings were handed over
    _limit_memory(settings.calculation_bytes)
    threadpool_limits(1)  # each calculation has one processor
    configure_logs(settings.log_level, settings.log_format)
    # What the process starts with lives as long as it does: no search for garbage looks at it again.
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Calculating(application, shortcuts).answer_all(line))


@final
class _Calculating:
    def __init__(self, application: ASGIApp, shortcuts: Shortcuts) -> None:
        self._application = application
        self._shortcuts = shortcuts
        self._line = Line(self._heard, self._lost)
        self._number = -1
        self._gone = threading.Event()
        self._left = asyncio.Event()
        self._answering: asyncio.Task[None] | None = None

    async def answer_all(self, line: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._line, sock=line)
        await loop.create_future()  # until the process ends

    def _lost(self) -> None:
        os._exit(0)  # a thread may still calculate for nobody

    def _heard(self, frame: Frame) -> None:
        if frame.kind == "ask":
            self._number, self._gone, self._left = frame.number, threading.Event(), asyncio.Event()
            begun = time.process_time()
            _limit_processor_time(begun + frame.head["seconds"] + OVERTIME_SECONDS)
            structlog.contextvars.bind_contextvars(request_id=frame.head["request_id"])
            kept = self._cut_short(frame) if frame.head["is_whole"] else None
            if kept is None and time.process_time() - begun < frame.head["seconds"]:
                self._answering = asyncio.get_running_loop().create_task(self._by_route(frame, begun))
            else:
                self._end(frame, kept or [], begun)
        elif frame.number == self._number:
            self._gone.set()
            self._left.set()

    def _end(self, question: Frame, kept: list[bytes], begun: float) -> None:
        """The last of the answer's frames; of a whole answer that is late, only that it is."""
        used = time.process_time() - begun
        is_late = used >= question.head["seconds"]
        if question.head["is_whole"] and is_late:
            kept = []
        self._line.write(b"".join((*kept, Frame("end", question.number, {"seconds": used, "is_late": is_late}).packed())))

    def _is_wanted(self) -> Callable[[], bool]:
        gone = self._gone
        return lambda: not gone.is_set()

    def _cut_short(self, question: Frame) -> list[bytes] | None:
        """The answer's frames; None if there is no shortcut to it. Nothing is heard meanwhile: only for the quick."""
        shortcut = self._shortcuts.get((question.head["method"], question.head["path"]))
        if shortcut is None or question.head["headers"] != JSON_SENT:
            return None
        try:
            with time_limit(question.head["seconds"], self._is_wanted(), time.process_time):
                operation, content = shortcut(question.body)
        except (ValidationError, PrivacyError, MemoryError):
            return None
        headers = [["content-length", str(len(content))], ["content-type", "application/json"]]
        about = {"status": 200, "headers": headers, "problem": None, "operation": operation}
        return [Frame("start", question.number, about).packed(), Frame("part", question.number, {}, content).packed()]

    async def _by_route(self, question: Frame, begun: float) -> None:
        with time_limit(question.head["seconds"], self._is_wanted(), time.process_time):
            kept = await self._frames(question)
        self._end(question, kept, begun)
        await self._line.drained()

    async def _frames(self, question: Frame) -> list[bytes]:
        """The answer's frames, or the last of them if the first were sent already."""
        number, left, is_whole = question.number, self._left, bool(question.head["is_whole"])
        kept: list[bytes] = []
        is_read = False
        scope = _scope(question.head)

        async def receive() -> Message:
            nonlocal is_read
            if not is_read:
                is_read = True
                return {"type": "http.request", "body": question.body, "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in message.get("headers", ())]
                about = {
                    "status": message["status"],
                    "headers": headers,
                    "problem": scope["state"].get("problem"),
                    "operation": getattr(scope.get("endpoint"), "__name__", None),
                }
                kept.append(Frame("start", number, about).packed())
            elif message["type"] == "http.response.body" and message.get("body"):
                kept.append(Frame("part", number, {}, message["body"]).packed())
            if not is_whole and message.get("more_body", False):
                self._line.write(b"".join(kept))
                kept.clear()
                await self._line.drained()

        try:
            await self._application(scope, receive, send)
        except Exception:
            # It is answered and logged as it would be in the service; the server there would only close the connection.
            failed = {"status": 500, "headers": [], "problem": "internal-error", "operation": None}
            kept = kept or [Frame("start", number, failed).packed()]
        return kept


def _scope(head: dict[str, Any]) -> dict[str, Any]:
    """The ASGI scope of a question, as its server would make it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": head["method"],
        "scheme": "http",
        "path": head["path"],
        "raw_path": head["path"].encode(),
        "root_path": "",
        "query_string": head["query"].encode("latin-1"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]],
        "client": None,
        "server": None,
        "state": {"request_id": head["request_id"]},
    }


def _limit_memory(most_bytes: int) -> None:
    """Have the kernel refuse this process more memory of its own than it has now and so much beside."""
    found = _DATA.search(Path("/proc/self/status").read_text())
    own = 0 if found is None else int(found[1]) * 1024
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = own + most_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _limit_processor_time(seconds: float) -> None:
    """Have the kernel end this process once it has used so much in all."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds) + 1, most))
