"""``zetadp.private``: steps that the caller's own loop takes; what it sees, what it keeps, and what its certificate counts."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import zetadp  # noqa: E402
from zetadp.app.certificates.facts.guarantee import ApproximateDp  # noqa: E402
from zetadp.app.certificates.facts.report import Status  # noqa: E402
from zetadp.app.certificates.page.plain import describe  # noqa: E402
from zetadp.app.certificates.verification.consistency import check_parts, check_plan  # noqa: E402
from zetadp.app.certificates.verification.verify import read  # noqa: E402
from zetadp.app.kit.settings import Settings  # noqa: E402
from zetadp.mechanisms.errors import InvalidParameter  # noqa: E402
from zetadp.trainer.errors import TrainingDiverged, TrainingInterrupted  # noqa: E402
from zetadp.trainer.specs.base import RuntimeSpec  # noqa: E402

nn = torch.nn
RARELY = RuntimeSpec(checkpoint_seconds=3600.0)
"""No checkpoint but the first one and the last one."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """One signing key for all."""
    return Settings(data_dir=tmp_path_factory.mktemp("keys"))


@pytest.fixture
def usual(settings: Settings, tmp_path: Path) -> dict[str, Any]:
    """Small numbers for what a test doesn't care about."""
    return {
        "noise_multiplier": 1.0,
        "delta": 1e-5,
        "unit": "record",
        "clipping_bound": 0.5,
        "expected_batch_size": 8,
        "steps": 6,
        "folder": tmp_path / "run",
        "settings": settings,
    }


def made() -> tuple[Any, tuple[Any, Any]]:
    """A module with complex weights, and records, the same each time."""
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        module = Magnitudes()
        return module, (torch.randn(32, 6, dtype=torch.cfloat), torch.randint(0, 3, (32,)))


class Magnitudes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4, dtype=torch.cfloat)
        self.last = nn.Linear(4, 3)

    def forward(self, signals: Any) -> Any:
        return self.last(self.first(signals).abs())


def begun(usual: dict[str, Any], **changed: Any) -> tuple[Any, Any, zetadp.PrivateTraining]:
    """A module, its optimizer, and its training."""
    module, data = made()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    arguments: dict[str, Any] = usual | {"keep": [optimizer]} | changed
    return module, optimizer, zetadp.private(module, nn.CrossEntropyLoss(), data, **arguments)


def take_all(training: zetadp.PrivateTraining, act: Callable[[zetadp.ReleasedStep], object]) -> zetadp.Trained:
    """Every step, with what the caller does in it, and the certificate."""
    with training:
        for step in training.steps():
            act(step)
        return training.finish()


def test_a_loop_of_ones_own_does_what_train_does(usual: dict[str, Any], tmp_path: Path) -> None:
    module, optimizer, training = begun(usual, seed=5)
    with training:
        for step in training.steps():
            optimizer.step()
            assert step.number <= 6
        done = training.finish()
    other, data = made()
    changed = usual | {"seed": 5, "folder": tmp_path / "other"}
    expected = zetadp.train(other, nn.CrossEntropyLoss(), data, optimizer=partial(torch.optim.Adam, lr=0.1), **changed)
    for name, value in expected.module.state_dict().items():
        assert torch.equal(value, done.module.state_dict()[name]), name
        assert torch.equal(value, module.state_dict()[name]), name


def test_a_step_shows_released_numbers_alone(usual: dict[str, Any]) -> None:
    module = nn.Linear(400, 20, bias=False)
    data = (torch.zeros(32, 400), torch.zeros(32, 20))  # no gradient: what is in .grad is noise
    changed = usual | {"noise_multiplier": 2.0, "steps": 1, "seed": 5}
    with zetadp.private(module, lambda outputs, targets: (outputs - targets).square().sum(dim=1), data, **changed) as training:
        [step] = training.steps()
    assert {field.name for field in fields(step)} == {"number", "steps", "delta", "_epsilon"}
    assert 0.0 < step.epsilon < 10.0
    # Of 8000 numbers the deviation is off by .8 % (one standard error).
    assert float(module.weight.grad.std()) == pytest.approx(2.0 * 0.5 / 8, rel=0.04)


def test_leaving_early_is_certified_as_all_planned_steps(usual: dict[str, Any]) -> None:
    _, optimizer, training = begun(usual, noise_multiplier=None, epsilon=3.0, steps=40)
    spent = 0.0
    with training:
        for step in training.steps():
            optimizer.step()
            if step.number == 4:
                spent = step.epsilon
                break
        done = training.finish()
    assert done.report.steps_released == 4
    certificate = read(done.certificate)
    assert isinstance(certificate.guarantee, ApproximateDp)
    assert 2.99 < float(certificate.guarantee.epsilon) <= 3.0  # what 4 steps alone would cost is below 2
    assert 0.0 < spent < 2.0
    text = describe(certificate)
    assert "Steps: 4 released of 40 planned" in text
    assert "Noise: 4 releases" in text
    assert "The guarantee counts all planned steps, since the choice to stop may have followed from what was released." in text
    assert [check(certificate).status for check in (check_plan, check_parts)] == [Status.PASSED] * 2  # the walk of its page verifies all
    # The same program again finds it finished.
    module, _, training = begun(usual, noise_multiplier=None, epsilon=3.0, steps=40)
    with training:
        assert list(training.steps()) == []
        assert training.finish().report.steps_released == 4
    assert torch.equal(module.last.weight, done.module.state_dict()["last.weight"])


@pytest.mark.slow
def test_an_interrupted_loop_goes_on_with_what_was_kept(usual: dict[str, Any], tmp_path: Path) -> None:
    def whole(changed: dict[str, Any], interrupt: Callable[[int], None]) -> Any:
        _, optimizer, training = begun(usual, seed=11, **changed)
        return take_all(training, lambda step: (optimizer.step(), interrupt(step.number))).module

    def at_3(number: int) -> None:
        if number == 3:
            raise RuntimeError("the caller's own mistake")

    expected = whole({"folder": tmp_path / "whole"}, lambda _number: None)
    with pytest.raises(RuntimeError, match="own mistake"):
        whole({}, at_3)
    found = whole({}, lambda _number: None)
    for name, value in expected.state_dict().items():
        assert torch.equal(value, found.state_dict()[name]), name


@pytest.mark.slow
def test_ctrl_c_ends_it_between_steps(usual: dict[str, Any]) -> None:
    _, optimizer, training = begun(usual)

    def act(step: zetadp.ReleasedStep) -> None:
        if step.number == 2:
            os.kill(os.getpid(), signal.SIGINT)
        optimizer.step()

    with pytest.raises(TrainingInterrupted, match="after step 2"):
        take_all(training, act)
    _, optimizer, training = begun(usual)
    with training:
        assert [step.number for step in training.steps()] == [3, 4, 5, 6]


def test_a_step_that_a_crash_swallowed_is_never_taken_again(usual: dict[str, Any], tmp_path: Path) -> None:
    _, optimizer, training = begun(usual, runtime=RARELY)
    with training:
        for step in training.steps():
            optimizer.step()
            if step.number == 4:
                shutil.copytree(tmp_path / "run", tmp_path / "crashed")  # what a machine that failed here would find
    _, optimizer, training = begun(usual, runtime=RARELY, folder=tmp_path / "crashed")
    with training:
        assert [step.number for step in training.steps()] == [5, 6]
        assert training.finish().report.steps_released == 6


def test_two_programs_cant_take_steps_of_one_run(usual: dict[str, Any]) -> None:
    _, _, first = begun(usual)
    _, _, second = begun(usual)
    with first, pytest.raises(InvalidParameter, match="no other training is running"), second:
        pass
    with second:  # the first has ended
        assert next(second.steps()).number == 1


def test_parameters_that_arent_finite_end_it(usual: dict[str, Any]) -> None:
    module, _, training = begun(usual)
    with pytest.raises(TrainingDiverged):
        take_all(training, lambda _step: nn.init.constant_(module.last.weight, torch.nan))


def test_misuse_is_refused_by_name(usual: dict[str, Any]) -> None:
    _, _, training = begun(usual)
    with pytest.raises(InvalidParameter, match="used within 'with private"):
        next(training.steps())
    with training, pytest.raises(InvalidParameter, match="after at least one step"):
        training.finish()
    module, _, training = begun(usual)
    with pytest.raises(InvalidParameter, match=r"module\.last\.weight"):
        take_all(training, lambda _step: setattr(module.last, "weight", nn.Parameter(torch.zeros(3, 5))))

    class Closure:
        def state_dict(self) -> dict[str, Any]:
            return {"made by": made}

    with pytest.raises(InvalidParameter, match="state is tensors, numbers and texts"):
        begun(usual, keep=[Closure()])
