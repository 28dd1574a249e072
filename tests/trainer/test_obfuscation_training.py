"""Joint training: it learns, a broken run goes on as an unbroken one would, stops at once, and refuses what can't be trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.selection import thinned
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer import RuntimeSpec
from zetadp.trainer.algorithms.obfuscation.critic import CriticNetwork, adversarial_loss, critic_loss, faked
from zetadp.trainer.algorithms.obfuscation.preparation import Prepared
from zetadp.trainer.algorithms.obfuscation.train import train
from zetadp.trainer.algorithms.obfuscation.training import FlatWeights
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.data.base import DataSet
from zetadp.trainer.data.digits import Digits
from zetadp.trainer.engine import load_checkpoint
from zetadp.trainer.engine.requests import request_digest
from zetadp.trainer.errors import TrainingDiverged, TrainingStopped
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.obfuscation.methods import Critic, WeightClipping
from zetadp.trainer.specs.report import Metrics, Progress, RunReport, Stage, TrainingEvent

RUNTIME = RuntimeSpec(device="cpu", threads=1)
SOUND = {
    "kind": "noisy_rotation",
    "clipping_norm": 5.0,
    "queries": 2,
    "adversarial_weight": 0.0,
    "privacy": {"unit": "image", "adjacency": "replace_one", "delta": 1e-5, "noise_multiplier": 0.05},
}


def _spec(**changes: Any) -> Obfuscation:
    document = Obfuscation.example().model_dump(mode="json", exclude_none=True)
    return Obfuscation.model_validate(document | {"attacks": None, "reproducible": True, "seed": 5, "batch_size": 32} | changes)


def _run(
    spec: Obfuscation, workdir: Path, stop: Callable[[], bool] = lambda: False, events: list[TrainingEvent] | None = None
) -> RunReport:
    heard: list[TrainingEvent] = [] if events is None else events
    return train(spec, spec.plan(), RUNTIME, workdir, report=heard.append, should_stop=stop)


def _method(kind: str = "rotation", **changes: Any) -> dict[str, Any]:
    return {"kind": kind} | changes


def _prepared(spec: Obfuscation) -> Prepared:
    return Prepared.of(spec, spec.plan(), data_set_facts(spec.data), torch.device("cpu"), lambda: None)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("method", "least"),
    [
        pytest.param(_method(adversarial_weight=0.0), 0.75, marks=pytest.mark.slow),
        (_method(adversarial_weight=1.0), 0.6),
        pytest.param(_method(adversarial_weight=0.0, counterpart="synthetic"), 0.65, marks=pytest.mark.slow),
        pytest.param(_method("additional_layers"), 0.8, marks=pytest.mark.slow),
        pytest.param(_method("noisy", gamma=0.5), 0.65, marks=pytest.mark.slow),
    ],
)
def test_it_learns(method: dict[str, Any], least: float, tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    spec = _spec(method=method, steps=120, optimizer={"kind": "adam", "learning_rate": 0.01})
    report = _run(spec, tmp_path, events=events)
    assert report.metrics is not None
    assert report.metrics["accuracy"] > least  # chance is .1
    assert (report.held_out, report.steps_released, report.noise_std) == ("public", 120, 0.0)
    assert [event.metrics for event in events if isinstance(event, Metrics)][-1] == report.metrics
    assert any(isinstance(event, Progress) and event.step == 120 for event in events)


def test_the_model_file_holds_weights_and_statistics(tmp_path: Path) -> None:
    layers = {
        "encoder": [{"kind": "convolution", "outputs": 4, "kernel": 3, "padding": 1}],
        "processing": [
            {"kind": "convolution", "outputs": 4, "kernel": 3, "stride": 2, "bias": False},
            {"kind": "magnitude_norm"},
            {"kind": "delta"},
            {"kind": "flatten"},
        ],
    }
    spec = _spec(network={"kind": "custom"} | layers, steps=3)
    report = _run(spec, tmp_path)
    tensors = load_file(tmp_path / "artifacts/model.safetensors")
    moved = tensors["processing.1_magnitude_norm.running_square"]
    assert (moved != 1.0).all()
    assert sum(value.numel() for value in tensors.values()) == report.parameters + moved.numel()


@pytest.mark.parametrize(
    "changes",
    thinned(
        [
            {"method": _method(critic={"steps": 2})},
            {"method": _method(critic={"steps": 1, "constraint": {"kind": "weight_clipping"}}, counterpart="synthetic")},
            {"method": _method("additional_layers"), "optimizer": {"kind": "nadam", "learning_rate": 0.001}},
            {"method": SOUND, "evaluation": {"kind": "none"}},
        ],
        every=3,
    ),
)
def test_a_stopped_run_continues_to_the_same_model(changes: dict[str, Any], tmp_path: Path) -> None:
    # More steps than an epoch of 37 batches; with dropout and norms, whose state is to be kept too.
    layers = {
        "encoder": [{"kind": "convolution", "outputs": 3, "kernel": 3, "padding": 1}, {"kind": "dropout", "probability": 0.2}],
        "processing": [
            {"kind": "convolution", "outputs": 4, "kernel": 3, "stride": 2, "bias": False},
            {"kind": "magnitude_norm"},
            {"kind": "delta"},
            {"kind": "dropout", "probability": 0.2},
            {"kind": "flatten"},
        ],
    }
    spec = _spec(network={"kind": "custom"} | layers, steps=42, **changes)
    whole = _run(spec, tmp_path / "whole")
    for asked in (0, 23, 130):
        left = iter(range(10**6))
        with pytest.raises(TrainingStopped):
            _run(spec, tmp_path / "parts", stop=lambda left=left, asked=asked: next(left) >= asked)
    again = _run(spec, tmp_path / "parts")
    assert again.resumptions >= 1
    assert again.metrics == whole.metrics
    names = ("artifacts/model.safetensors", *(("artifacts/encodings.safetensors",) if spec.method.kind == "noisy_rotation" else ()))
    for name in names:
        first, second = (load_file(tmp_path / run / name) for run in ("whole", "parts"))
        assert all(torch.equal(first[key], second[key]) for key in first)
    digest = request_digest(spec, spec.plan(), data_set_facts(spec.data))  # pyright: ignore[reportArgumentType]
    states = [load_checkpoint(tmp_path / run / "checkpoint.safetensors", digest, torch.device("cpu")).state for run in ("whole", "parts")]
    assert states[0].optimizer.keys() == states[1].optimizer.keys()
    assert all(torch.equal(states[0].optimizer[name], states[1].optimizer[name]) for name in states[0].optimizer)


def test_a_stop_within_a_step_leaves_the_state_before_it(tmp_path: Path) -> None:
    spec, events = _spec(steps=50), list[TrainingEvent]()
    asked = iter(range(10**6))
    # Asked several times in a step: somewhere in the middle of one.
    with pytest.raises(TrainingStopped) as stopped:
        _run(spec, tmp_path, stop=lambda: next(asked) >= 60, events=events)
    digest = request_digest(spec, spec.plan(), data_set_facts(spec.data))  # pyright: ignore[reportArgumentType]
    kept = load_checkpoint(tmp_path / "checkpoint.safetensors", digest, torch.device("cpu"))
    assert kept.state.step == stopped.value.step < 15


def test_seeds_decide_and_without_one_runs_differ(tmp_path: Path) -> None:
    models: list[torch.Tensor] = []
    for number, changes in enumerate(({}, {}, {"seed": 6}, {"reproducible": False, "seed": None}, {"reproducible": False, "seed": None})):
        _run(_spec(steps=1, **changes), tmp_path / str(number))
        models.append(load_file(tmp_path / str(number) / "artifacts/model.safetensors")["encoder.0_convolution.weight"])
    assert torch.equal(models[0], models[1])
    assert not any(torch.equal(models[0], other) for other in models[2:])
    assert not torch.equal(models[3], models[4])


def test_the_sound_form_tells_nothing_but_its_noisy_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*_arguments: object) -> None:
        raise AssertionError("nobody measures on protected records")

    monkeypatch.setattr("zetadp.trainer.algorithms.obfuscation.trained.Trained.answers", answers)
    spec = _spec(method=SOUND, evaluation={"kind": "none"}, steps=3)
    report = _run(spec, tmp_path)
    assert (report.held_out, report.metrics) == ("encoded", None)
    assert report.noise_test is not None
    assert report.noise_test.status == "consistent"
    sent = load_file(tmp_path / "artifacts/encodings.safetensors")["sent_real"]
    assert sent.shape[:2] == (report.test_records, 2)


@pytest.mark.slow
def test_each_attack_is_told_as_it_begins(tmp_path: Path) -> None:
    effort = {"steps": 2, "inversion_steps": 2, "property_steps": 2, "angles": 8, "victims": 12}
    changes = {"method": SOUND, "evaluation": {"kind": "none"}, "evaluation_records": 20, "attacks": effort, "curve": [0.1]}
    events: list[TrainingEvent] = []
    report = _run(_spec(steps=2, **changes), tmp_path, events=events)
    doing = [event.doing for event in events if isinstance(event, Stage)]
    assert report.attacks is not None
    learned = [f"attack {name.replace('_', ' ')}, as sent" for name in report.attacks.attackers]
    assert [stage for stage in doing if stage in learned] == learned
    assert "attack angle by learned quadratures, at noise multiplier 0.1" in doing
    assert doing[-1] == "encoding 621 records"
    assert len(set(doing)) == len(doing)


def test_the_gradient_is_of_task_and_weighted_adversarial_loss() -> None:
    features = torch.randn((6, 2, 4, 4), generator=torch.Generator().manual_seed(1))
    critic = CriticNetwork(3, (2, 4, 4), RandomStream.from_seed(1, "critic"))
    fake = faked(features, features.roll(1, 0), torch.full((6,), 1.0))
    expected = (critic(features).mean() - critic(fake).mean()) / 32**0.5
    assert torch.allclose(adversarial_loss(critic, features, fake), expected, atol=1e-6)
    plain = critic_loss(critic, Critic(constraint=WeightClipping()), features, fake, torch.Generator().manual_seed(1))
    assert torch.allclose(plain, -expected, atol=1e-6)


def test_the_gradient_penalty_is_of_the_critics_slope() -> None:
    class Steep(nn.Module):
        def forward(self, feature: torch.Tensor) -> torch.Tensor:
            return 3.0 * feature[:, 0, 0, 0]

    features = torch.zeros((5, 1, 2, 2))
    loss = critic_loss(Steep(), Critic(), features, features, torch.Generator().manual_seed(1))
    assert abs(float(loss) - 10.0 * (3.0 - 1.0) ** 2) < 1e-4


def test_a_trained_critic_tells_true_from_turned_features() -> None:
    generator = torch.Generator().manual_seed(1)
    critic, spec = CriticNetwork(8, (2, 4, 4), RandomStream.from_seed(1, "critic")), Critic()
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.5, 0.9))

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        feature = torch.rand((64, 2, 4, 4), generator=generator)
        return feature, faked(feature, torch.rand(feature.shape, generator=generator), torch.full((64,), 1.5))

    for _ in range(60):
        optimizer.zero_grad()
        critic_loss(critic, spec, *pair(), generator).backward()
        optimizer.step()
    assert float(adversarial_loss(critic, *pair()).detach()) > 0.2


def test_the_loss_is_the_tasks_and_the_critics_times_its_weight() -> None:
    parts: list[torch.Tensor] = []
    for weight in (1.0, 2.0, 4.0):
        prepared = _prepared(_spec(method=_method(adversarial_weight=weight)))
        batch = prepared.batch(torch.arange(32))
        feature = prepared.network.encoder(batch.images)
        parts.append(prepared.training._loss(batch, feature, feature, 0.0, torch.Generator().manual_seed(1)))
    first, second, fourth = (float(part.detach()) for part in parts)
    adversarial = second - first
    assert abs(adversarial) > 1e-4
    assert abs(fourth - first - 3.0 * adversarial) < 1e-5
    # What is left without it is the cross-entropy of a fresh network over ten classes.
    assert abs(first - adversarial - 2.303) < 0.1


def test_weights_go_to_a_vector_and_back() -> None:
    module = nn.Linear(3, 2)
    weights = FlatWeights(module)
    vector = weights.vector()
    weights.load(torch.zeros_like(vector))
    assert float(module.weight.detach().abs().max()) == 0.0
    weights.load(vector)
    assert torch.equal(weights.vector(), vector)
    slope = weights.gradient(module(torch.ones(1, 3)).sum())
    assert torch.equal(slope, torch.ones(8))


def test_a_batch_of_one_image_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Digits(split_seed=0, test_fraction=0.332, split_by="position").read()
    images = np.repeat(data.training_features[:1], len(data.training_features), axis=0)
    images[700] = data.training_features[700]
    _with_data(monkeypatch, images)
    prepared = _prepared(_spec())
    batch = prepared.batch(torch.arange(32))
    assert int((batch.kinds != batch.kinds[0]).sum()) == 1
    assert torch.equal(batch.images[-1], prepared.records.images[700])


def _with_data(monkeypatch: pytest.MonkeyPatch, images: np.ndarray, test_images: np.ndarray | None = None) -> None:
    data = Digits(split_seed=0, test_fraction=0.332, split_by="position").read()
    made_up = DataSet(images, data.training_targets, data.test_features if test_images is None else test_images, data.test_targets, 10)
    monkeypatch.setattr(Digits, "arrays", lambda _self: made_up)


def test_data_that_hide_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Digits(split_seed=0, test_fraction=0.332, split_by="position").read()
    empty = data.training_features.copy()
    empty[17] = 0.0
    _with_data(monkeypatch, empty)
    with pytest.raises(
        InvalidParameter, match=r"no image's feature is all zero .*1 of the training records, the first of them is number 17"
    ):
        _prepared(_spec())
    victims = data.test_features.copy()
    victims[[3, 5]] = 0.0
    _with_data(monkeypatch, data.training_features, victims)
    with pytest.raises(InvalidParameter, match="2 of the attacked records, the first of them is number 3"):
        _prepared(_spec())
    # A baseline hides nothing anyway, and protected records aren't looked at.
    _prepared(_spec(method=_method("additional_layers")))
    _prepared(_spec(method=SOUND, evaluation={"kind": "none"}))
    _with_data(monkeypatch, np.repeat(data.training_features[:1], 1176, axis=0))
    with pytest.raises(InvalidParameter, match="at least two different training images"):
        _prepared(_spec())


def test_what_cant_be_trained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"batch_size must be >= 2 \(a record's counterpart"):
        _run(_spec(batch_size=1), tmp_path)
    spec = _spec()
    for runtime, message in (
        (RuntimeSpec(device="cpu", processes=2), r"runtime\.processes must be 1"),
        (RuntimeSpec(device="cpu", precision="bfloat16"), r"runtime\.precision must be 'float32'"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            train(spec, spec.plan(), runtime, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    other = _spec(method=SOUND, evaluation={"kind": "none"}).plan()
    with pytest.raises(InvalidParameter, match="plan must be the one that follows from the spec"):
        train(spec, other, RUNTIME, tmp_path, report=lambda _event: None, should_stop=lambda: False)
    assert not list(tmp_path.iterdir())


def test_a_run_that_diverges_says_so(tmp_path: Path) -> None:
    spec = _spec(optimizer=Adam(learning_rate=1e36).model_dump(mode="json"), steps=20)
    with pytest.raises(TrainingDiverged):
        _run(spec, tmp_path)
