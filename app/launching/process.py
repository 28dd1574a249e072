r"""The launcher: prepares submitted jobs, and asks a cluster for a worker for each that is queued. ``zetadp launcher`` runs ``main``.

It trains nothing itself and needs no accelerator. If it dies, workers that run go on, and its successor finds in the database what it had
asked for. It has a lease as workers have: there is one launcher, and it puts back the jobs of workers whose machines are gone.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from zetadp.app.jobs.errors import ExecutorBusy
from zetadp.app.jobs.launches import WANTED, Launch, Launches
from zetadp.app.jobs.leases import Executor, LeaseKeeper, Leases
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.preparations import Preparations
from zetadp.app.kit import tracing
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.logs import configure_logs
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.shutdown import Shutdown
from zetadp.app.kit.waiting import Pauses, Stopped, when_available
from zetadp.app.launching.clusters import cluster_of
from zetadp.app.launching.interface import Cluster, ClusterUnavailable, Found, LaunchRefused, LaunchState, Order
from zetadp.app.worker.exits import EXIT_BROKEN, EXIT_BUSY, EXIT_REFUSED
from zetadp.app.worker.heartbeat import beat
from zetadp.app.worker.naming import PATIENCE_SECONDS, sole_executor
from zetadp.app.worker.preparing import Preparer, PreparingCommand, preparing_command
from zetadp.mechanisms.errors import InvalidParameter

NAME = "launcher"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 300.0
"""Before another worker is asked for, when one has ended without taking its job up."""
MOST_FAILURES = 5
"""How many in a row, before the job fails."""
ENDING_SECONDS = 60.0
"""How long a worker may take to end once its job needs it no more; then the cluster ends it."""
_log = structlog.get_logger()


def main(settings: Settings, preparing: PreparingCommand = preparing_command) -> int:
    """Run a launcher until SIGTERM or SIGINT. Returns the exit code: 0, 75 if another one runs, 78 if it can't run with these settings."""
    configure_logs(settings.log_level, settings.log_format)
    shutdown = Shutdown(settings.shutdown_seconds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: shutdown.ask())
    code = _run(settings, shutdown, preparing)
    shutdown.leave(code)
    return code


def _run(settings: Settings, shutdown: Shutdown, preparing: PreparingCommand) -> int:
    database = Database(settings)
    try:
        tracing.configure("zetadp-launcher")
        when_available(database.migrate, shutdown.stopping)
        with ExitStack() as stack:
            cluster = cluster_of(settings)
            stack.callback(cluster.close)
            code = _Process(settings, database, cluster, shutdown, preparing).work(stack)
    except Stopped:
        code = 0
    except InvalidParameter as refusal:
        _log.error("launcher_refused", reason=str(refusal))
        return EXIT_REFUSED
    except ExecutorBusy as refusal:
        _log.error("launcher_refused", reason=str(refusal))
        return EXIT_BUSY
    except Exception:
        _log.exception("launcher_broken")
        return EXIT_BROKEN
    finally:
        database.close()
        tracing.close()
    _log.info("launcher_stopped", exit_code=code)
    return code


@final
class _Process:
    """Its lease, its preparer, and its rounds."""

    def __init__(self, settings: Settings, database: Database, cluster: Cluster, shutdown: Shutdown, preparing: PreparingCommand) -> None:
        self._settings = settings
        self._database = database
        self._cluster = cluster
        self._shutdown = shutdown
        self._preparing = preparing
        self._woken = threading.Event()
        self._code = 0

    def work(self, stack: ExitStack) -> int:
        """Until it is asked to end, or can't keep its lease; the exit code. Raises ExecutorBusy, Stopped."""
        settings, stopping = self._settings, self._shutdown.stopping
        name = settings.executor_id or NAME
        capacity = self._patiently_asked()
        executor = Executor(
            id=name,
            host=socket.gethostname(),
            lock=stack.enter_context(sole_executor(settings.data_dir, name, PATIENCE_SECONDS)),
            device="auto",
            hardware=self._cluster.described()[:255],
            capacity=capacity,
            lease_seconds=settings.lease_seconds,
        )
        leases = Leases(self._database, settings.maximum_worker_deaths)
        keeper = LeaseKeeper(leases, executor, lambda _jobs: self._woken.set(), self._unable, partial(beat, settings, name))
        when_available(lambda: stack.enter_context(keeper), stopping)
        preparations = Preparations(self._database, settings.maximum_worker_deaths)
        stack.enter_context(
            Preparer(settings, preparations, lambda: keeper.token, lambda _job, _priority: self._woken.set(), self._preparing)
        )
        _log.info("launcher_started", cluster=settings.launcher, hardware=executor.hardware)
        rounds = Rounds(Launches(self._database), self._cluster, capacity, settings)
        while not stopping.is_set():
            self._woken.clear()
            try:
                rounds.once()
            except SQLAlchemyError as error:
                _log.warning("database_unavailable", error=type(error).__name__)
            except ClusterUnavailable as unavailable:
                _log.warning("cluster_unavailable", reason=unavailable.what)
            if not stopping.is_set():
                self._woken.wait(settings.launcher_seconds)
        return self._code

    def _patiently_asked(self) -> Capacity:
        """What the cluster has. Raises Stopped."""
        pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                return self._cluster.capacity()
            except ClusterUnavailable as unavailable:
                _log.warning("cluster_unavailable", reason=unavailable.what)
                if self._shutdown.stopping.wait(pauses.following()):
                    raise Stopped from None

    def _unable(self, error: Exception) -> None:
        self._code = EXIT_BUSY if isinstance(error, ExecutorBusy) else EXIT_BROKEN
        self._shutdown.ask()
        self._woken.set()


@final
class Rounds:
    r"""Brings what the cluster runs in line with what is queued. Any round may be the last: what matters is in the database.

    Args:
      capacity: what the cluster has; jobs that need more wait for another worker.
    """

    def __init__(self, launches: Launches, cluster: Cluster, capacity: Capacity, settings: Settings) -> None:
        self._launches = launches
        self._cluster = cluster
        self._capacity = capacity
        self._settings = settings
        self._unneeded: dict[str, float] = {}

    def once(self) -> None:
        """One round. Raises SQLAlchemyError, ClusterUnavailable; then it is simply made again."""
        launches = self._launches.all()
        found = self._cluster.found([launch.name for launch in launches]) if launches else {}
        for launch in launches:
            there = found.get(launch.name)
            if there is not None and there.state is not LaunchState.ENDED:
                self._follow(launch, there)
            else:
                self._settle(launch, None if there is None else there.reason or "it has ended")
        self._unneeded = {name: since for name, since in self._unneeded.items() if name in found}
        while (new := self._launches.begin_next(self._capacity, self._settings.launches)) is not None:
            self._start(new)

    def _follow(self, launch: Launch, found: Found) -> None:
        self._launches.heard(launch, found.state, found.reason)
        if launch.has_started and launch.failures:
            self._launches.succeeded(launch)
        if not launch.is_over:
            return
        # One that runs ends by itself when its job does, and may have something left to do.
        since = self._unneeded.setdefault(launch.name, time.monotonic())
        if found.state is LaunchState.WAITING or time.monotonic() - since > ENDING_SECONDS:
            self._cluster.end(launch.name)

    def _settle(self, launch: Launch, ended: str | None) -> None:
        """The cluster says that it has ended, or, with None, knows nothing of it."""
        if launch.is_over:
            self._launches.forget(launch)
        elif launch.is_held:
            return  # another worker has the job, or this one's lease has yet to run out
        elif launch.has_started:
            # Taken from its machine, stopped by a time limit, or lost: what the job released is in its checkpoint.
            self._launches.heard(launch, LaunchState.ENDED, ended)
            self._again(launch)
        elif launch.state == LaunchState.ENDED:
            if launch.due <= now():
                self._again(launch)
        elif launch.state == WANTED:
            self._start(launch)  # the cluster wasn't asked yet, or its answer was lost
        else:
            self._count(launch, ended or "the cluster doesn't know it")

    def _count(self, launch: Launch, reason: str) -> None:
        """It ended without taking the job up. After a pause another one is asked for, but not for ever."""
        self._launches.heard(launch, LaunchState.ENDED, reason)
        failures = launch.failures + 1
        if failures < MOST_FAILURES:
            pause = min(FIRST_PAUSE_SECONDS * 2.0**launch.failures, LONGEST_PAUSE_SECONDS)
            self._launches.failed(launch, reason, pause)
        else:
            said = f"{failures} workers in a row ended before they took it up; of the last one the cluster says: {reason}"
            self._launches.failed(launch, said, None)

    def _again(self, launch: Launch) -> None:
        if (following := self._launches.begin_again(launch)) is not None:
            self._start(following)

    def _start(self, launch: Launch) -> None:
        order = Order(
            name=launch.name,
            job_id=launch.job_id,
            needs=launch.needs,
            cpus=launch.cpus,
            seconds=launch.seconds,
            grace_seconds=self._settings.stop_grace_seconds + self._settings.shutdown_seconds,
        )
        try:
            self._cluster.start(order)
        except LaunchRefused as refused:
            self._launches.failed(launch, f"the cluster refuses a worker for it: {refused}", None)
            return
        self._launches.heard(launch, LaunchState.WAITING, None)
        _log.info("worker_launched", name=order.name, job=order.job_id)
