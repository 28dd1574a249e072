r"""Runs whose model is a mean over the steps, or whose optimizer knows the noise: whole, in this process."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine.network_run import AVERAGE, Descent
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.descent import ExponentialAveraging, Sgd
from zetadp.trainer.specs.report import CheckpointWritten, Metrics, TrainingEvent

RUNTIME = RuntimeSpec(microbatch_size=16, checkpoint_seconds=0.0, threads=1)
CORRECTED = {"kind": "corrected_adam", "learning_rate": 0.02, "floor": 1e-4}


def _run(
    spec: ZetaDpSgd, workdir: Path, events: list[TrainingEvent], should_stop: Callable[[], bool] = lambda: False
) -> tuple[dict[str, Tensor], list[Metrics]]:
    """The model and what was told of held-out records."""
    load_train(spec)(spec, spec.plan(), RUNTIME, workdir, report=events.append, should_stop=should_stop)
    with safe_open(workdir / "artifacts" / "model.safetensors", "pt") as model:
        names: list[str] = list(model.keys())
        tensors = {name: model.get_tensor(name) for name in names}
    return tensors, [event for event in events if isinstance(event, Metrics)]


def test_a_resumed_run_with_an_average_equals_an_uninterrupted_one(spec_json: dict[str, Any], tmp_path: Path) -> None:
    changes = {"averaging": {"kind": "exponential", "decay": 0.5}, "optimizer": CORRECTED}
    spec = ZetaDpSgd.model_validate(spec_json | changes)
    whole, _ = _run(spec, tmp_path / "whole", [])
    events: list[TrainingEvent] = []
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path / "parts", events, lambda: CheckpointWritten(step=4) in events)
    parts, _ = _run(spec, tmp_path / "parts", [])
    assert all(torch.equal(parts[name], value) for name, value in whole.items())


def test_the_model_and_its_metrics_are_the_average_which_steps_dont_see(spec_json: dict[str, Any], tmp_path: Path) -> None:
    def ran(name: str, **changes: Any) -> tuple[dict[str, Tensor], list[Metrics]]:
        spec = ZetaDpSgd.model_validate({**spec_json, "evaluation": {"kind": "public_held_out"}, **changes})
        return _run(spec, tmp_path / name, [])

    last, told = ran("last")
    # A mean that forgets everything at once is the last step's parameters.
    nearly, told_nearly = ran("nearly", averaging={"kind": "exponential", "decay": 1e-12})
    assert all(torch.allclose(nearly[name], value, rtol=1e-6, atol=1e-9) for name, value in last.items())
    assert [event.metrics for event in told_nearly] == [event.metrics for event in told]
    mean, told_mean = ran("mean", averaging={"kind": "exponential", "decay": 0.9})
    assert not any(torch.allclose(mean[name], value, rtol=1e-2) for name, value in last.items())
    assert told_mean[-1].metrics != told[-1].metrics


def test_an_average_weighs_each_step_by_what_later_ones_leave_of_it() -> None:
    averaging, generator = ExponentialAveraging(decay=0.4), torch.Generator().manual_seed(4)
    descent = Descent(Sgd(learning_rate=0.1), 9, 0.0, averaging)
    seen = [torch.ones(12)]
    state = descent.initial(seen[0])
    for step in range(1, 10):
        moved, state = descent.updated(state, seen[-1], torch.randn(12, generator=generator), step)
        seen.append(moved)
    kept = [0.0, *(min(0.4, (1 + step) / (10 + step)) for step in range(1, 10))]
    weights = [(1.0 - kept[step]) * math.prod(kept[step + 1 :]) for step in range(10)]
    assert sum(weights) == pytest.approx(1.0)
    expected = torch.tensor(weights) @ torch.stack(seen)
    assert torch.allclose(state[AVERAGE], expected, rtol=1e-6)


def test_the_optimizer_is_told_the_noise_of_a_step(spec_json: dict[str, Any]) -> None:
    spec = ZetaDpSgd.model_validate(spec_json | {"optimizer": CORRECTED})
    assert Descent.of(spec, spec.plan()).noise_std == pytest.approx(2.0 / 48.0)
    federated = FederatedZetaDpSgd.example()
    plan = federated.plan()
    # Four nodes' sums, each with its whole noise, over four times one node's batch.
    assert Descent.of(federated, plan).noise_std == pytest.approx(plan.noise_std * 2.0 / (60.0 * 4.0))


@pytest.mark.parametrize(
    "clipping",
    [
        {"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.05},
        {"kind": "flat", "schedule": {"kind": "cosine", "final_share": 0.5}},
    ],
    ids=["adaptive", "scheduled"],
)
def test_noise_that_changes_from_step_to_step_is_refused(clipping: dict[str, Any], spec_json: dict[str, Any]) -> None:
    spec = ZetaDpSgd.model_validate(spec_json | {"optimizer": CORRECTED, "clipping": clipping})
    with pytest.raises(InvalidParameter, match="clipping must be flat or per_layer without a schedule for corrected_adam"):
        spec.check_request()
