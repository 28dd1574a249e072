r"""What is refused before training: mixing that shows only later, or only with data unlike standard normal numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.gradients.checks import check_problem
from zetadp.trainer.engine.gradients.probe import made_up_parameters, some_rows, uneven
from zetadp.trainer.engine.gradients.problem import Losses, Problem

RECORDS, FEATURES = 20, 4


class Gated(nn.Module):
    """Adds the batch's mean through a gate that starts at 0, as the ends of residual branches do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)
        self.gate = nn.Linear(FEATURES, FEATURES, bias=False)
        nn.init.zeros_(self.gate.weight)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x)
        return hidden + self.gate(hidden.mean(dim=0, keepdim=True).expand_as(hidden))


class Faint(nn.Module):
    """A ten-thousandth of the batch's mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + 1e-4 * x.mean(dim=0)


class Large(nn.Module):
    """Takes the batch's largest number off where that is beyond what standard normal records reach."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) - torch.relu(x.abs().amax() - 6.0)


class Pair(nn.Module):
    """Two tensors come out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), x


class Renormalised(nn.Module):
    """Torch's embedding shortens the rows that a batch uses, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, FEATURES, max_norm=0.1)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.embedding(numbers)


def _sums(outputs: Tensor, _: Tensor) -> Tensor:
    return outputs.sum(dim=1)


def _problem(network: nn.Module, losses: Losses = _sums, labels: Tensor | None = None) -> Problem:
    features = torch.randn(RECORDS, FEATURES, generator=torch.Generator().manual_seed(0))
    return Problem(network, losses, features, torch.zeros(RECORDS) if labels is None else labels, None)


@pytest.mark.parametrize("kind", [Gated, Faint, Large])
def test_a_network_that_mixes_records_later_or_faintly_or_on_large_data_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(InvalidParameter, match="one that mixes records"):
        check_problem(_problem(kind()))


def test_a_loss_that_weighs_by_the_batchs_labels_is_refused_where_the_first_labels_are_all_of_one_class() -> None:
    def weighed(outputs: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, labels, reduction="none") / (0.1 + labels.float().mean())

    labels = torch.zeros(RECORDS, dtype=torch.int64)
    labels[RECORDS // 2] = 1  # neither first nor last
    with pytest.raises(InvalidParameter, match=r"losses must be a function of each record separately"):
        check_problem(_problem(nn.Linear(FEATURES, 2), weighed, labels))


def test_a_network_that_changes_its_parameters_is_refused_and_they_stay_as_they_were() -> None:
    torch.manual_seed(0)
    network = Renormalised()
    before = network.embedding.weight.detach().clone()
    problem = Problem(network, _sums, torch.arange(RECORDS) % 8, torch.zeros(RECORDS), None)
    with pytest.raises(InvalidParameter, match=r"network.embedding.weight must be unchanged by a forward pass"):
        check_problem(problem)
    assert torch.equal(network.embedding.weight, before)


def test_a_network_with_two_results_is_refused_in_words() -> None:
    with pytest.raises(InvalidParameter, match="a function whose result is one tensor, got 'tuple'"):
        check_problem(_problem(Pair()))


def test_a_network_that_changes_its_input_in_place_is_not_taken_for_one_that_mixes() -> None:
    check_problem(_problem(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(FEATURES, 2))))


def test_no_made_up_parameter_is_zero_and_the_networks_own_stay() -> None:
    network = Gated()
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    made_up = made_up_parameters(network)
    assert all(bool(value.all()) for value in made_up.values())
    assert all(torch.equal(value, before[name]) for name, value in network.named_parameters())


def test_uneven_records_end_in_zeros_at_places_in_no_order() -> None:
    counts = (uneven(torch.ones(3, 10)) != 0).sum(dim=1).tolist()
    assert counts == [7, 10, 4]


def test_chosen_rows_reach_from_the_first_to_the_last() -> None:
    assert some_rows(torch.arange(23), 4).tolist() == [0, 7, 14, 22]
    assert some_rows(torch.arange(2), 4).tolist() == [0, 0, 0, 1]
