r"""The training process: one job, in a process that dies with the worker that started it.

    python -m zetadp.process zetadp.trainer.child WORKDIR --parent PID

Reads ``WORKDIR/request.json``, writes one event per line on standard output, and ends with 0 (finished: model and ``result.json`` are
written), 1 (failed: the last event says why), 3 (stopped on SIGTERM: continues from its checkpoint), 4 (the parent is gone), 5 (another
attempt has taken its folder) or 6 (another machine that shares the training was lost: continues from its checkpoint).

On a machine that isn't the first of those that share a training it writes no events, stops when the first one does, and ends with 0.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from pydantic import ValidationError

from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer import load_train
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine.noise.run_key import keyed_in
from zetadp.trainer.errors import MemberDone, PartFailed, TeamLost, TrainingAborted, TrainingDiverged, TrainingStopped
from zetadp.trainer.parent import die_with_parent, end_with_folder
from zetadp.trainer.request import FINISHED, LOST, ORPHANED, REQUEST, RESULT, STOPPED, TrainingRequest
from zetadp.trainer.specs.report import Failed, Finished, Stopped, TrainingEvent
from zetadp.trainer.team_place import TeamPlace


def main(arguments: list[str]) -> int:
    """Runs one request and returns the exit status; every other end goes through ``report_failure``."""
    sys.excepthook = report_failure
    parser = argparse.ArgumentParser(prog="python -m zetadp.process zetadp.trainer.child", description="Train one job.")
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--parent", type=int, required=True, help="id of the process that this one must not outlive")
    options = parser.parse_args(arguments)
    if not die_with_parent(options.parent, signal.SIGKILL):
        sys.stderr.write(f"process {options.parent} isn't the parent: not started\n")
        return ORPHANED
    end_with_folder(options.workdir)
    stop_requests: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop_requests.append(number))
    is_first = TeamPlace.told().machine == 0
    try:
        run_request(options.workdir, lambda: is_first and bool(stop_requests), _emit if is_first else _say_nothing)
    except TrainingStopped as stopped:
        if not is_first:
            return FINISHED
        _emit(Stopped(step=stopped.step))
        return STOPPED
    except MemberDone:
        return FINISHED
    except TeamLost as lost:
        traceback.print_exc()
        sys.stderr.write(f"{lost}\n")
        return LOST
    _emit(Finished())
    return FINISHED


def run_request(workdir: Path, should_stop: Callable[[], bool], report: Callable[[TrainingEvent], None]) -> None:
    r"""Runs the training that ``workdir`` requests and writes its report.

    Raises:
      ValidationError, OSError: the request, or the secret that its randomness follows from, can't be read.
      PrivacyError, TrainingStopped, TeamLost, MemberDone: as the algorithm's ``train`` says.
    """
    request = TrainingRequest.model_validate_json((workdir / REQUEST).read_bytes())
    train = load_train(request.spec)
    with keyed_in(workdir, request):
        outcome = train(request.spec, request.plan, request.runtime, workdir, report=report, should_stop=should_stop)
    write_atomically(workdir / RESULT, outcome.model_dump_json().encode())


def report_failure(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An exception hook: the traceback goes to standard error, one line for the user to standard output."""
    traceback.print_exception(kind, error, trace)
    match error:
        case TrainingDiverged() | TrainingAborted():
            executed = error.step
        case PartFailed():
            executed = error.executed
        case _:
            # It came before the first step, or the steps couldn't be written: which of the two isn't known here.
            executed = None
    cause = error.__cause__ if isinstance(error, TrainingAborted) else None
    _emit(Failed(reason=failure_reason(cause or error), executed=executed))


def failure_reason(error: BaseException) -> str:
    """One line. The text of errors that aren't ours is left out: it may quote a data value."""
    match error:
        case ValidationError():
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in problem["loc"])
            reason = f"{REQUEST}: {where or 'the whole'}: {problem['msg']}"
        case PrivacyError():
            reason = str(error)
        case OSError():
            reason = f"{error.strerror or type(error).__name__}: {error.filename}"
        case _:
            reason = f"internal error ({type(error).__name__}); the traceback is in the job's log"
    return " ".join(reason.split())


def _say_nothing(_event: TrainingEvent) -> None:
    """The first machine tells what happens."""


def _emit(event: TrainingEvent) -> None:
    sys.stdout.write(event.model_dump_json() + "\n")
    sys.stdout.flush()
