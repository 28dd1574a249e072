r"""A site's process: it holds the data and the ledger, and answers what comes over Flower or NVFLARE. It opens no port.

    python -m zetadp.process zetadp.trainer.site SETTINGS [--parent PID]

It runs until SIGTERM or SIGINT, or until its parent is gone if it was told of one, and ends with 0. Messages come over a local socket that
only this user can open: from one process of Flower's own environment, which connects to the coordinator and is started again whenever it
ends; or from the site's NVFLARE client.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Final, final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer.algorithms.federated.site_rounds import SiteRounds
from zetadp.trainer.parent import die_with_parent
from zetadp.trainer.request import ORPHANED
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.agreements import agreements_in, ledger_of
from zetadp.trainer.sites.flower_processes import start_node
from zetadp.trainer.sites.frames import LOOK_SECONDS
from zetadp.trainer.sites.keys import load_key, public_text
from zetadp.trainer.sites.local_line import listening, locked
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteSettings, read_settings
from zetadp.trainer.sites.site import Draw, Site

BACKLOG: Final = 4
PAUSES: Final = (0.5, 10.0)
"""Seconds before a process of Flower that ended is started again: the first time, and at most."""
FRAME_SECONDS: Final = 30.0
"""For all of a request once it begins to come, and again for taking its answer: others wait meanwhile."""


@final
class _Agreed:
    """The signed proposals, read again when the folder changes."""

    def __init__(self, folder: Path, public: str) -> None:
        self._folder, self._public = folder, public
        self._seen: tuple[tuple[str, int], ...] = ()
        self._found: Mapping[str, Proposal] = {}

    def __call__(self) -> Mapping[str, Proposal]:
        seen = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in self._folder.glob("*.json")))
        if seen != self._seen:
            self._found, self._seen = agreements_in(self._folder, self._public), seen
        return self._found


@final
class _Node:
    """The process that connects, started again when it ends."""

    def __init__(self, settings: SiteSettings, socket_path: Path) -> None:
        self._settings, self._socket = settings, socket_path
        self._process: subprocess.Popen[bytes] | None = None
        self._due, self._pause = 0.0, PAUSES[0]

    def keep(self) -> None:
        """Starts it, if it is due."""
        now = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            self.end()
            self._due = now + self._pause
            self._pause = min(2.0 * self._pause, PAUSES[1])
        if self._process is None and now >= self._due:
            with (self._settings.state / "node.log").open("ab") as log:
                self._process = start_node(self._settings, self._socket, log)

    def works(self) -> None:
        """A message came."""
        self._pause = PAUSES[0]

    def end(self) -> None:
        """Ends it."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        process.kill()
        process.wait()


def site_of(settings: SiteSettings, key: Ed25519PrivateKey) -> Site:
    """The site that these settings describe."""
    public = public_text(key)

    def drawing(proposal: Proposal) -> tuple[int, Draw]:
        rounds = SiteRounds(proposal, settings, public)
        return rounds.numbers, rounds.draw

    return Site(settings.name, key, ledger_of(settings), _Agreed(settings.agreements, public), drawing, _failed)


def serve(settings: SiteSettings, stopped: list[int]) -> None:
    r"""Answers until ``stopped`` has something in it.

    Raises:
      InvalidParameter: another process of this site runs, or Flower's environment is missing.
      OSError: the state can't be read or written.
    """
    key = load_key(settings.key_file)
    with ExitStack() as open_:
        open_.enter_context(locked(settings.state / "lock", "state"))
        site = site_of(settings, key)
        if settings.socket is not None:
            answer(site, open_.enter_context(listening(settings.socket, BACKLOG)), stopped, None)
            return
        # A socket's path may have at most about a hundred characters, and only its owner enters this folder.
        place = Path(tempfile.mkdtemp(prefix="zetadp-"))
        open_.callback(rmtree, place, ignore_errors=True)
        asked = open_.enter_context(listening(place / "site", BACKLOG))
        node = _Node(settings, place / "site")
        open_.callback(node.end)
        answer(site, asked, stopped, node)


def answer(site: Site, asked: socket.socket, stopped: list[int], node: _Node | None) -> None:
    """Answers whoever connects and sends a request, until ``stopped`` has something in it. Connections that send nothing hold up nobody."""
    with ExitStack() as open_:
        silent: list[socket.socket] = []
        open_.callback(lambda: [one.close() for one in silent])
        while not stopped:
            if node is not None:
                node.keep()
            for ready in select.select([asked, *silent], [], [], LOOK_SECONDS)[0]:
                if ready is asked:
                    silent.append(asked.accept()[0])
                elif not stopped:
                    silent.remove(ready)
                    if node is not None:
                        node.works()
                    _answer(site, ready)


def _answer(site: Site, connection: socket.socket) -> None:
    with connection:
        connection.settimeout(FRAME_SECONDS)
        try:
            frame = frames.receive(connection, site.admitted)
            if frame is not None:
                frames.send(connection, site.answer(frame))
        except OSError as error:
            # The answer is kept: whoever asks again gets it.
            sys.stderr.write(f"an answer wasn't taken: {error}\n")


def _failed(error: Exception) -> None:
    """To the site's own log, which stays here."""
    traceback.print_exception(error)


def main(arguments: list[str]) -> int:
    """Runs the site and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m zetadp.process zetadp.trainer.site", description="Take part in federated trainings.")
    parser.add_argument("settings", type=Path)
    parser.add_argument("--parent", type=int, help="id of the process that this one must not outlive")
    options = parser.parse_args(arguments)
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.parent is not None and not die_with_parent(options.parent, signal.SIGTERM):
        sys.stderr.write(f"process {options.parent} isn't the parent: not started\n")
        return ORPHANED
    os.umask(0o077)
    try:
        serve(read_settings(SiteSettings, options.settings), stopped)
    except (PrivacyError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
