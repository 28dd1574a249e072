r"""Runs whose clipping bound follows a schedule: each step's bound, and the noise of its gradient, are those of its number."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.execution_plan import ScheduledClipping
from zetadp.trainer.specs.report import RunReport

RUNTIME = RuntimeSpec(microbatch_size=16, checkpoint_seconds=0.0, threads=1)
STEPS, LOT = 12, 100
SCHEDULED = {"kind": "flat", "schedule": {"kind": "cosine", "final_share": 0.1}}
SAMPLERS: dict[str, dict[str, Any]] = {
    "allocation": {"kind": "random_allocation"},
    "cyclic": {"kind": "cyclic_poisson", "groups": 3, "seed": 2},
}


def _spec(spec_json: dict[str, Any], **changes: Any) -> ZetaDpSgd:
    return ZetaDpSgd.model_validate(spec_json | {"clipping": SCHEDULED, "expected_batch_size": LOT, "steps": STEPS} | changes)


def _run(spec: ZetaDpSgd, folder: Path, should_stop: Callable[[], bool] = lambda: False) -> RunReport | None:
    """None where it stopped."""
    try:
        return load_train(spec)(spec, spec.plan(), RUNTIME, folder, report=lambda _event: None, should_stop=should_stop)
    except TrainingStopped:
        return None


class _Bounds:
    """The bounds that samples are clipped to, also before training, those of the releases, and the gradients that the optimizer gets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clipped: list[float] = []
        self.released: list[float] = []
        self.gradients: list[Tensor] = []
        summed, gradient = ClippedGradients.sum, releasing.gradient

        def seen_sum(clipped: ClippedGradients, parameters: Any, units: Tensor, bound: float) -> Any:
            self.clipped.append(bound)
            return summed(clipped, parameters, units, bound)

        def seen_gradient(*given: Any) -> Any:
            found = gradient(*given)
            self.released.append(given[3])
            self.gradients.append(found.values.clone())
            return found

        patch.setattr(ClippedGradients, "sum", seen_sum)
        patch.setattr(releasing, "gradient", seen_gradient)


@pytest.mark.parametrize("name", ["allocation", "cyclic"])
def test_every_step_is_clipped_to_the_bound_of_its_number_also_after_steps_that_were_lost(
    name: str, spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = {"kind": "banded_inverse", "bands": 3} if name == "cyclic" else {"kind": "independent"}
    spec = _spec(spec_json | {"reproducible": False, "seed": None}, sampling=SAMPLERS[name], noise=noise)
    plan, seen = spec.plan(), _Bounds(monkeypatch)
    _run(spec, tmp_path, lambda: len(seen.gradients) >= 3)
    _run(spec, tmp_path)
    assert isinstance(plan.clipping, ScheduledClipping)
    # Of an interrupted epoch, seven steps, the rest releases nothing.
    steps = [step for step in range(1, STEPS + 1) if name == "cyclic" or step not in range(4, 8)]
    expected = [plan.clipping.bound_in(step) for step in steps]
    assert seen.released == expected
    assert [bound for bound in dict.fromkeys(seen.clipped) if bound in expected] == expected
    assert len(set(expected)) == len(expected)


def test_the_noise_of_a_gradient_is_in_proportion_to_the_steps_bound(
    spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So much noise that the rest of a gradient doesn't count.
    privacy = spec_json["privacy"] | {"noise_multiplier": 1000.0}
    spec, seen = _spec(spec_json, privacy=privacy), _Bounds(monkeypatch)
    report = _run(spec, tmp_path)
    assert report is not None
    clipping = spec.plan().clipping
    assert isinstance(clipping, ScheduledClipping)
    numbers = len(seen.gradients[0])
    for step, values in enumerate(seen.gradients, 1):
        expected = 1000.0 * clipping.bound_in(step) / LOT
        assert float(values.double().square().mean().sqrt()) == pytest.approx(expected, rel=6.0 / math.sqrt(2.0 * numbers))
    assert report.noise_test is not None
    assert report.noise_test.status == "consistent"
