r"""Small jobs of autoencoders on a table of users with five rows each, and a watch over what they release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from zetadp.mechanisms import Mechanism, NoiseSource
from zetadp.trainer import RuntimeSpec, TrainingSpec, load_train
from zetadp.trainer.data import ROOT_VARIABLE
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.report import CheckpointWritten, RunReport, TrainingEvent

USERS, ROWS_OF_USER, FEATURES = 12, 5, 3
ROWS = USERS * ROWS_OF_USER
RUNTIME = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=0.0)
DIGITS = {"kind": "digits_images", "split_seed": 0, "test_fraction": 0.2}


def table_under(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Writes the table and as many held-out rows; users' rows come in turn."""
    folder = root / "data" / "set"
    folder.mkdir(parents=True)
    monkeypatch.setenv(ROOT_VARIABLE, str(root / "data"))
    rng = np.random.default_rng(1)
    for name in ("rows", "held_out"):
        lines = [f"{row % USERS},{','.join(f'{value:.6f}' for value in rng.uniform(0.0, 1.0, FEATURES))}" for row in range(ROWS)]
        (folder / f"{name}.csv").write_text("\n".join(["who,a,b,c", *lines]) + "\n", encoding="ascii")
    return {
        "kind": "table",
        "folder": "set",
        "file": "rows.csv",
        "columns": [{"name": name, "lower": 0.0, "upper": 1.0} for name in "abc"],
        "outside": "refuse",
        "user_column": "who",
        "held_out": {"kind": "file", "file": "held_out.csv"},
    }


def run(
    spec: TrainingSpec,
    workdir: Path,
    events: list[TrainingEvent] | None = None,
    *,
    report: Callable[[TrainingEvent], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    plan: Any = None,
    runtime: RuntimeSpec = RUNTIME,
) -> RunReport:
    """Trains in this process; ``events`` receives what is told."""
    found: list[TrainingEvent] = [] if events is None else events
    asked: Any = spec
    return load_train(spec)(asked, plan or spec.plan(), runtime, workdir, report=report or found.append, should_stop=should_stop)


def model(workdir: Path) -> dict[str, Tensor]:
    """The weights that a run wrote."""
    return load_file(workdir / "artifacts" / "model.safetensors")


def equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """To the bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Watch:
    """Every release through a kind of mechanism: what went in and what came out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Mechanism]) -> None:
        self.mechanisms: list[Mechanism] = []
        self.values: list[Tensor] = []
        self.released: list[Tensor] = []
        original = kind.release

        def release(mechanism: Mechanism, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
            out = original(mechanism, value, source)
            self.mechanisms.append(mechanism)
            self.values.append(value.clone())
            self.released.append(out.clone())
            return out

        monkeypatch.setattr(kind, "release", release)


class Killed(BaseException):
    """Stands for the end of the process."""


def kill_at(step: int) -> Callable[[TrainingEvent], None]:
    """A listener at which the process ends when the checkpoint of ``step`` is written."""

    def report(event: TrainingEvent) -> None:
        if isinstance(event, CheckpointWritten) and event.step == step:
            raise Killed

    return report


def spof(data: dict[str, Any], *, privacy: dict[str, Any] | None = None, method: dict[str, Any] | None = None, **changes: Any) -> Spof:
    """A small SPOF job with a seed."""
    asked = {"adjacency": "replace_one", "unit": "record", "delta": 1e-5, "epsilon": 2.0} if privacy is None else privacy
    document = {
        "algorithm": "spof",
        "data": data,
        "encoders": 2,
        "hidden": 2,
        "optimizer": {"kind": "adam", "learning_rate": 0.02},
        "method": {"kind": "local_release", "mechanism": "local_laplace", "privacy": asked} | (method or {}),
        "batch_size": 16,
        "steps": 12,
        "reproducible": True,
        "seed": 7,
    }
    return Spof.model_validate(document | changes)


def for_users(**changes: Any) -> dict[str, Any]:
    """A guarantee for users."""
    return {"adjacency": "replace_one", "unit": "user", "delta": 1e-5, "epsilon": 2.0} | changes
