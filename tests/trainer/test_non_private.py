"""Ordinary training: it learns, it is what torch's own loop does, it survives a stop, and it promises nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from zetadp.accountants.events import NonPrivate
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.algorithms.non_private.algorithm import NonPrivateDescent, PreparedDescent
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.engine import Alone, HeldOutRecords, load_checkpoint
from zetadp.trainer.engine.requests import request_digest
from zetadp.trainer.engine.run import Setting
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.models import losses_for
from zetadp.trainer.specs.algorithms.non_private import NonPrivateTraining
from zetadp.trainer.specs.report import RunReport

RUNTIME = RuntimeSpec(device="cpu", threads=1)


def _spec(**changes: Any) -> NonPrivateTraining:
    document = NonPrivateTraining.example().model_dump(mode="json", exclude_none=True)
    return NonPrivateTraining.model_validate(document | {"reproducible": True, "seed": 5} | changes)


def _run(spec: NonPrivateTraining, workdir: Path, stop_after: int | None = None) -> RunReport:
    asked = iter(range(10**6))
    return load_train(spec)(
        spec,
        spec.plan(),
        RUNTIME,
        workdir,
        report=lambda _event: None,
        should_stop=lambda: stop_after is not None and next(asked) >= stop_after,
    )


def _prepared(spec: NonPrivateTraining) -> PreparedDescent:
    setting = Setting(
        facts=data_set_facts(spec.data),
        runtime=RUNTIME,
        workdir=Path("nothing is written"),
        device=torch.device("cpu"),
        team=Alone(),
        digest="",
        resumed_from=None,
        report=lambda _event: None,
        should_stop=lambda: False,
    )
    return NonPrivateDescent(spec, spec.plan_for(setting.facts)).prepare(setting)


def test_it_learns_and_promises_nothing(tmp_path: Path) -> None:
    report = _run(_spec(), tmp_path)
    assert report.metrics is not None
    assert report.metrics["accuracy"] > 0.93
    assert isinstance(report.event, NonPrivate)
    assert report.noise_std == 0.0
    assert (tmp_path / "artifacts/model.safetensors").is_file()


def test_the_gradient_is_the_mean_loss_gradient_of_the_batch() -> None:
    spec = _spec()
    prepared = _prepared(spec)
    network, loaded = prepared.loaded.network, prepared.loaded
    rows = torch.arange(7, 20)
    losses_for(data_set_facts(spec.data))(network(loaded.features[rows]), loaded.targets[rows]).mean().backward()
    expected = loaded.layout.flatten({name: p.grad for name, p in network.named_parameters() if p.grad is not None})
    got = prepared.gradient(loaded.layout.flatten(dict(network.named_parameters())), rows)
    assert torch.allclose(got, expected, rtol=1e-4, atol=1e-7)


def test_every_epoch_uses_every_record_once_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    original = PreparedDescent.gradient

    def gradient(prepared: PreparedDescent, parameters: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        seen.append(rows)
        return original(prepared, parameters, rows)

    monkeypatch.setattr(PreparedDescent, "gradient", gradient)
    _run(_spec(batch_size=100, steps=14), tmp_path)
    first, second = torch.cat(seen[:7]), torch.cat(seen[7:])
    assert len(first.unique()) == 700
    assert not torch.equal(first, second)


def test_a_stopped_run_continues_to_the_same_model(tmp_path: Path) -> None:
    spec = _spec(steps=40)
    whole = _run(spec, tmp_path / "whole")
    with pytest.raises(TrainingStopped):
        _run(spec, tmp_path / "parts", stop_after=13)
    again = _run(spec, tmp_path / "parts")
    assert again.resumptions == 1
    assert again.metrics == whole.metrics
    digest = request_digest(spec, spec.plan(), data_set_facts(spec.data))
    states = [load_checkpoint(tmp_path / name / "checkpoint.safetensors", digest, torch.device("cpu")) for name in ("whole", "parts")]
    assert torch.equal(states[0].state.parameters, states[1].state.parameters)


def test_nothing_is_measured_unless_the_held_out_records_are_public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_arguments: object, **_names: object) -> None:
        raise AssertionError("nobody declared them public")

    monkeypatch.setattr(HeldOutRecords, "metrics", measure)
    report = _run(_spec(steps=3, evaluation={"kind": "none"}), tmp_path)
    assert report.metrics is None
    assert report.held_out == "none"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 10**6}, "batch_size must be <= the 710 training records, got 1000000"),
        ({"unit": "patient"}, "unit must be 'record' (one row of this data set), got 'patient'"),
        ({"records_per_user": 3}, "records_per_user must be absent where the unit is one row ('record'), got 3"),
    ],
)
def test_what_doesnt_fit_the_data_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        _spec(**changes).plan()
    assert str(refused.value) == message


def test_private_evaluation_and_several_processes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        _spec(evaluation={"kind": "private_accuracy", "noise_std": 1.0, "every_steps": 5})
    spec = _spec(steps=2)
    runtime = RuntimeSpec(device="cpu", threads=1, processes=2)
    with pytest.raises(InvalidParameter, match=r"runtime\.processes must be 1"):
        load_train(spec)(spec, spec.plan(), runtime, tmp_path, report=lambda _event: None, should_stop=lambda: False)
