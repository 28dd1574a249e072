r"""A whole step on torch's meta device, which has shapes and no numbers: nothing moves between devices, and little is waited for.

It stands in for an accelerator where there is none. A mode below torch's operations answers where a step looks at a number, and counts
that: on an accelerator each look waits for all that was asked of it before.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.networks import CASES, Case
from benchmarks.training import private_step
from zetadp.mechanisms import ComplexGaussian, Gaussian, RandomStream, Sensitivity
from zetadp.trainer import ExecutionPlan
from zetadp.trainer.engine import (
    Alone,
    ClippedGradients,
    FreshRandomness,
    NoiseWatch,
    PrivateLoop,
    Problem,
    Site,
    TrainingState,
    initial_state,
    update,
)
from zetadp.trainer.engine.gradients import clipping, sample_watch
from zetadp.trainer.layers import ComplexLinear
from zetadp.trainer.layers.heads import magnitude
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.sampling import PoissonSampling

META = torch.device("meta")
UNITS = 12
L2 = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")


@final
class Looks(TorchDispatchMode):
    """Counts looks at numbers of the meta device, and operations whose tensors are on two devices."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.mixed: set[str] = set()

    def __torch_dispatch__(self, func: Any, _types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        name, given = func._schema.name, dict(kwargs or {})
        tensors = [one for one in tree_leaves((args, given)) if isinstance(one, Tensor)]
        if name == "aten::_local_scalar_dense" and tensors[0].device == META:
            self.waits["number"] += 1
            return tensors[0].dtype == torch.bool or 0.0
        if name == "aten::nonzero" and tensors[0].device == META:
            self.waits["places"] += 1
            return torch.empty(0, tensors[0].dim(), dtype=torch.int64, device=META)
        if name == "aten::_to_copy" and tensors[0].device == META and given.get("device", META) != META:
            self.waits["numbers"] += 1
            # Of places: there are none.
            return torch.full(tensors[0].shape, -1, dtype=given.get("dtype") or tensors[0].dtype)
        # Numbers without axes go with any device.
        if len({one.device.type for one in tensors if one.dim()}) > 1:
            self.mixed.add(name)
        return func(*args, **given)


def real() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(UNITS, 20)


def convolutional() -> tuple[nn.Module, Tensor]:
    found = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return found, torch.randn(UNITS, 1, 8, 8)


@final
class Magnitude(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return magnitude(z)


def complex_valued() -> tuple[nn.Module, Tensor]:
    found = nn.Sequential(ComplexLinear(20, 3, RandomStream.from_seed(1, "network")), Magnitude())
    return found, torch.randn(UNITS, 20, dtype=torch.complex64)


def loop_on_meta(made: Callable[[], tuple[nn.Module, Tensor]], monkeypatch: pytest.MonkeyPatch) -> tuple[PrivateLoop, TrainingState]:
    """Planned and probed on the processor, with everything that a step reads on the meta device afterwards."""

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    network, features = made()
    problem = Problem(network, losses, features, torch.arange(UNITS) % 3, None)
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), 64)
    network.to(META)
    clipped.problem = replace(problem, features=features.to(META), targets=problem.targets.to(META))
    padding, squares = clipped._padding, clipped._padding.square
    square = None if squares is None else squares.to(META)
    clipped._padding = replace(padding, features=padding.features.to(META), target=padding.target.to(META), square=square)
    clipped._squares = None if clipped._squares is None else clipped._squares.to(META)
    # torch knows no automatic precision there.
    monkeypatch.setattr(clipping, "_single_precision", lambda _device: nullcontext())
    mechanism = (ComplexGaussian if features.is_complex() else Gaussian)(std=2.0, sensitivity=L2)
    sampling = PoissonSampling(records=UNITS, expected_batch_size=UNITS // 2)
    plan = ExecutionPlan(sampling=sampling, clipping=FlatClipping(bound=1.0), mechanism=mechanism, steps=9, delta=1e-5)
    sgd = Sgd(learning_rate=0.1)

    def optimized(state: dict[str, Tensor], at: Tensor, along: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        return update(sgd, state, at, along, step, plan.steps)

    site = Site(torch.arange(UNITS, device=META), FreshRandomness())
    found = PrivateLoop(clipped, clipped.layout, plan, (site,), optimized, Alone(), watch=NoiseWatch(mechanism))
    parameters = torch.zeros(clipped.layout.coordinates, device=META)
    return found, TrainingState(0, parameters, initial_state(sgd, parameters), 1.0)


@pytest.mark.parametrize("made", [real, convolutional, complex_valued])
def test_a_step_moves_nothing_between_devices_and_waits_once(
    made: Callable[[], tuple[nn.Module, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, state = loop_on_meta(made, monkeypatch)
    monkeypatch.setattr(sample_watch.SampleWatch, "_add", lambda _self: None)  # indices, which have no numbers there
    # Which numbers the units have, and who there is, is read once.
    vars(loop)["samples"] = sample_watch.SampleWatch(loop.plan.sampling, UNITS)
    loop.samples.see(0, 1, torch.arange(UNITS), lambda: torch.arange(UNITS))
    with Looks() as looks:
        for _ in range(3):
            state = loop.step(state)
    assert state.parameters.device == META
    assert looks.mixed == set()
    assert looks.waits == {"number": 3}  # whether norms are finite


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} {case.batch}")
def test_a_step_waits_for_the_accelerator_once(case: Case) -> None:
    step = private_step(case, 64, 64, torch.device("cuda"))
    for _ in range(3):
        step()
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len([one for one in waits if "synchronizing CUDA operation" in str(one.message)]) == 1


def test_an_operation_across_devices_is_found() -> None:
    with Looks() as looks, pytest.raises(RuntimeError):
        _ = torch.ones(3, device=META) + torch.ones(3)
    assert looks.mixed == {"aten::add"}
