r"""One training of a comparison in a separate process, so that its time and memory are its own."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, final

from pydantic import Field, Strict, TypeAdapter, ValidationError

from zetadp.mechanisms.base import Value
from zetadp.process import child_command
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine.checkpoint import checkpointed_step
from zetadp.trainer.engine.run import CHECKPOINT
from zetadp.trainer.errors import PartFailed
from zetadp.trainer.request import FINISHED, REQUEST, RESULT, STOPPED, TrainingRequest
from zetadp.trainer.specs.report import Failed, RunReport, Stopped, TrainingEvent

MEASURED, LOG = "measured.json", "training.log"
POLL_SECONDS = 0.2
PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
"""A field of ``/proc/PID/status``. The kernel's figure for a process that has ended starts from its parent's memory instead."""

_EVENT: TypeAdapter[TrainingEvent] = TypeAdapter(TrainingEvent)


@final
class Measured(Value):
    """``peak_mebibytes``: largest resident memory of the training process, the libraries it loads included; over all attempts."""

    peak_mebibytes: Annotated[float, Strict(), Field(ge=0.0, allow_inf_nan=False)]


@final
class PartOutcome(Value):
    """What a finished part reports about itself."""

    report: RunReport
    measured: Measured


def outcome(folder: Path, request: TrainingRequest) -> PartOutcome | None:
    """The outcome of a part that has ended in this folder; None if it hasn't, or if something else ran there."""
    try:
        if not _asked_before(folder, request):
            return None
        return PartOutcome(
            report=RunReport.model_validate_json((folder / RESULT).read_bytes()),
            measured=Measured.model_validate_json((folder / MEASURED).read_bytes()),
        )
    except (OSError, ValidationError):
        return None


def _asked_before(folder: Path, request: TrainingRequest) -> bool:
    """Whether the folder already belongs to this request."""
    try:
        return TrainingRequest.model_validate_json((folder / REQUEST).read_bytes()) == request
    except (OSError, ValidationError):
        return False


def run_part(
    name: str, folder: Path, request: TrainingRequest, heard: Callable[[TrainingEvent], None], should_stop: Callable[[], bool]
) -> int | None:
    r"""Runs the part to its end, from its checkpoint if there is one; ``outcome`` then gives its results.

    Returns:
      None, or if it was stopped, the last step that its checkpoint holds.
    Raises:
      PartFailed: the training failed, or its process died.
      CheckpointRefused: it was stopped at once, and its checkpoint can't be read.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _asked_before(folder, request):
        # Otherwise another request's remains could be mistaken for this one's results.
        for left in (RESULT, MEASURED):
            (folder / left).unlink(missing_ok=True)
    write_atomically(folder / REQUEST, request.model_dump_json().encode())
    command = child_command("zetadp.trainer.child", str(folder))
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)  # noqa: S603 (our own line)
    assert process.stdout is not None  # stdout=PIPE
    try:
        last, peak = _follow(process, process.stdout, heard, should_stop)
    except BaseException:
        process.kill()
        raise
    finally:
        process.wait()
    earlier = folder / MEASURED
    before = Measured.model_validate_json(earlier.read_bytes()).peak_mebibytes if earlier.exists() else 0.0
    write_atomically(earlier, Measured(peak_mebibytes=max(before, peak)).model_dump_json().encode())
    match process.returncode, last:
        case code, _ if code == FINISHED:
            return None
        case code, Stopped() if code == STOPPED:
            return last.step
        case code, _ if code == -signal.SIGTERM:
            return checkpointed_step(folder / CHECKPOINT)  # before it listened to signals: nothing of this attempt was done
        case _, Failed():
            raise PartFailed(name, last.reason, last.executed)
        case _:
            raise PartFailed(name, f"its process ended with exit status {process.returncode} and without a reason; see {LOG}")


def _follow(
    process: subprocess.Popen[bytes], output: IO[bytes], heard: Callable[[TrainingEvent], None], should_stop: Callable[[], bool]
) -> tuple[TrainingEvent | None, float]:
    """Passes on the process's events until its output ends; returns the last event, and its largest resident memory in MiB."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(output, lines), daemon=True).start()
    last, stopping, peak = None, False, 0.0
    while True:
        peak = max(peak, _peak(process.pid))
        if not stopping and should_stop():
            process.send_signal(signal.SIGTERM)
            stopping = True
        try:
            line = lines.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if line is None:
            return last, peak
        try:
            last = _EVENT.validate_json(line)
        except ValidationError:
            continue  # printed by a library
        heard(last)


def _read(output: IO[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with output:
        for line in output:
            lines.put(line)
    lines.put(None)


def _peak(process: int) -> float:
    """Largest resident memory so far, in MiB; 0 for a process that has freed its memory."""
    try:
        found = PEAK.search(Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return 0.0 if found is None else int(found[1]) / 1024.0
