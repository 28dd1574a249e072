r"""A small real job, and one thread: the tests share the machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from zetadp import accountants
from zetadp.trainer import ZetaDpSgd

_profile_once = cache(accountants.profile)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def each_event_is_accounted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The same small job runs in most tests, and accounting for it takes longer than training it.
    monkeypatch.setattr(accountants, "profile", _profile_once)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose sockets' paths are short enough."""
    folder = Path(tempfile.mkdtemp(prefix="zetadp-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # processes that were killed may still write


@pytest.fixture
def spec_json() -> dict[str, Any]:
    return {
        "algorithm": "zeta_dp_sgd",
        "data": {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2},
        "model": {"kind": "complex_mlp", "hidden": [8], "activation": "cardioid", "head": "magnitude"},
        "optimizer": {"kind": "adam", "learning_rate": 0.02},
        "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 2.0},
        "clipping_bound": 1.0,
        "expected_batch_size": 48,
        "steps": 12,
        "reproducible": True,
        "seed": 7,
    }


@pytest.fixture
def spec(spec_json: dict[str, Any]) -> ZetaDpSgd:
    return ZetaDpSgd.model_validate(spec_json)
