"""The fixed front of a network: taken off and run once, it changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.models import build
from zetadp.trainer.models.front import passed_through, split_front
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AveragePool,
    Convolution,
    Dropout,
    FilterBank,
    Flatten,
    Fourier,
    LayerSpec,
    Linear,
)
from zetadp.trainer.specs.models.model_spec import Sequential

FACTS = DataSetFacts(
    training_records=5,
    test_records=1,
    shape=(1, 12, 12),
    is_complex=True,
    task="classification",
    classes=3,
    unit="record",
    user_unit=None,
    users=None,
    largest_user=None,
    sha256="0" * 64,
    description="test",
)
ROWS: dict[str, tuple[LayerSpec, ...]] = {
    "filters": (FilterBank(wavelengths=(4.0,), orientations=2, size=5, pool=4), Flatten(), Linear(outputs=3)),
    "spectrum, convolution": (Fourier(), Convolution(outputs=2, kernel=3), Activation(name="crelu"), Flatten(), Linear(outputs=3)),
    "means and activations": (AveragePool(kernel=2, stride=2), Activation(name="crelu"), Flatten(), Linear(outputs=3)),
    "nothing but weights": (Convolution(outputs=2, kernel=3), Flatten(), Linear(outputs=3)),
}


def _network(layers: tuple[LayerSpec, ...]) -> nn.Module:
    return build(Sequential(numbers="complex", layers=layers, head="magnitude"), FACTS, RandomStream.from_seed(0, "front"))


def _records() -> torch.Tensor:
    return torch.view_as_complex(torch.randn(5, 1, 12, 12, 2, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("name", ROWS)
def test_front_and_rest_are_the_network(name: str) -> None:
    network = _network(ROWS[name])
    front, rest = split_front(network)
    assert torch.allclose(rest(passed_through(front, _records())), network(_records()), atol=1e-6)


@pytest.mark.parametrize("name", ROWS)
def test_the_rest_keeps_every_parameter_under_its_name(name: str) -> None:
    network = _network(ROWS[name])
    assert {key: id(value) for key, value in split_front(network)[1].named_parameters()} == {
        key: id(value) for key, value in network.named_parameters()
    }


def test_random_layers_stay_in_the_rest() -> None:
    network = _network((Flatten(), Dropout(probability=0.5), Linear(outputs=3)))
    front, _ = split_front(network)
    assert not any("dropout" in name for name, _ in front.named_children())


def test_what_has_nothing_to_learn_is_in_the_front_whatever_it_is() -> None:
    _, rest = split_front(_network(ROWS["means and activations"]))
    assert next(rest.named_children())[0] == "3_linear"


def test_a_layer_that_learns_ends_the_front_even_if_half_of_it_is_frozen() -> None:
    network = _network(ROWS["spectrum, convolution"])
    network.get_parameter("1_convolution.weight").requires_grad = False
    assert "1_convolution" in dict(split_front(network)[1].named_children())


def test_filters_are_in_the_front() -> None:
    front, rest = split_front(_network(ROWS["filters"]))
    assert any("filter_bank" in name for name, _ in front.named_children())
    assert not any("filter_bank" in name for name, _ in rest.named_children())


class Leaky(nn.Module):
    """A row's last bits depend on the rows beside it, as those of some products do."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + 1e-7 * rows.abs().amax()


@pytest.mark.parametrize(
    "front", [nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 7)), nn.Sequential(nn.Flatten(), Leaky())]
)
def test_no_bit_of_a_record_depends_on_how_many_there_are_or_on_its_place(front: nn.Sequential) -> None:
    records = torch.randn(70, 3, 12, 12, generator=torch.Generator().manual_seed(2))
    whole = passed_through(front, records)
    for count in (1, 2, 3, 17, 64, 65, 66):
        assert torch.equal(passed_through(front, records[:count]), whole[:count])
    # One record less before the others moves them all by a place.
    assert torch.equal(passed_through(front, records[1:]), whole[1:])
