r"""``serve``, ``worker`` and ``demo``: the processes of the service."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
import uvicorn
from pydantic import ValidationError
from uvicorn.supervisors import Multiprocess

from zetadp.app.access.rates import SHARED
from zetadp.app.access.service import KeyService
from zetadp.app.certificates.signing.keys import key_files
from zetadp.app.cli.console import Exit, clear_errors, fail, out, read_settings
from zetadp.app.cli.supervision import supervised
from zetadp.app.kit.database import Database
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.waiting import when_available
from zetadp.process import starting
from zetadp.trainer.parent import die_with_parent
from zetadp.trainer.team_place import TeamPlace


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(serve)
    app.command()(worker)
    app.command()(launcher)
    app.command()(demo)


def serve(
    host: Annotated[
        str | None, typer.Option(help="IPv4 address to listen on; ZETADP_HOST if absent. Must be loopback until there are keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one; ZETADP_PORT if absent.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that share the port and its rate limits; ZETADP_PROCESSES if absent.")
    ] = None,
    with_worker: Annotated[bool, typer.Option("--with-worker", help="Also run one worker, which ends with the service.")] = False,
) -> None:
    """Run the REST service and print the address of its documentation."""
    with clear_errors():
        settings = read_settings()
        with _listening(host or settings.host, settings.port if port is None else port) as listener:
            configure_logs(settings.log_level, settings.log_format)
            address, first_key = _address(listener), _first_key(settings, listener)
            # Uvicorn shuts down in good order on SIGTERM and then raises the signal again; as an exception it still ends the worker.
            signal.signal(signal.SIGTERM, _terminated)
            if with_worker:
                key_files(settings)  # makes the first one: a worker of a bucket begins only where the service's keys are
            with supervised(settings) if with_worker else nullcontext(), suppress(KeyboardInterrupt):
                _run(settings, listener, address, first_key, processes or settings.processes)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _run(settings: Settings, listener: socket.socket, address: str, first_key: str | None, processes: int) -> None:
    with starting():
        from zetadp.app.main import create_app

        # Several processes each make their own, from the environment that they inherit.
        served = create_app(settings) if processes == 1 else "zetadp.app.serving:application"
    config = uvicorn.Config(
        served,
        factory=processes > 1,
        workers=processes,
        log_level=settings.log_level,
        log_config=None,  # its lines come out as ours do
        access_log=False,
        timeout_graceful_shutdown=2,
        timeout_worker_healthcheck=60,  # a busy machine is no reason to end a process
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        server_header=False,
    )
    # One line each, flushed: scripts read the address from the first.
    sys.stdout.write(f"zetadp is at {address}\ndocumentation: {address}/docs (stop with Ctrl-C)\n")
    if first_key is not None:
        sys.stdout.write(f"admin key, shown this once: {first_key}\n")
    sys.stdout.flush()
    if processes == 1:
        uvicorn.Server(config).run(sockets=[listener])
        return
    os.environ["ZETADP_PROCESSES"] = str(processes)
    (settings.data_dir / SHARED).unlink(missing_ok=True)  # an earlier service's counts
    Multiprocess(config, [listener]).run()


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
    """An admin key for a service that never had a key, while only this machine can reach it; None if there are keys.

    It waits for a database that is locked or away: only the database tells whether there are keys.
    """
    if settings.admin_key is not None:
        return None
    database = Database(settings)
    try:
        when_available(database.migrate, threading.Event())
        keys = KeyService(database)
        if not when_available(keys.is_empty, threading.Event()):
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


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"http://{host}:{port}"


def worker(
    parent: Annotated[int | None, typer.Option(help="Stop cleanly when this process, which started the worker, ends.")] = None,
    job: Annotated[str | None, typer.Option(help="Run this job once it waits, and end.")] = None,
    machines: Annotated[int, typer.Option(min=1, max=64, help="How many machines share the job.")] = 1,
    machine: Annotated[int, typer.Option(min=0, max=63, help="Which of them this one is, from 0.")] = 0,
    meet: Annotated[str | None, typer.Option(help="HOST:PORT of the first of them, where their processes meet.")] = None,
) -> None:
    """Run one worker. It trains queued jobs, one at a time, each in its own process.

    With --job it is there for one job, as a launcher starts it.
    """
    from zetadp.app.worker.one_job import OneJob
    from zetadp.app.worker.process import main as run_worker

    if parent is not None and not die_with_parent(parent, signal.SIGTERM):
        fail(f"process {parent} didn't start this worker, or is gone", Exit.USAGE)
    settings = read_settings()
    if job is None:
        if (machines, machine, meet) != (1, 0, None):
            fail("--machines, --machine and --meet go with --job", Exit.USAGE)
        raise typer.Exit(run_worker(settings))
    raise typer.Exit(run_worker(settings, only=OneJob(job_id=job, place=_place(machines, machine, meet))))


def _place(machines: int, machine: int, meet: str | None) -> TeamPlace | None:
    if machines == 1 and meet is None:
        return None
    host, colon, port = (meet or "").rpartition(":")
    if not colon or not port.isdecimal():
        fail(f"expected --meet HOST:PORT with --machines, got {meet!r}", Exit.USAGE)
    try:
        return TeamPlace(machines=machines, machine=machine, host=host, port=int(port))
    except ValidationError as invalid:
        fail(f"expected --machine below --machines and --meet HOST:PORT, got {machine}, {machines} and {meet!r}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def launcher() -> None:
    """Run the launcher: it starts a worker for each queued job where its resources are (ZETADP_LAUNCHER)."""
    from zetadp.app.launching.process import main as run_launcher

    raise typer.Exit(run_launcher(read_settings()))


def demo(
    folder: Annotated[Path, typer.Option(help="Where to put the model, certificate and keys.")] = Path("demo-output"),
) -> None:
    """Train a small complex network on handwritten digits with differential privacy, end to end, and check its certificate."""
    from zetadp.app.cli.demo import run_demo

    with clear_errors():
        out.print("zetadp demo: everything runs on this machine, in processes that end with it.", markup=False)
        raise typer.Exit(int(run_demo(folder)))
