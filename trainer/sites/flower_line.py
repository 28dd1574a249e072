r"""The way to sites over Flower: its server, started and ended here, and the relay that it runs, on a local socket."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.flower_processes import start_superlink, submit_relay
from zetadp.trainer.sites.messages import HEAD
from zetadp.trainer.sites.settings import CoordinatorSettings

LOOK_SECONDS: Final = 0.2
RELAY_SECONDS: Final = 120.0
END_SECONDS: Final = 10.0
MESSAGE_SECONDS: Final = 600.0


@final
class FlowerLine:
    r"""A ``Line``; as a context, Flower's server runs.

    Args:
      folder: for Flower's files and logs.
      waited: called again and again while it starts; what it raises ends the start.
    Attributes:
      largest: the most bytes of an answer; of a longer one only the first are taken.
    """

    def __init__(self, settings: CoordinatorSettings, folder: Path, waited: Callable[[], None]) -> None:
        self._settings, self._folder, self._waited = settings, folder, waited
        self.largest = HEAD
        self._superlink: subprocess.Popen[bytes] | None = None
        self._relay: socket.socket | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_raised: object) -> None:
        self._end()

    def send(self, frame: bytes) -> None:
        frames.send(self._connected, frame)

    def receive(self, seconds: float) -> bytes | None:
        relay = self._connected
        if not select.select([relay], [], [], seconds)[0]:
            return None
        frame = frames.receive(relay, lambda _head: self.largest)
        if frame is None:
            raise ConnectionError(f"Flower's server ended; its log is {self._folder / 'superlink.log'}")
        return frame

    @property
    def _connected(self) -> socket.socket:
        assert self._relay is not None  # inside the context
        return self._relay

    def _start(self) -> None:
        # A socket's path may have at most about a hundred characters.
        place = Path(tempfile.mkdtemp(prefix="zetadp-"))
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(place / "relay"))
                listening.listen(1)
                self._superlink = start_superlink(self._settings, self._folder)
                submit_relay(self._settings, self._folder, place / "relay", self._superlink, self._waited)
                self._relay = self._accepted(listening, self._superlink)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _accepted(self, listening: socket.socket, superlink: subprocess.Popen[bytes]) -> socket.socket:
        waited = 0.0
        while not select.select([listening], [], [], LOOK_SECONDS)[0]:
            self._waited()
            waited += LOOK_SECONDS
            if superlink.poll() is not None or waited > RELAY_SECONDS:
                log = self._folder / "superlink.log"
                raise InvalidParameter("flower", "a server that runs the relay", log.read_text(errors="replace").strip()[-500:])
        connection, _ = listening.accept()
        connection.settimeout(MESSAGE_SECONDS)
        return connection

    def _end(self) -> None:
        if self._relay is not None:
            self._relay.close()
        if self._superlink is not None:
            self._superlink.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._superlink.wait(END_SECONDS)
            self._superlink.kill()
            self._superlink.wait()
