r"""The calculating process: one calculation in its own process, so that cancelling can end it. It dies with its worker.

    python -m zetadp.process zetadp.app.worker.calculator WORKDIR --parent PID

Reads ``WORKDIR/request.json``, writes ``WORKDIR/result.json`` and ends with 0, or with 1 and a last event on standard output that says
why there is no result. It has no checkpoints: if stopped, it starts from the beginning.
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from pathlib import Path

from zetadp.accountants.deadline import time_limit
from zetadp.app.calculators.batch_answers import answered
from zetadp.app.calculators.batches import BatchRequest
from zetadp.app.calculators.calibrations import compute_calibration
from zetadp.app.calculators.profiles import compute_profile
from zetadp.app.calculators.sweeps import compute_sweep
from zetadp.app.jobs.calculation import CalculationDocument, CalculationResult
from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer.parent import die_with_parent
from zetadp.trainer.specs.report import Failed, Finished, TrainingEvent

REQUEST, RESULT = "request.json", "result.json"
FINISHED, FAILED, ORPHANED = 0, 1, 4


def carried_out(document: CalculationDocument) -> CalculationResult:
    """The result. Raises the accountants' errors, including TimeLimitReached; a batch reports them line by line."""
    asked = document.calculation
    if asked.batch is not None:
        return CalculationResult(batch=tuple(answered(BatchRequest(requests=asked.batch), compute_profile, document.seconds)))
    with time_limit(document.seconds):
        if asked.profile is not None:
            return CalculationResult(profile=compute_profile(asked.profile))
        if asked.sweep is not None:
            return CalculationResult(sweep=compute_sweep(asked.sweep))
        assert asked.calibration is not None  # exactly one is given
        return CalculationResult(calibration=compute_calibration(asked.calibration))


def main(arguments: list[str]) -> int:
    """Carries out one calculation and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m zetadp.process zetadp.app.worker.calculator", description="Run one calculation.")
    parser.add_argument("workdir", type=Path)
    parser.add_argument("--parent", type=int, required=True, help="id of the process that this one must not outlive")
    options = parser.parse_args(arguments)
    workdir: Path = options.workdir
    if not die_with_parent(options.parent, signal.SIGKILL):
        sys.stderr.write(f"process {options.parent} isn't the parent: not started\n")
        return ORPHANED
    try:
        result = carried_out(CalculationDocument.model_validate_json((workdir / REQUEST).read_bytes()))
        unfinished = workdir / f".{RESULT}.new"
        unfinished.write_text(result.model_dump_json())
        unfinished.replace(workdir / RESULT)
    except PrivacyError as error:
        _emit(Failed(reason=" ".join(str(error).split())))
        return FAILED
    except Exception as error:  # the trace is for the log, its type for the user
        traceback.print_exc()
        _emit(Failed(reason=f"internal error ({type(error).__name__}); the traceback is in the job's log"))
        return FAILED
    _emit(Finished())
    return FINISHED


def _emit(event: TrainingEvent) -> None:
    sys.stdout.write(event.model_dump_json() + "\n")
    sys.stdout.flush()
