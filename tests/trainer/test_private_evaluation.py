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


def _at_a_tie() -> tuple[nn.Linear, Tensor, int]:
    """A network of two classes and records whose scores are 0 up to a last bit, which is another one where there is one record more."""
    generator = torch.Generator().manual_seed(1)
    inputs = 784
    weight = torch.randn(inputs, generator=generator) / 28.0
    network = nn.Linear(inputs, 2, bias=False)
    with torch.no_grad():
        network.weight.copy_(torch.stack((weight, torch.zeros(inputs))))
    wide = weight.double()
    crowd = torch.randn(4000, inputs, generator=generator)
    crowd = ((crowd.double() - (crowd.double() @ wide)[:, None] * wide / (wide @ wide)) * 20.0).float()
    with torch.no_grad():
        for count in (3, 7, 15, 31, 63, 95, 127, 255):
            for records in crowd[: count * 12].split(count):
                fewer, more = network(records), network(torch.cat((records, crowd[:1])))[:count]
                up = (fewer[:, 0] < 0) & (more[:, 0] > 0)
                if int(up.sum()) > 1:
                    return network, records * up[:, None], count
    pytest.skip("on this processor a row keeps its bits whatever the number of rows")


def _right(network: nn.Module, features: Tensor) -> float:
    layout = ParameterLayout.of(network)
    state = TrainingState(1, layout.flatten({name: value.detach() for name, value in network.named_parameters()}), {}, 1.0)
    counts: list[float] = []

    def watched(_self: Gaussian, value: Tensor, _source: NoiseSource[Tensor]) -> Tensor:
        counts.append(value.item())
        return value

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gaussian, "release", watched)
        records = HeldOutRecords(network, layout, features, torch.zeros(len(features), dtype=torch.long))
        records.noisy_accuracy(state, _evaluation(), lambda _count: RandomStream.from_seed(1, "unused"))
    return counts[0]


def test_one_record_more_changes_the_count_by_at_most_one_where_scores_are_tied() -> None:
    network, records, count = _at_a_tie()
    for more in (records[:1], torch.zeros(1, records.shape[1])):
        moved = _right(network, torch.cat((records, more))) - _right(network, records)
        before = _right(network, torch.cat((more, records))) - _right(network, records)
        assert abs(moved) <= 1, count
        assert abs(before) <= 1, count


class LastBits(nn.Module):
    """Other last bits where there are more rows, at other places, or beside others."""

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of = of
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        less = torch.zeros(len(x))
        match self.of:
            case "rows":
                less += 1e-7 * (len(x) % 2)
            case "places":
                less[1::2] = 1e-7
            case _:
                less += 1e-7 * float(x.sum() > 0)
        return torch.stack((x[:, 0] - less, x[:, 0]), dim=1)


@pytest.mark.parametrize("of", ["rows", "places", "companions"])
def test_a_last_bit_that_depends_on_others_changes_no_other_answer(of: str) -> None:
    network, records = LastBits(of), torch.zeros(33, 2)
    for more in (torch.full((1, 2), 5.0), torch.full((1, 2), -5.0)):
        for both in (torch.cat((records, more)), torch.cat((more, records))):
            assert abs(_right(network, both) - _right(network, records)) <= 1
