r"""Runs of other kinds: users as units, several processes, half precision, dropout, reconstruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.data_sets import data_sets
from zetadp.mechanisms import ComplexGaussian, Gaussian, InvalidParameter, NoiseSource
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine import ClippedGradients, ClippedSum, torch_seed
from zetadp.trainer.engine.metrics import reconstruction_metrics
from zetadp.trainer.engine.torch_seed import seed_torch
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.report import CheckpointWritten, Metrics, RunReport, TrainingEvent

PHANTOMS = {"kind": "mri_phantoms", "patients": 10, "test_patients": 3, "slices": 2, "resolution": 8, "seed": 1}
PATIENTS = {"adjacency": "add_remove", "unit": "patient", "delta": 1e-3, "noise_multiplier": 1.0}
SLICES = PATIENTS | {"unit": "slice"}


def _network(numbers: str, *layers: dict[str, Any]) -> dict[str, Any]:
    head = "magnitude" if numbers == "complex" else "none"
    return {"kind": "sequential", "numbers": numbers, "layers": [*layers, {"kind": "linear", "outputs": 4}], "head": head}


CONVOLUTION = {"kind": "convolution", "outputs": 4, "kernel": 3, "stride": 2}
FLATTEN = {"kind": "flatten"}


def _spec(**changes: Any) -> ZetaDpSgd:
    document: dict[str, Any] = {
        "data": PHANTOMS,
        "model": _network("complex", CONVOLUTION, {"kind": "activation", "name": "crelu"}, FLATTEN),
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
        "privacy": PATIENTS,
        "records_per_user": 5,
        "clipping_bound": 0.1,
        "expected_batch_size": 4,
        "steps": 4,
        "reproducible": True,
        "seed": 4,
    }
    return ZetaDpSgd.model_validate({name: value for name, value in (document | changes).items() if value is not None})


def _train(
    spec: ZetaDpSgd, workdir: Path, events: list[TrainingEvent] | None = None, stop: Callable[[], bool] = lambda: False, **runtime: Any
) -> RunReport:
    settings = RuntimeSpec(**({"device": "cpu", "threads": 1, "checkpoint_seconds": 0.0} | runtime))
    told: list[TrainingEvent] = [] if events is None else events
    return load_train(spec)(spec, spec.plan(), settings, workdir, report=told.append, should_stop=stop)


def _model(workdir: Path) -> bytes:
    return (workdir / "artifacts" / "model.safetensors").read_bytes()


def _moves(spec: ZetaDpSgd, workdir: Path, **runtime: Any) -> list[float]:
    """How far one unit less moves the sum, over all units of all samples of a run."""
    moves: list[float] = []
    original = ClippedGradients.sum

    def with_and_without(self: ClippedGradients, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        clipped = original(self, parameters, units, bound)
        for left_out in range(len(units)):
            fewer = torch.cat((units[:left_out], units[left_out + 1 :]))
            moves.append((clipped.total.double() - original(self, parameters, fewer, bound).total.double()).norm().item())
        return clipped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClippedGradients, "sum", with_and_without)
        _train(spec, workdir, **runtime)
    return moves


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_a_user_with_all_records_moves_the_sum_by_at_most_the_bound(tmp_path: Path, clipping: str) -> None:
    moves = _moves(_spec(clipping={"kind": clipping}), tmp_path)
    assert len(moves) > 8
    assert 0.99 * 0.1 < max(moves) <= 0.1


def test_a_users_records_beyond_the_bound_are_not_used(tmp_path: Path) -> None:
    # Eight slices a patient: a bound of 8 and a larger one are the same run, a smaller one isn't.
    for records in (5, 8, 100):
        _train(_spec(records_per_user=records), tmp_path / str(records))
    assert _model(tmp_path / "8") != _model(tmp_path / "5")
    report = _train(_spec(records_per_user=8), tmp_path / "again")
    assert (report.training_records, report.training_units) == (80, 10)


@pytest.mark.parametrize(("numbers", "activation"), [("real_pairs", "relu"), ("complex", "crelu")])
def test_half_precision_keeps_the_bound(tmp_path: Path, numbers: str, activation: str) -> None:
    layers = (CONVOLUTION, {"kind": "activation", "name": activation}, FLATTEN)
    spec = _spec(model=_network(numbers, *layers), privacy=SLICES, records_per_user=None)
    moves = _moves(spec, tmp_path / "half", precision="bfloat16")
    assert 0.99 * 0.1 < max(moves) <= 0.1
    _train(spec, tmp_path / "single")
    assert _model(tmp_path / "half") != _model(tmp_path / "single")


def test_half_precision_is_refused_for_native_complex_layers_before_anything_is_told(tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    with pytest.raises(InvalidParameter, match=r"runtime\.precision must be 'float32' for this network, got 'complex parameters in half"):
        _train(_spec(model=_network("complex", FLATTEN)), tmp_path, events, precision="bfloat16")
    assert events == []


DROPOUT = _network("complex", FLATTEN, {"kind": "dropout", "probability": 0.5})


def test_masks_of_dropout_are_reproducible_and_leave_torchs_own_generator_alone(tmp_path: Path) -> None:
    spec = _spec(model=DROPOUT)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    _train(spec, tmp_path / "whole")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    events: list[TrainingEvent] = []
    with pytest.raises(TrainingStopped):
        _train(spec, tmp_path / "parts", events, lambda: any(isinstance(event, CheckpointWritten) for event in events))
    _train(spec, tmp_path / "parts")
    assert _model(tmp_path / "parts") == _model(tmp_path / "whole")


def test_masks_of_a_private_run_do_not_come_from_a_known_seed(tmp_path: Path) -> None:
    # Every unit in every sample and hardly any noise: what differs between two runs is their masks and initial weights.
    seeds: list[int] = []

    def watched(device: torch.device, seed: int) -> None:
        seeds.append(seed)
        seed_torch(device, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_seed, "seed_torch", watched)
        for name in ("a", "b"):
            _train(_spec(model=DROPOUT, reproducible=False, seed=None), tmp_path / name)
    large = [seed for seed in seeds if seed > 2**32]
    # Four steps each; one of 2^21 such seeds would be smaller.
    assert len(large) == len(set(large)) == 8


@pytest.mark.slow
def test_a_reconstruction_tells_its_own_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_sets(monkeypatch, "mri_brain")
    unet = {
        "kind": "complex_unet", "channels": 2, "pools": 1, "activation": "crelu", "norm_groups": None, "dropout": 0.0, "residual": True,
    }  # fmt: skip
    data = {"kind": "mri_reconstruction", "folder": "mri_brain", "size": 32, "split_seed": 0, "test_fraction": 0.2}
    public = {"kind": "public_held_out"}
    spec = _spec(data=data, model=unet, privacy=SLICES, records_per_user=None, evaluation=public, steps=1)
    report = _train(spec, tmp_path)
    assert report.metrics is not None
    given = spec.data.read()
    expected = reconstruction_metrics(given.test_features, given.test_targets)
    assert set(report.metrics) == {"nmse", "psnr", "ssim", "nmse_of_input", "psnr_of_input", "ssim_of_input"}
    assert {name: report.metrics[f"{name}_of_input"] for name in ("nmse", "psnr", "ssim")} == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_two_processes_train_one_model_and_publish_once(tmp_path: Path) -> None:
    spec, events = _spec(evaluation={"kind": "public_held_out"}, steps=3), list[TrainingEvent]()
    stds: list[float] = []
    original = ComplexGaussian.release

    def release(self: ComplexGaussian, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        stds.append(self.noise_scale)
        return original(self, value, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ComplexGaussian, "release", release)
        report = _train(spec, tmp_path, events, processes=2)
    assert report.event == spec.plan().event
    assert [event.step for event in events if isinstance(event, Metrics)] == [1, 2, 3]
    # The first process adds the whole noise, once; the other is looked at too, and adds none.
    assert stds == [spec.plan().noise_std] * 3
    assert report.noise_test is not None
    assert (report.noise_test.status, report.noise_test.numbers) == ("consistent", 3 * report.parameters)


def test_private_evaluation_of_a_real_network_uses_noise_of_its_own(tmp_path: Path) -> None:
    layers = (CONVOLUTION, {"kind": "activation", "name": "relu"}, FLATTEN)
    counts = {"kind": "private_accuracy", "noise_std": 3.0, "every_steps": 2}
    spec = _spec(model=_network("real_pairs", *layers), privacy=SLICES, records_per_user=None, evaluation=counts)
    stds: list[float] = []
    original = Gaussian.release

    def release(self: Gaussian, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        stds.append(self.std)
        return original(self, value, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gaussian, "release", release)
        _train(spec, tmp_path)
    # That of training is rounded up to float32.
    assert stds == pytest.approx([0.1, 0.1, 3.0, 0.1, 0.1, 3.0], rel=2.0**-23)
    assert min(stds) >= 0.1
