r"""What a round of a federation costs beyond the sites' steps: Flower's server, its relay and the nodes, of sites that answer at once.

    python -m benchmarks.federation_rounds [--sites 3] [--rounds 50] [--parameters 10000] [--count-bytes]

It prints milliseconds a round (median and 9 in 10), the processor time a round of Flower's processes, and with ``--count-bytes``, which
takes time itself, what each node sends and gets beside the bytes of its integers and of the parameters.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from zetadp.app.cli.federation.rehearsal import free_port
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.flower_line import FlowerLine
from zetadp.trainer.sites.flower_processes import start_node
from zetadp.trainer.sites.keys import make_key
from zetadp.trainer.sites.settings import CoordinatorSettings, SiteSettings

FLOWER = Path(__file__).parents[1] / "build" / "flower"
BUDGET = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"}
DATA = {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2}
ANSWER_BITS = 34.14
"""Of an integer, as is usual."""
HEADER_BYTES = 500
"""Of a statement or a request, with its signature."""
TICKS = os.sysconf("SC_CLK_TCK")


def _serve(listening: socket.socket, answer: bytes) -> None:
    for number in itertools.count():
        try:
            connection = listening.accept()[0]
        except OSError:
            return
        with connection:
            if frames.receive(connection, lambda _head: 2**32) is not None:
                # Each one is another one: Flower's server keeps equal ones once.
                frames.send(connection, number.to_bytes(8, "big") + answer)


class _Counting:
    """A way to a server, which counts the bytes on it."""

    def __init__(self, address: str) -> None:
        self._host, self._port = address.split(":")
        self.sent, self.got = 0, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            node = self._listening.accept()[0]
            server = socket.create_connection((self._host, int(self._port)))
            for ends in ((node, server, "sent"), (server, node, "got")):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, name: str) -> None:
        try:
            while part := one.recv(2**20):
                setattr(self, name, getattr(self, name) + len(part))
                other.sendall(part)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return


@contextmanager
def _site(folder: Path, number: int, superlink: str, answer: bytes) -> Iterator[int]:
    state = folder / f"site{number}"
    state.mkdir()
    settings = SiteSettings.model_validate(
        {"name": f"s{number}", "superlink": superlink, "state": state, "data": DATA, "budget": BUDGET, "insecure": True, "flower": FLOWER}
    )
    with socket.socket(socket.AF_UNIX) as listening, (state / "log").open("wb") as log:
        listening.bind(str(state / "s"))
        listening.listen(4)
        threading.Thread(target=_serve, args=(listening, answer), daemon=True).start()
        node = start_node(settings, state / "s", log)
        try:
            yield node.pid
        finally:
            node.kill()
            node.wait()


def descendants(of: int) -> list[int]:
    """A process and all below it."""
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout  # noqa: S607
    parents = {int(pid): int(parent) for pid, parent in (line.split() for line in found.splitlines())}
    below = {of}
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            return sorted(below)
        below |= more


def seconds_used(pids: list[int]) -> dict[str, float]:
    """Processor seconds by a process's name."""
    used: dict[str, float] = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        name = f"{pid} {b' '.join(Path(word.decode()).name.encode() for word in words[:3]).decode()}"
        used[name] = (int(fields[11]) + int(fields[12])) / TICKS
    return used


def _round(line: FlowerLine, frame: bytes, sites: int, waited: Callable[[], None]) -> None:
    line.send(frame)
    for _ in range(sites):
        while line.receive(0.2) is None:
            waited()


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser()
    for name, default in (("--sites", 3), ("--rounds", 50), ("--parameters", 10_000)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--count-bytes", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zetadp-")))
        make_key(folder / "key.pem")
        superlink = f"127.0.0.1:{free_port()}"
        settings = CoordinatorSettings.model_validate({"key": folder / "key.pem", "listen": superlink, "insecure": True, "flower": FLOWER})
        began = time.monotonic()
        line = stack.enter_context(FlowerLine(settings, folder / "flower", lambda: None))
        line.largest = 2**32
        counting = _Counting(superlink) if options.count_bytes else None
        way, integers = superlink if counting is None else counting.address, round(ANSWER_BITS * options.parameters / 8)
        answers = [os.urandom(HEADER_BYTES - 8 + integers) for _ in range(options.sites)]
        nodes = [stack.enter_context(_site(folder, number, way, answer)) for number, answer in enumerate(answers)]
        _round(line, b"first", options.sites, lambda: None)
        sys.stdout.write(f"server, relay and {options.sites} nodes work after {time.monotonic() - began:.1f} s\n")
        pids = sorted({*descendants(os.getpid()), *nodes} - {os.getpid()})
        before, took = seconds_used(pids), list[float]()
        counted = (0, 0) if counting is None else (counting.sent, counting.got)
        for number in range(options.rounds):
            started = time.monotonic()
            _round(line, number.to_bytes(4, "big") + bytes(HEADER_BYTES - 4 + 4 * options.parameters), options.sites, lambda: None)
            took.append(1000.0 * (time.monotonic() - started))
        after = seconds_used(pids)
        sys.stdout.write(f"a round: median {statistics.median(took):.0f} ms, 9 of 10 within {sorted(took)[int(0.9 * len(took))]:.0f} ms\n")
        for name, seconds in after.items():
            sys.stdout.write(f"  {1000.0 * (seconds - before.get(name, 0.0)) / options.rounds:6.1f} ms of a processor: {name}\n")
        if counting is not None:
            each = options.rounds * options.sites
            sent, got = (counting.sent - counted[0]) / each, (counting.got - counted[1]) / each
            sys.stdout.write(f"a node sends {sent:.0f} bytes a round, {sent / integers:.3f} times its integers'; and gets ")
            sys.stdout.write(f"{got:.0f}, {got / (4 * options.parameters):.3f} times the parameters'\n")
        sys.stdout.write(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")


if __name__ == "__main__":
    main()
