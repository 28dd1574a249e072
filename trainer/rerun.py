r"""Repeats a run whose plan was committed to a secret key, for an auditor who was given the key: the same releases, or where they part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from zetadp.trainer.child import run_request
from zetadp.trainer.engine.run import MODEL
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.request import NOISE_KEY, RELEASES, REQUEST, TrainingRequest
from zetadp.trainer.specs.releases import Recorded, Release, Repeated, read_releases
from zetadp.trainer.specs.report import TrainingEvent


def repeat(request: TrainingRequest, secret: bytes, recorded: Recorded, workdir: Path, report: Callable[[TrainingEvent], None]) -> Repeated:
    r"""Trains again, each process from where it began to where the next one did.

    Args:
      request: spec and plan of the certificate, with the runtime settings that were recorded.
      secret: what the run's randomness follows from.
      workdir: an empty folder.
    Raises:
      PrivacyError, OSError: as the training itself.
    """
    (workdir / REQUEST).write_text(request.model_dump_json())
    descriptor = os.open(workdir / NOISE_KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret)
    ends = [step for _, step in recorded.processes[1:]]
    for place, (start, _) in enumerate(recorded.processes):
        end = ends[place] if place < len(ends) else None
        try:
            run_request(workdir, lambda end=end: end is not None and _latest(workdir) >= end, report, start)
        except TrainingStopped:
            continue
    (workdir / NOISE_KEY).unlink()
    own = read_releases((workdir / RELEASES).read_text()).releases
    same, departed = _compared(recorded.releases, own)
    return Repeated(same, len(recorded.releases), departed, hashlib.sha256((workdir / MODEL).read_bytes()).hexdigest())


def _latest(workdir: Path) -> int:
    lines = (workdir / RELEASES).read_text().splitlines()
    return max((int(line.split(" ")[2]) for line in lines if line.startswith("release ")), default=0)


def _compared(first: tuple[Release, ...], second: tuple[Release, ...]) -> tuple[int, tuple[int, int] | None]:
    for place, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return place, one[:2]
    shorter = min(len(first), len(second))
    left = next(_rest(first, second, shorter), None)
    return shorter, None if left is None else left[:2]


def _rest(first: tuple[Release, ...], second: tuple[Release, ...], shorter: int) -> Iterator[Release]:
    yield from (*first[shorter:], *second[shorter:])
