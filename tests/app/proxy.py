r"""A wire between a client and a server that tests cut: in the middle of whatever is on its way, as wires break."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import final


@final
class Proxy:
    """Passes on what comes to its port, unless it is cut or muted."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._open: set[socket.socket] = set()
        self._passing: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_cut = self._is_mute = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, name="proxy")
        self._accepting.start()

    def cut(self) -> None:
        """End every connection and refuse new ones."""
        with self._lock:
            self._is_cut = True
            for side in self._open:
                _shut_down(side)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def mute(self) -> None:
        """From now on take everything and pass on nothing: connections stay open, and nobody answers."""
        self._is_mute = True

    def close(self) -> None:
        self.cut()
        _shut_down(self._listener)  # closing alone doesn't wake whoever waits in accept()
        for thread in (self._accepting, *self._passing):
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()  # the server is away
                    continue
                self._open |= {client, server}
            for source, target in ((client, server), (server, client)):
                self._passing.append(threading.Thread(target=self._pass_on, args=(source, target), name="proxy"))
                self._passing[-1].start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(65536):
                if not self._is_mute:
                    target.sendall(content)
        _shut_down(target)  # which ends the other direction's thread too
        with self._lock:
            self._open.discard(source)
            source.close()


def _shut_down(side: socket.socket) -> None:
    with suppress(OSError):  # it is closed, or its other end is
        side.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied(url: str) -> Generator[tuple[str, Proxy]]:
    """The same database through a proxy."""
    head, _, rest = url.rpartition("@")
    place, _, name = rest.partition("/")
    host, _, port = place.partition(":")
    proxy = Proxy(host, int(port or 5432))
    try:
        yield f"{head}@127.0.0.1:{proxy.port}/{name}", proxy
    finally:
        proxy.close()
