r"""``serve``, ``worker`` and ``demo``: the processes of the service."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
import uvicorn
from pydantic import ValidationError

from zetadp.app.access.service import KeyService
from zetadp.app.cli.console import Exit, clear_errors, fail, out
from zetadp.app.kit.database import Database
from zetadp.app.kit.field_errors import field_errors
from zetadp.app.kit.settings import Settings
from zetadp.trainer.parent import die_with_parent


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(serve)
    app.command()(worker)
    app.command()(demo)


def serve(
    host: Annotated[
        str | None, typer.Option(help="IPv4 address to listen on; ZETADP_HOST if absent. Must be loopback until there are keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one; ZETADP_PORT if absent.")] = None,
    with_worker: Annotated[bool, typer.Option("--with-worker", help="Also run one worker, which ends with the service.")] = False,
) -> None:
    """Run the REST service and print the address of its documentation."""
    with clear_errors():
        settings = read_settings()
        with _listening(host or settings.host, settings.port if port is None else port) as listener:
            address, first_key = _address(listener), _first_key(settings, listener)
            command = [sys.executable, "-m", "zetadp", "worker", "--parent", str(os.getpid())]
            # Uvicorn shuts down in good order on SIGTERM and then raises the signal again; as an exception it still ends the worker.
            signal.signal(signal.SIGTERM, _terminated)
            running = subprocess.Popen(command, env=_without_key()) if with_worker else None
            try:
                _run(settings, listener, address, first_key)
            except KeyboardInterrupt:
                pass
            finally:
                if running is not None:
                    running.terminate()
                    running.wait()


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _run(settings: Settings, listener: socket.socket, address: str, first_key: str | None) -> None:
    from zetadp.app.kit.logs import configure_logs
    from zetadp.app.main import create_app

    configure_logs(settings.log_level, settings.log_format)
    config = uvicorn.Config(
        create_app(settings),
        log_level=settings.log_level,
        log_config=None,  # its lines come out as ours do
        access_log=False,
        timeout_graceful_shutdown=2,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        server_header=False,
    )
    # One line each, flushed: scripts read the address from the first.
    sys.stdout.write(f"zetadp is at {address}\ndocumentation: {address}/docs (stop with Ctrl-C)\n")
    if first_key is not None:
        sys.stdout.write(f"admin key, shown this once: {first_key}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A listening socket on an IPv4 address."""
    try:
        address = ipaddress.IPv4Address("127.0.0.1" if host == "localhost" else host)
    except ipaddress.AddressValueError:
        fail(f"host must be an IPv4 address like 127.0.0.1, got {host!r}", Exit.USAGE)
        raise AssertionError from None  # fail() leaves
    try:
        # asyncio sets TCP_NODELAY only where the protocol is named, as ``create_server`` doesn't; without it answers wait 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address), port))
        listener.listen(128)
        return listener
    except OSError as taken:
        fail(f"can't listen on {host} port {port}: {taken.strerror}", Exit.FAILED)
        raise AssertionError from taken  # fail() leaves


def _first_key(settings: Settings, listener: socket.socket) -> str | None:
    """An admin key for a service that never had a key, while only this machine can reach it; None if there are keys."""
    database = Database(settings)
    try:
        database.migrate()
        keys = KeyService(database)
        if settings.admin_key is not None or not keys.is_empty():
            return None
        host = str(listener.getsockname()[0])
        if not ipaddress.ip_address(host).is_loopback:
            fail(
                f"host must be a loopback address as long as there are no keys, got {host!r}: start once without --host, or make one with "
                "`zetadp keys create`, or set ZETADP_ADMIN_KEY",
                Exit.USAGE,
            )
        return keys.first().text
    finally:
        database.close()


def _without_key() -> dict[str, str]:
    """The environment of a worker: it serves nobody and needs no key."""
    return {name: value for name, value in os.environ.items() if name != "ZETADP_ADMIN_KEY"}


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"http://{host}:{port}"


def worker(
    parent: Annotated[int | None, typer.Option(help="Stop cleanly when this process, which started the worker, ends.")] = None,
) -> None:
    """Run one worker. It trains queued jobs, one at a time, each in its own process."""
    from zetadp.app.worker.process import main as run_worker

    if parent is not None and not die_with_parent(parent, signal.SIGTERM):
        fail(f"process {parent} didn't start this worker, or is gone", Exit.USAGE)
    raise typer.Exit(run_worker(read_settings()))


def demo(
    folder: Annotated[Path, typer.Option(help="Where to put the model, certificate and keys.")] = Path("demo-output"),
) -> None:
    """Train a small complex network on handwritten digits with differential privacy, end to end, and check its certificate."""
    from zetadp.app.cli.demo import run_demo

    with clear_errors():
        out.print("zetadp demo: everything runs on this machine, in processes that end with it.", markup=False)
        raise typer.Exit(int(run_demo(folder)))


def read_settings() -> Settings:
    """The settings from the environment; if they are wrong, prints one line that says why."""
    try:
        return Settings()
    except ValidationError as invalid:
        # What was given isn't repeated: it may be a key, or hold a password.
        errors = zip(invalid.errors(), field_errors(invalid.errors(), {}), strict=True)
        fail("settings: " + "; ".join(f"{_variable(raw['loc'])}: {error.message}" for raw, error in errors), Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def _variable(location: Sequence[str | int]) -> str:
    return f"ZETADP_{location[0]}".upper()
