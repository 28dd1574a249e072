r"""Counts of right answers on private held-out records: what one record changes, the noise, and what is never told."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms import Gaussian, NoiseSource, RandomStream, Sensitivity
from zetadp.trainer.engine import HeldOutRecords, ParameterLayout, TrainingState
from zetadp.trainer.errors import TrainingDiverged
from zetadp.trainer.specs.execution_plan import PrivateEvaluation

CLASSES, RECORDS, STD = 4, 600, 7.0


def _evaluation(units: int = RECORDS, std: float = STD) -> PrivateEvaluation:
    noise = Gaussian(std=std, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    return PrivateEvaluation(mechanism=noise, units=units, every_steps=1)


def _stream(seed: int, _count: Tensor) -> RandomStream:
    return RandomStream.from_seed(seed, "count")


def _records(features: Tensor, targets: Tensor) -> tuple[HeldOutRecords, TrainingState]:
    network = nn.Linear(CLASSES, CLASSES, bias=False)
    layout = ParameterLayout.of(network)
    state = TrainingState(1, torch.eye(CLASSES).reshape(-1), {}, 1.0)
    return HeldOutRecords(network, layout, features, targets), state


def _count(features: Tensor, targets: Tensor) -> float:
    """What the mechanism is asked to release."""
    counts: list[float] = []

    def watched(_self: Gaussian, value: Tensor, _source: NoiseSource[Tensor]) -> Tensor:
        counts.append(value.item())
        return value

    records, state = _records(features, targets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gaussian, "release", watched)
        records.noisy_accuracy(state, _evaluation(), lambda _count: RandomStream.from_seed(1, "unused"))
    return counts[0]


def _made_up() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(RECORDS, CLASSES, generator=generator)
    return features, torch.where(torch.rand(RECORDS, generator=generator) < 0.7, features.argmax(dim=1), 0)


@pytest.mark.parametrize("number", [0, 511, 512, RECORDS - 1])
def test_one_record_changes_the_count_by_one_if_it_is_right_and_by_nothing_if_not(number: int) -> None:
    features, targets = _made_up()
    right = int(targets[number] == features[number].argmax())
    others = torch.arange(RECORDS) != number
    assert _count(features, targets) - _count(features[others], targets[others]) == right


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_record_whose_output_is_not_finite_is_a_wrong_answer_and_nothing_else(value: float) -> None:
    features, targets = _made_up()
    broken = features.clone()
    broken[5, 0] = value
    others = torch.arange(RECORDS) != 5
    assert _count(broken, targets) == _count(features[others], targets[others])
    # Of public records it may be told.
    records, state = _records(broken, targets)
    with pytest.raises(TrainingDiverged):
        records.metrics(state, classifies=True)


def test_the_count_has_the_noise_of_the_plan_and_a_public_divisor() -> None:
    features, targets = _made_up()
    records, state = _records(features, targets)
    # Another divisor than the records that there are: it is the plan's.
    evaluation, count = _evaluation(units=10 * RECORDS), _count(features, targets)
    told = [records.noisy_accuracy(state, evaluation, partial(_stream, seed))["accuracy"] for seed in range(400)]
    noise = torch.tensor(told, dtype=torch.float64) * (10 * RECORDS) - count
    # Six standard errors: 21 %.
    assert noise.square().mean().sqrt().item() == pytest.approx(STD, rel=6.0 / math.sqrt(2.0 * 400))
