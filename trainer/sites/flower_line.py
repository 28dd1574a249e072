r"""The way to sites over Flower: its server, started and ended here, and the relay that it runs, on a local socket."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.flower_processes import start_superlink, submit_relay
from zetadp.trainer.sites.local_line import LocalLine, listening
from zetadp.trainer.sites.settings import CoordinatorSettings

RELAY_SECONDS: Final = 120.0
END_SECONDS: Final = 10.0


@final
class FlowerLine(LocalLine):
    r"""A ``LocalLine``; as a context, Flower's server runs.

    Args:
      settings: with ``listen``.
      folder: for Flower's files and logs.
      waited: called again and again while it starts; what it raises ends the start.
    """

    def __init__(self, settings: CoordinatorSettings, folder: Path, waited: Callable[[], None]) -> None:
        super().__init__(waited)
        self._settings, self._folder = settings, folder
        self._superlink: subprocess.Popen[bytes] | None = None

    def _start(self) -> None:
        # A socket's path may have at most about a hundred characters.
        place = Path(tempfile.mkdtemp(prefix="zetadp-"))
        try:
            with listening(place / "relay", 1) as relay:
                superlink = self._superlink = start_superlink(self._settings, self._folder)
                submit_relay(self._settings, self._folder, place / "relay", superlink, self._waited)

                def still_comes(seconds: float) -> None:
                    if superlink.poll() is not None or seconds > RELAY_SECONDS:
                        last = self._log.read_text(errors="replace").strip()[-500:]
                        raise InvalidParameter("flower", "a server that runs the relay", last)

                self._relay = self._accepted(relay, still_comes)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _lost(self) -> None:
        raise ConnectionError(f"Flower's server ended; its log is {self._log}")

    def _end(self) -> None:
        super()._end()
        if self._superlink is not None:
            self._superlink.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._superlink.wait(END_SECONDS)
            self._superlink.kill()
            self._superlink.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "superlink.log"
