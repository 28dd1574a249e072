r"""Variants of a record share its one clipped gradient: what they are, what a unit's gradient is, and a whole run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine import loop
from zetadp.trainer.engine.gradients.augmented import varied, with_variants
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.torch_seed import torch_seeded
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.models.losses import cross_entropies
from zetadp.trainer.specs.augmentation import Augmentation
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.report import CheckpointWritten, TrainingEvent

CPU = torch.device("cpu")
EVERYTHING = Augmentation(copies=3, shift=2, flip=True, phase=True)


def records(count: int) -> Tensor:
    return torch.randn(count, 2, 6, 7, dtype=torch.complex64, generator=torch.Generator().manual_seed(3))


def test_a_variant_is_its_record_moved_mirrored_and_turned() -> None:
    found = records(40)
    with torch_seeded(CPU, 5):
        variants = varied(found, EVERYTHING)
    seen = set[tuple[int, int, bool]]()
    for record, variant in zip(found.numpy(), variants.numpy(), strict=True):
        padded = np.pad(record, ((0, 0), (2, 2), (2, 2)), mode="reflect")
        moved = {(dy, dx, False): padded[:, 2 + dy : 8 + dy, 2 + dx : 9 + dx] for dy in range(-2, 3) for dx in range(-2, 3)}
        moved |= {(dy, dx, True): one[:, :, ::-1] for (dy, dx, _), one in moved.items()}
        turned = {how: (variant / one).ravel() for how, one in moved.items()}
        found_as = [how for how, ratio in turned.items() if np.allclose(ratio, ratio[0], rtol=1e-4)]
        assert len(found_as) == 1
        assert abs(turned[found_as[0]][0]) == pytest.approx(1.0, abs=1e-5)
        seen.update(found_as)
    assert len(seen) > 20


def test_a_variant_is_a_function_of_its_own_record() -> None:
    found = records(6)
    others = found.clone()
    others[2] = 7.0
    with torch_seeded(CPU, 5):
        first = varied(found, EVERYTHING)
    with torch_seeded(CPU, 5):
        second = varied(others, EVERYTHING)
    rest = torch.arange(6) != 2
    assert torch.equal(first[rest], second[rest])
    assert torch.equal(second[2].abs(), others[2].abs())


def real_problem(members: Tensor | None = None) -> Problem:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 4 * 4, 4))
    return Problem(network, cross_entropies, torch.randn(10, 1, 6, 6), torch.arange(10) % 4, members)


@pytest.mark.parametrize("members", [None, torch.tensor([[0, 1], [2, 3], [4, -1], [5, 6]])], ids=["records", "users"])
def test_a_units_gradient_is_the_mean_over_variants_clipped_once(members: Tensor | None) -> None:
    plain, augmentation = real_problem(members), Augmentation(copies=4, shift=1, flip=True)
    problem = with_variants(plain, augmentation, nn.Sequential())
    assert problem.units == plain.units
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), 64)
    parameters, units = (
        clipped.layout.unflatten(clipped.layout.flatten(dict(plain.network.named_parameters()))),
        torch.tensor([3, 0, 2, 1]),
    )
    with torch_seeded(CPU, 9):
        own = clipped.sum(parameters, units, 1e6)
    # The same draws, in the order in which rows are asked for: unit by unit, a short user's first record in place of what is missing, then
    # those of the first unit, in whose places is padding.
    filled = torch.cat((units, units.new_zeros(clipped._sizes.of_microbatch(len(units) + 1) - len(units))))
    rows = problem.members[filled]  # pyright: ignore[reportOptionalSubscript]
    rows = torch.where(rows < 0, rows[:, :1], rows)
    with torch_seeded(CPU, 9):
        features = problem.features.index_select(0, rows.reshape(-1))
    losses = cross_entropies(plain.network(features), plain.targets[rows.reshape(-1) // 4]).reshape(rows.shape)
    real = problem.members[filled] >= 0  # pyright: ignore[reportOptionalSubscript]
    whole = torch.zeros(clipped.layout.coordinates)
    norms: list[float] = []
    for unit in range(len(units)):
        loss = losses[unit][real[unit]].sum() / 4.0
        slopes = torch.autograd.grad(loss, list(plain.network.parameters()), retain_graph=True)
        one = clipped.layout.flatten(dict(zip(dict(plain.network.named_parameters()), slopes, strict=True)))
        whole += one
        norms.append(float(one.norm()))
    assert own.norms.tolist() == pytest.approx(norms, rel=1e-4)
    assert torch.allclose(own.total.float(), whole, rtol=1e-3, atol=1e-5)
    assert float(clipped.sum(parameters, units[:1], 1e-3).total.norm()) <= 1e-3


@pytest.mark.parametrize("draws", ["variants", "masks"])
def test_a_unit_that_isnt_finite_leaves_the_others_their_draws(draws: str) -> None:
    torch.manual_seed(0)
    layers = [nn.Dropout(0.5)] if draws == "masks" else []
    network = nn.Sequential(nn.Flatten(), *layers, nn.Linear(36, 4))
    features = torch.randn(10, 1, 6, 6)
    problem = Problem(network, cross_entropies, features, torch.arange(10) % 4, None)

    def of(features: Tensor) -> Problem:
        changed = Problem(network, cross_entropies, features, problem.targets, None)
        return changed if draws == "masks" else with_variants(changed, Augmentation(copies=3, shift=1), nn.Sequential())

    def norms(features: Tensor) -> list[float]:
        clipped = ClippedGradients(of(features), FlatClipping(bound=1.0), 64)
        parameters = {name: value.detach() for name, value in network.named_parameters()}
        with torch_seeded(CPU, 4):
            return clipped.sum(parameters, torch.tensor([2, 7, 5]), 1.0).norms.tolist()

    broken = features.clone()
    broken[7] = 3e30
    first, _, last = norms(features)
    assert norms(broken) == [first, last]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_records_that_arent_finite_are_refused_behind_their_variants_too(value: float) -> None:
    plain = real_problem()
    features = plain.features.clone()
    features[3, 0, 2, 2] = value
    broken = Problem(plain.network, plain.losses, features, plain.targets, None)
    for problem in (lambda: broken, lambda: with_variants(broken, Augmentation(copies=2, flip=True), nn.Sequential())):
        with pytest.raises(InvalidParameter, match="features must be finite everywhere"):
            ClippedGradients(problem(), FlatClipping(bound=1.0), 64)


def test_a_unit_that_is_finite_in_some_variants_contributes_as_often_beside_one_that_never_is() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    features = torch.ones(3, 1, 4, 4)
    features[0, 0, 1, 1] = 8e18  # its square overflows where a reflection shows it twice
    features[1] = 3e19
    problem = with_variants(
        Problem(network, cross_entropies, features, torch.tensor([0, 1, 2]), None), Augmentation(copies=2, shift=1), nn.Sequential()
    )
    clipped = ClippedGradients(problem, FlatClipping(bound=1.0), 64)
    parameters = {name: value.detach() for name, value in network.named_parameters()}

    def share(units: list[int], offset: int) -> float:
        finite = 0
        for seed in range(600):
            with torch_seeded(CPU, 10_000 * offset + seed):
                finite += len(clipped.sum(parameters, torch.tensor(units), 1.0).norms)
        return finite / 600

    alone, beside = share([0], 1), share([0, 1], 2)
    assert 0.85 < alone < 0.97
    assert abs(alone - beside) < 4.0 * (2.0 * alone * (1.0 - alone) / 600) ** 0.5


RECORDS = {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 1.0}
SPEC = {
    "algorithm": "zeta_dp_sgd",
    "data": {"kind": "digits", "split_seed": 0, "test_fraction": 0.2},
    "model": {
        "kind": "sequential",
        "numbers": "real",
        "layers": [{"kind": "convolution", "outputs": 4, "kernel": 3}, {"kind": "flatten"}, {"kind": "linear", "outputs": 10}],
        "head": "none",
    },
    "augmentation": {"copies": 2, "shift": 1},
    "optimizer": {"kind": "sgd", "learning_rate": 0.5},
    "privacy": {"adjacency": "add_remove", "unit": "image", "delta": 1e-4, "noise_multiplier": 1.0},
    "clipping_bound": 1.0,
    "expected_batch_size": 40,
    "steps": 6,
    "reproducible": True,
    "seed": 7,
}


def test_a_resumed_run_equals_an_uninterrupted_one_and_costs_what_a_plain_one_does(tmp_path: Path) -> None:
    spec, events = ZetaDpSgd.model_validate(SPEC), list[TrainingEvent]()
    runtime = RuntimeSpec(microbatch_size=16, checkpoint_seconds=0.0, threads=1)

    def ran(name: str, stops: bool = False) -> dict[str, Tensor]:
        def should_stop() -> bool:
            return stops and CheckpointWritten(step=3) in events

        load_train(spec)(spec, spec.plan(), runtime, tmp_path / name, report=events.append, should_stop=should_stop)
        with safe_open(tmp_path / name / "artifacts" / "model.safetensors", "pt") as model:
            names: list[str] = list(model.keys())
            return {name: model.get_tensor(name) for name in names}

    whole = ran("whole")
    events.clear()
    with pytest.raises(TrainingStopped):
        ran("parts", stops=True)
    assert all(torch.equal(value, whole[name]) for name, value in ran("parts").items())
    plain = ZetaDpSgd.model_validate({name: value for name, value in SPEC.items() if name != "augmentation"})
    assert plain.plan() == spec.plan()


def test_variants_of_a_run_without_a_seed_are_drawn_from_new_secret_bits_in_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def seeded(device: torch.device, seed: int) -> AbstractContextManager[None]:
        seeds.append(seed)
        return torch_seeded(device, seed)

    monkeypatch.setattr(loop, "torch_seeded", seeded)
    spec = ZetaDpSgd.model_validate({**SPEC, "reproducible": False, "seed": None})
    for name in ("one", "other"):
        torch.manual_seed(0)
        report = load_train(spec)(
            spec, spec.plan(), RuntimeSpec(threads=1), tmp_path / name, report=lambda _: None, should_stop=lambda: False
        )
        assert report.noise_test is not None
        assert report.noise_test.status == "consistent"
    assert len(seeds) == len(set(seeds)) == 12
    # Numbers of 53 bits, not of a step or a process.
    assert min(seeds) > 2**32


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["poisson", "fixed_size"])
def test_processes_that_share_a_sample_draw_variants_of_their_own(sampling: str, tmp_path: Path) -> None:
    spec = ZetaDpSgd.model_validate({**SPEC, "sampling": {"kind": sampling}, "steps": 3})
    runtime = RuntimeSpec(threads=1, processes=2, device="cpu")
    models: list[bytes] = []
    for name in ("one", "again"):
        report = load_train(spec)(spec, spec.plan(), runtime, tmp_path / name, report=lambda _: None, should_stop=lambda: False)
        assert report.noise_test is not None
        assert report.noise_test.status == "consistent"
        models.append((tmp_path / name / "artifacts" / "model.safetensors").read_bytes())
    assert models[0] == models[1]
    plain = ZetaDpSgd.model_validate({name: value for name, value in spec.model_dump(mode="json").items() if name != "augmentation"})
    load_train(plain)(plain, plain.plan(), runtime, tmp_path / "plain", report=lambda _: None, should_stop=lambda: False)
    assert models[0] != (tmp_path / "plain" / "artifacts" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augmentation": {"copies": 2, "phase": True}}, r"augmentation\.phase must be false for real records"),
        ({"augmentation": {"copies": 2, "shift": 8}}, r"augmentation\.shift must be < 8"),
        ({"data": {"kind": "digits_images", "split_seed": 0, "test_fraction": 0.2}, "privacy": RECORDS}, "absent for a reconstruction"),
    ],
)
def test_variants_that_the_records_dont_have_are_refused(changes: dict[str, Any], message: str) -> None:
    model = {**SPEC["model"], "layers": [{"kind": "flatten"}, {"kind": "linear", "outputs": 64 if "data" in changes else 10}]}
    spec = ZetaDpSgd.model_validate({**SPEC, "model": model, **changes})
    with pytest.raises(InvalidParameter, match=message):
        spec.plan()


def test_copies_that_wouldnt_differ_are_refused() -> None:
    with pytest.raises(ValidationError, match="the copies wouldn't differ"):
        Augmentation(copies=2)
