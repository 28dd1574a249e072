r"""The runs of a private selection, one after the other, and what is kept of the best one. Nothing of the others, not even their number,
is reported or left behind: accountants/proofs/selected.md, section 7."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from zetadp.mechanisms.errors import PrivacyError
from zetadp.trainer.algorithms.comparison.part import outcome, run_part
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine import CHECKPOINT, MODEL
from zetadp.trainer.errors import CheckpointRefused, PartFailed, TrainingStopped
from zetadp.trainer.request import TrainingRequest
from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.report import RunReport, TrainingEvent

FAILED = "failed"
"""In the folder of a run that failed. That it did is its output, with the lowest score, and the same in every later attempt."""

STOPPED_AFTER = 1
"""The step after which every selection says that it was stopped: it counts as a whole from its beginning, and where it was is secret."""


@final
class RunsDontHold(PrivacyError):
    """The guarantee isn't that of what was run."""

    def __init__(self) -> None:
        super().__init__("the noise or the samples of a run aren't as claimed: nothing comes out, and nothing is certified")


@final
@dataclass(frozen=True)
class Best:
    """The best run: its candidate's number, its report, and its model's bytes."""

    candidate: int
    report: RunReport
    model: bytes


def best_of(
    spec: PrivateSelection,
    plan: SelectionPlan,
    runtime: RuntimeSpec,
    folder: Path,
    candidates: Sequence[int],
    should_stop: Callable[[], bool],
) -> Best | None:
    r"""Runs every run that hasn't ended; the first among the most accurate ones, or None if there was no run or all failed.

    Raises:
      TrainingStopped: on ``should_stop``; what ran is in its checkpoint.
      RunsDontHold: the noise or the samples of a run aren't what is claimed.
    """
    best: Best | None = None
    for number, candidate in enumerate(candidates, 1):
        request = TrainingRequest(spec=spec.seeded(candidate, number), runtime=runtime, plan=plan.candidates[candidate].plan)
        place = folder / f"{number}"
        report = _ended(place, request, should_stop)
        if report is not None and (best is None or _score(report) > _score(best.report)):
            best = Best(candidate, report, (place / MODEL).read_bytes())
    return best


def _score(report: RunReport) -> float:
    """Accuracy: of the released model on public records, or the released count. Both are functions of what the run released."""
    assert report.metrics is not None  # the spec asks for an evaluation
    return report.metrics["accuracy"]


def _ended(folder: Path, request: TrainingRequest, should_stop: Callable[[], bool]) -> RunReport | None:
    """What a run reports, now or at an earlier attempt; None if it failed."""
    if (folder / FAILED).exists():
        return None
    if (earlier := outcome(folder, request)) is not None:
        return _tested(earlier.report)
    if should_stop():
        raise TrainingStopped(STOPPED_AFTER)
    try:
        stopped = run_part(folder.name, folder, request, _unheard, should_stop)
    except CheckpointRefused as refused:
        raise TrainingStopped(STOPPED_AFTER) from refused  # stopped at once; the next attempt reads the same file
    except PartFailed:
        write_atomically(folder / FAILED, b"")
        return None
    if stopped is not None:
        raise TrainingStopped(STOPPED_AFTER)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    found = outcome(folder, request)
    assert found is not None  # it ended well, and has just written both
    return _tested(found.report)


def _tested(report: RunReport) -> RunReport:
    """The report, whose tests nobody else will see: a right run passes them but for a probability of 1e-20 (proofs/audit.md)."""
    if any(test is not None and test.status == "violated" for test in (report.noise_test, report.sample_test)):
        raise RunsDontHold
    return report


def _unheard(_event: TrainingEvent) -> None:
    """How a run is doing is nobody's business: it may not be the best one."""


def delete(folder: Path) -> None:
    """All runs, the best one's own files too, and the secret that their number follows from."""
    if folder.exists():
        shutil.rmtree(folder)
