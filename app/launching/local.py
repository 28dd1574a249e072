r"""Workers on this machine: as many at a time as there are accelerators for, and one that needs none.

They end with the launcher. What was asked for and hasn't started is only remembered here: the next launcher asks again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import final

from zetadp.app.jobs.needs import Capacity
from zetadp.app.kit.settings import Settings
from zetadp.app.launching.interface import Found, LaunchRefused, LaunchState, Order, words
from zetadp.app.worker.hardware import VISIBLE, accelerators, capacity_of, chosen, described, memory_there


@final
@dataclass
class _Started:
    process: subprocess.Popen[bytes]
    gpus: tuple[str, ...]


@final
class Local:
    """This machine, or the part of it that ``ZETADP_DEVICE`` names."""

    def __init__(self, settings: Settings) -> None:
        self._command = words("ZETADP_LAUNCH_COMMAND", settings.launch_command)
        self._names = chosen(settings.device, accelerators(), os.environ)
        limits = [limit for limit in (memory_there(), settings.training_bytes) if limit is not None]
        self._capacity = capacity_of(settings.device, self._names, min(limits, default=None))
        listed = settings.device.partition(":")[2] or os.environ.get(VISIBLE) or ",".join(str(number) for number in range(len(self._names)))
        self._free = [item for item in listed.split(",") if item][: len(self._names)]
        self._grace_seconds = settings.stop_grace_seconds + settings.shutdown_seconds
        self._waiting: dict[str, Order] = {}
        self._running: dict[str, _Started] = {}
        self._ended: dict[str, str] = {}

    def capacity(self) -> Capacity:
        """This machine's."""
        return self._capacity

    def described(self) -> str:
        """As a worker describes itself."""
        return described(self._names)

    def start(self, order: Order) -> None:
        """At once if there is room, or else as soon as there is."""
        if order.name in self._waiting or order.name in self._running or order.name in self._ended:
            return
        if order.needs.machines > 1 or order.needs.gpus > self._capacity.gpus:
            raise LaunchRefused(f"expected one machine with at most {self._capacity.gpus} accelerators, got {order.needs}")
        self._waiting[order.name] = order
        self._fill()

    def found(self, names: Sequence[str]) -> Mapping[str, Found]:
        """Those that wait for room, run, or have ended since this launcher began."""
        self._reap()
        self._fill()
        self._ended = {name: reason for name, reason in self._ended.items() if name in names}
        known = {name: Found(state=LaunchState.WAITING, reason="others run on this machine") for name in self._waiting}
        known |= {name: Found(state=LaunchState.RUNNING) for name in self._running}
        known |= {name: Found(state=LaunchState.ENDED, reason=reason) for name, reason in self._ended.items()}
        return {name: known[name] for name in names if name in known}

    def end(self, name: str) -> None:
        """SIGTERM, or nothing was started yet."""
        if self._waiting.pop(name, None) is not None:
            self._ended[name] = "it wasn't needed any more"
        elif name in self._running:
            self._running[name].process.terminate()

    def close(self) -> None:
        """End all of them in good order."""
        for started in self._running.values():
            started.process.terminate()
        for started in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                started.process.wait(self._grace_seconds)
            started.process.kill()
            started.process.wait()

    def _reap(self) -> None:
        for name, started in list(self._running.items()):
            code = started.process.poll()
            if code is not None:
                del self._running[name]
                self._free += started.gpus
                self._ended[name] = f"it ended with code {code}"

    def _fill(self) -> None:
        for name, order in list(self._waiting.items()):
            count = order.needs.gpus
            is_cpu_taken = any(not started.gpus for started in self._running.values())
            if len(self._free) < count or (count == 0 and is_cpu_taken):
                continue
            gpus, self._free = tuple(self._free[:count]), self._free[count:]
            del self._waiting[name]
            self._running[name] = _Started(self._begun(order, gpus), gpus)

    def _begun(self, order: Order, gpus: tuple[str, ...]) -> subprocess.Popen[bytes]:
        # A name is for one worker, and this process has its own.
        environment = {name: value for name, value in os.environ.items() if name not in ("ZETADP_EXECUTOR_ID", "ZETADP_ADMIN_KEY")}
        environment["ZETADP_DEVICE"] = f"cuda:{','.join(gpus)}" if gpus else "cpu"
        command = [*self._command, "--job", order.job_id, "--parent", str(os.getpid())]
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 (the operator's words)
