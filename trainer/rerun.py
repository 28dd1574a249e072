r"""Repeats a run whose plan was committed to a secret key, for an auditor who was given the key: the same releases, or where they part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.child import run_request
from zetadp.trainer.engine.noise.run_key import ONCE, run_key
from zetadp.trainer.engine.run import CHECKPOINT, MODEL
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.request import NOISE_KEY, RELEASES, REQUEST, RunSecret, TrainingRequest
from zetadp.trainer.specs.releases import Recorded, Release, Repeated, RunAttempt, read_releases
from zetadp.trainer.specs.report import TrainingEvent

ATTEMPTS_BESIDE: Final = 3
"""Attempts that are recorded though they took no step: a release before all steps, a count after them, and the last attempt."""


def repeat(request: TrainingRequest, secret: bytes, recorded: Recorded, workdir: Path, report: Callable[[TrainingEvent], None]) -> Repeated:
    r"""Trains again, each attempt from where it began to where the next one did.

    Args:
      request: spec and plan of the certificate, with the runtime settings that were recorded.
      secret: what the run's randomness follows from.
      workdir: an empty folder.
    Raises:
      InvalidParameter: more attempts are recorded than a run of the plan leaves.
      PrivacyError, TrainingAborted, OSError: as the training itself.
    """
    # Each of them but the last released something or took a step: each costs a beginning, with all data read.
    count, steps = len(recorded.attempts), request.plan.steps
    if count > (most := steps + ATTEMPTS_BESIDE):
        raise InvalidParameter("releases.txt", f"of at most {most} attempts, for a plan of {steps} steps", count)
    (workdir / REQUEST).write_text(request.model_dump_json())
    followers = [*recorded.attempts[1:], None]
    for attempt, following in zip(recorded.attempts, followers, strict=True):
        if attempt.after is None:  # it found no checkpoint, whatever an earlier one had done
            (workdir / CHECKPOINT).unlink(missing_ok=True)
        descriptor = os.open(workdir / NOISE_KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(RunSecret(secret=secret.hex(), attempt=attempt.number).model_dump_json())
        try:
            run_request(workdir, _ending(attempt, following), report)
        except TrainingStopped:
            continue
    own = read_releases((workdir / RELEASES).read_text())
    same, departed = _compared(recorded, own)
    return Repeated(same, len(recorded.releases), departed, hashlib.sha256((workdir / MODEL).read_bytes()).hexdigest())


def _ending(attempt: RunAttempt, following: RunAttempt | None) -> Callable[[], bool]:
    """Whether an attempt has done what is left of it: not every step releases something, and a release may come after all steps."""
    if following is None:
        return lambda: False
    end, has_single = following.after or 0, any(step == ONCE for _, step, _ in attempt.releases)

    def is_over() -> bool:
        key = run_key()
        return key is not None and key.reached is not None and key.reached >= end and (key.has_single or not has_single)

    return is_over


def _compared(recorded: Recorded, own: Recorded) -> tuple[int, tuple[int, int] | None]:
    """How many releases are the same, and where the first is that isn't; attempts that began elsewhere are a departure too."""
    same = 0
    for one, other in zip_longest(recorded.releases, own.releases):
        if one != other:
            return same, _place(one or other)
        same += 1
    begun = ([(attempt.number, attempt.after) for attempt in run.attempts] for run in (recorded, own))
    parted = next((one or other for one, other in zip_longest(*begun) if one != other), None)
    return same, None if parted is None else (0, parted[1] or 0)


def _place(release: Release | None) -> tuple[int, int]:
    assert release is not None  # zip_longest gives one of the two
    return release[:2]
