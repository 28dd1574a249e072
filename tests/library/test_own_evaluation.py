"""What ``zetadp.train`` measures on: records that are declared public, or private ones that are paid for; and its canaries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import zetadp  # noqa: E402
from tests.selection import thinned  # noqa: E402
from zetadp.app.certificates.facts.guarantee import ApproximateDp  # noqa: E402
from zetadp.app.certificates.page.plain import describe  # noqa: E402
from zetadp.app.certificates.verification.verify import read  # noqa: E402
from zetadp.app.kit.settings import Settings  # noqa: E402
from zetadp.mechanisms.errors import InvalidParameter  # noqa: E402

nn = torch.nn


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., zetadp.Trained]:
    """A linear classifier of 4 numbers in 2 classes."""

    def run(**changed: Any) -> zetadp.Trained:
        features, labels = records(200, seed=1)
        arguments: dict[str, Any] = {
            "epsilon": 4.0,
            "delta": 1e-5,
            "unit": "record",
            "clipping_bound": 1.0,
            "expected_batch_size": 100,
            "steps": 12,
            "optimizer": partial(torch.optim.SGD, lr=1.0),
            "folder": tmp_path / "run",
            "settings": Settings(data_dir=tmp_path / "data"),
        }
        return zetadp.train(nn.Linear(4, 2), nn.CrossEntropyLoss(), (features, labels), **(arguments | changed))

    return run


def records(count: int, seed: int) -> tuple[Any, Any]:
    features = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return features, (features[:, 0] > 0).long()


@pytest.mark.slow
def test_metrics_on_public_records_are_exact_and_said_to_be_unprotected(train: Any) -> None:
    features, labels = records(50, seed=2)
    done = train(evaluation=zetadp.PublicRecords(features, labels))
    right = (done.module(features).argmax(dim=1) == labels).double().mean()
    assert done.report.metrics["accuracy"] == pytest.approx(float(right), abs=1e-12)
    text = describe(read(done.certificate))
    assert "whoever asked for the training declared the held-out records public; metrics on them carry no noise" in text


def test_counts_on_private_records_are_noisy_and_part_of_the_epsilon(train: Any, tmp_path: Path) -> None:
    features, labels = records(400, seed=2)
    told = zetadp.PrivateRecords(features, labels, noise_std=8.0, every_steps=5)
    done = train(evaluation=told)
    plan = done.spec.plan()
    assert plan.evaluation.releases(12, 12) == 3
    assert plan.event.kind == "composed"
    claim = read(done.certificate).guarantee
    assert isinstance(claim, ApproximateDp)
    assert float(claim.epsilon) <= 4.0
    alone = train(folder=tmp_path / "alone")
    assert "Held-out records: there are none." in describe(read(alone.certificate))
    assert done.report.noise_std > alone.report.noise_std * 1.001  # the counts' share of the budget
    right = float((done.module(features).argmax(dim=1) == labels).double().sum())
    noise = done.report.metrics["accuracy"] * 400 - right
    assert 0.0 < abs(noise) < 6.0 * 8.0
    assert "3 counts of correct answers among all 400 held-out records with Gaussian noise of standard deviation 8" in describe(
        read(done.certificate)
    )


@pytest.mark.slow
def test_an_early_end_has_a_last_count(tmp_path: Path) -> None:
    features, labels = records(200, seed=1)
    module = nn.Linear(4, 2)
    with zetadp.private(
        module,
        nn.CrossEntropyLoss(),
        (features, labels),
        epsilon=4.0,
        delta=1e-5,
        unit="record",
        clipping_bound=1.0,
        expected_batch_size=100,
        steps=12,
        evaluation=zetadp.PrivateRecords(*records(400, seed=2), noise_std=8.0, every_steps=5),
        folder=tmp_path / "run",
        settings=Settings(data_dir=tmp_path / "data"),
    ) as training:
        for step in training.steps():
            if step.number == 2:
                break
        done = training.finish()
    assert set(done.report.metrics or {}) == {"accuracy"}
    text = describe(read(done.certificate))
    assert "Noise: 2 releases" in text
    assert "1 counts with noise of standard deviation 8" in text


def test_canaries_bound_epsilon_from_below(train: Any) -> None:
    done = train(canaries=100)
    assert done.report.audit.canaries == 100
    assert "of 100 made-up records took part" in describe(read(done.certificate))


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "features": (
        lambda: {"evaluation": zetadp.PublicRecords(torch.zeros(5, 3), torch.zeros(5, dtype=torch.int64))},
        "that the module takes",
    ),
    "as many": (lambda: {"evaluation": zetadp.PublicRecords(torch.zeros(5, 4), torch.zeros(4, dtype=torch.int64))}, "as many targets"),
    "label": (lambda: {"evaluation": zetadp.PublicRecords(torch.zeros(5, 4), torch.full((5,), 2))}, "labels must be in 0 .. 1"),
    "scores": (lambda: {"evaluation": zetadp.PrivateRecords(torch.zeros(5, 4), torch.zeros(5, 2), 1.0, 1)}, "evaluation"),
    "noise": (lambda: {"evaluation": zetadp.PrivateRecords(*records(5, 1), noise_std=0.0, every_steps=1)}, "noise_std must be >= 1e-50"),
    "few canaries": (lambda: {"canaries": 1}, "canaries must be >= 100"),
    "canaries of lazy rows": (lambda: {"canaries": 100, "expected_batch_size": 100}, "canaries must be None where"),
}


@pytest.mark.parametrize("name", thinned(REFUSED, every=3))
def test_what_cant_be_measured_is_refused_before_anything_is_released(name: str, train: Any, tmp_path: Path) -> None:
    make, text = REFUSED[name]
    if name == "canaries of lazy rows":
        features, labels = records(200, seed=1)
        rows = list(zip(features, labels, strict=True))
        train = partial(lazily, rows, tmp_path)
    with pytest.raises(InvalidParameter, match=text):
        train(**make())
    assert not (tmp_path / "run" / "training" / "checkpoint.safetensors").exists()


def lazily(rows: Any, folder: Path, **changed: Any) -> zetadp.Trained:
    return zetadp.train(
        nn.Linear(4, 2),
        nn.CrossEntropyLoss(),
        rows,
        noise_multiplier=1.0,
        delta=1e-5,
        unit="record",
        clipping_bound=1.0,
        steps=2,
        optimizer=partial(torch.optim.SGD, lr=1.0),
        folder=folder / "run",
        settings=Settings(data_dir=folder / "data"),
        **changed,
    )
