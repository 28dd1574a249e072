r"""Prepares submitted trainings beside the one that runs: reading a data set takes minutes, and a training may take days.

Each worker prepares one job at a time, in a thread that starts a process for each (``preparer.py``): a data set that is too large, or a
calibration without end, ends that process and not the worker. Any worker prepares any job, whatever its device.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Self, TypeVar, final

import structlog
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from zetadp.accountants.filters import Price
from zetadp.app.certificates.policy.reading import operators_policy
from zetadp.app.jobs.errors import LeaseLost
from zetadp.app.jobs.preparations import Preparation, Preparations, PreparationSuperseded
from zetadp.app.kit.child_environment import child_environment
from zetadp.app.kit.database import UNAVAILABLE
from zetadp.app.kit.disk import is_full
from zetadp.app.kit.errors import ServiceError
from zetadp.app.kit.settings import Settings
from zetadp.app.kit.tracing import span
from zetadp.app.storage.base import ObjectDamaged, StorageUnavailable
from zetadp.app.uploads.availability import described
from zetadp.app.worker.log_lines import LogLines
from zetadp.app.worker.memory import exceeds
from zetadp.app.worker.preparer import DONE, Prepared, PreparingRequest
from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.process import child_command
from zetadp.trainer import AnyPlan
from zetadp.trainer.data import Uploaded

RETRY_SECONDS = 0.5
"""Between two tries while the database or the storage doesn't answer."""
LONGEST_LOG = 2**20
"""Bytes of a process's log that are looked at."""
_log = structlog.get_logger()

_T = TypeVar("_T")

PreparingCommand = Callable[[], list[str]]


def preparing_command() -> list[str]:
    """The command line of the process that prepares."""
    return child_command("zetadp.app.worker.preparer")


@final
class NotPrepared(Exception):
    """There is no plan; the text says why. ``lines``: those of its process's log that may be shown."""

    def __init__(self, reason: str, lines: Sequence[str] = ()) -> None:
        self.lines = lines
        super().__init__(reason)


@final
class Preparer:
    r"""Prepares waiting jobs in a thread of its own, one at a time. A context manager: on leaving, its thread and its process are gone.

    Args:
      token: the token of the worker's lease at the moment.
      queued: called with the id and priority of each job that it has queued. It must return at once.
      command: makes the command line of the process that prepares.
    """

    def __init__(
        self,
        settings: Settings,
        preparations: Preparations,
        token: Callable[[], str],
        queued: Callable[[str, int], None],
        command: PreparingCommand = preparing_command,
    ) -> None:
        self._settings = settings
        self._preparations = preparations
        self._token = token
        self._queued = queued
        self._command = command
        self._closing, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="preparer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()
        self._woken.set()
        self._thread.join()

    def wake(self) -> None:
        """A job may wait: look now."""
        self._woken.set()

    def _work(self) -> None:
        while not self._closing.is_set():
            self._woken.clear()
            try:
                while not self._closing.is_set() and (preparation := self._preparations.start_next(self._token())) is not None:
                    with structlog.contextvars.bound_contextvars(job=preparation.job_id):
                        self._prepare(preparation)
            except LeaseLost:
                pass  # the keeper takes a new one
            except SQLAlchemyError as error:
                _log.warning("database_unavailable", error=type(error).__name__)
            except Exception:
                _log.exception("preparing_broken")
            self._woken.wait(self._settings.resubmit_seconds)

    def _prepare(self, preparation: Preparation) -> None:
        _log.info("job_preparing")
        try:
            with span("prepare job", {"zetadp.job": preparation.job_id}, "consumer", preparation.traceparent):
                self._finish(preparation)
        except PreparationSuperseded:
            _log.info("preparation_superseded")
        except UNAVAILABLE:
            raise  # only while it closes: then its lease ends too, and its jobs are put back with it
        except Exception as error:
            _log.exception("preparing_failed")
            how = "its worker's disk is full" if is_full(error) else "its worker was lost"
            with suppress(PreparationSuperseded):
                self._patiently(lambda: self._preparations.lost(preparation, how))

    def _finish(self, preparation: Preparation) -> None:
        """Find out, and write down whatever it was."""
        try:
            found = self._found(preparation)
            if found is None:
                self._patiently(lambda: self._preparations.give_back(preparation))
                return
            plan, price = found
            self._patiently(lambda: self._preparations.queue(preparation, plan, price))
        except (NotPrepared, PrivacyError, ServiceError) as refusal:
            reason, lines = " ".join(str(refusal).split()), refusal.lines if isinstance(refusal, NotPrepared) else ()
            self._patiently(lambda: self._preparations.fail(preparation, reason, lines))
            return
        self._queued(preparation.job_id, preparation.priority)

    def _found(self, preparation: Preparation) -> tuple[AnyPlan, Price | None] | None:
        r"""The plan and its price; None if this worker ends.

        Raises:
          NotPrepared: there is no plan, or the process ended without saying so.
          PreparationSuperseded: the job waits for it no longer.
        """
        settings = self._settings
        if isinstance(data := preparation.asked.spec.data, Uploaded) and not self._is_described(data.data_set, preparation):
            return None
        request = PreparingRequest(
            spec=preparation.asked.spec,
            ledger=None if preparation.ledger is None else preparation.ledger[1],
            pricing_seconds=settings.calculation_job_seconds,
            policy=operators_policy(settings),
            facts_dir=settings.facts_dir,
        )
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(  # noqa: S603 (our own command line; nothing of a request is in it)
                self._command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=child_environment(os.environ, settings.data_sets_dir, settings.made_data_sets_dir),
                start_new_session=True,  # Ctrl-C is for the worker, which then ends it
            )
            with process:
                try:
                    output = self._followed(process, request.model_dump_json().encode(), preparation)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)  # whatever it started goes with it
            return None if output is None else _read(process.returncode, output, log)

    def _is_described(self, data_set: str, preparation: Preparation) -> bool:
        """Put the description of an uploaded data set on this machine's disk; False if this worker ends first. Raises as ``_found``."""
        while True:
            try:
                with suppress(InvalidParameter):  # one that is gone is the preparing process's to refuse, in its words
                    described(self._settings, data_set)
            except ObjectDamaged as damaged:
                raise NotPrepared(str(damaged)) from None
            except StorageUnavailable as error:
                _log.warning("storage_unavailable", error=error.what)
                if self._closing.wait(RETRY_SECONDS):
                    return False
                if not self._patiently(lambda: self._preparations.is_wanted(preparation)):
                    raise PreparationSuperseded(preparation.job_id) from None
            else:
                return True

    def _followed(self, process: subprocess.Popen[bytes], request: bytes, preparation: Preparation) -> bytes | None:
        """Its output, once it has ended; None if this worker ends. Raises as ``_found``."""
        deadline = time.monotonic() + self._settings.preparing_seconds
        to_send: bytes | None = request
        while True:
            try:
                return process.communicate(to_send, timeout=self._settings.cancel_poll_seconds)[0]
            except subprocess.TimeoutExpired:
                to_send = None  # it goes on being sent
            if self._closing.is_set():
                return None
            if time.monotonic() > deadline:
                limit = self._settings.preparing_seconds
                raise NotPrepared(f"reading its data and calibrating its noise took longer than {limit:g} s (ZETADP_PREPARING_SECONDS)")
            if (reason := exceeds(process.pid, self._settings.training_bytes, None)) is not None:
                raise NotPrepared(f"while it was prepared, {reason}")
            if not self._patiently(lambda: self._preparations.is_wanted(preparation)):
                raise PreparationSuperseded(preparation.job_id)

    def _patiently(self, operation: Callable[[], _T]) -> _T:
        """Do it when the database answers; a worker that ends doesn't wait for that."""
        while True:
            try:
                return operation()
            except UNAVAILABLE as error:
                if self._closing.is_set():
                    raise
                _log.warning("database_unavailable", error=type(error).__name__)
                self._closing.wait(RETRY_SECONDS)


def _read(code: int, output: bytes, log: IO[bytes]) -> tuple[AnyPlan, Price | None]:
    """What the ended process has answered. Raises NotPrepared."""
    try:
        answer = Prepared.model_validate_json(output) if code == DONE else Prepared(refused=_described(code))
    except ValidationError:
        answer = Prepared(refused=_described(code))
    if answer.plan is not None:
        return answer.plan, answer.price
    log.seek(0)
    shown = LogLines()
    lines = [safe for line in log.read(LONGEST_LOG).decode("utf-8", "replace").splitlines() for safe in shown.safe(line)]
    raise NotPrepared(answer.refused or _described(code), [*lines, *shown.end()])


def _described(code: int) -> str:
    hint = " (the system may have run out of memory)" if code == -signal.SIGKILL else ""
    how = f"was ended by {signal.Signals(-code).name}{hint}" if code < 0 else f"ended with code {code} and gave no reason"
    return f"the process that reads its data and calibrates its noise {how}"
