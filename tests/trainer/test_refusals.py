r"""What would make a guarantee or a gradient wrong is refused before training starts, in words that say what was expected."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.problem import Losses, Problem
from zetadp.trainer.specs.execution_plan import FlatClipping

C = torch.complex64


def each(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def features(is_complex: bool = False) -> Tensor:
    pairs = torch.randn(8, 4, 2, generator=torch.Generator().manual_seed(0))
    return torch.view_as_complex(pairs) if is_complex else pairs[..., 0].contiguous()


def plan(
    network: nn.Module,
    losses: Losses = each,
    data: Tensor | None = None,
    targets: Tensor | None = None,
    members: Tensor | None = None,
) -> ClippedGradients:
    records = features() if data is None else data
    labels = torch.arange(len(records)) % 3 if targets is None else targets
    return ClippedGradients(Problem(network, losses, records, labels, members), FlatClipping(bound=1.0), 4)


class Function(nn.Module):
    """A linear layer, then any function of its outputs."""

    def __init__(self, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self._after = after

    def forward(self, x: Tensor) -> Tensor:
        return self._after(self.layer(x))


class OnlyInTraining(Function):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else self.layer(x)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.SyncBatchNorm(3), nn.LazyBatchNorm1d()], ids=lambda norm: type(norm).__name__)
def test_batch_norm_is_refused_by_name(norm: nn.Module) -> None:
    with pytest.raises(InvalidParameter, match=r"network\.1 must be a layer that doesn't mix records .* got '\w*BatchNorm"):
        plan(nn.Sequential(nn.Linear(4, 3), norm))


@pytest.mark.parametrize(
    "after",
    [lambda x: x - x.mean(dim=0), lambda x: x.roll(1, dims=0), lambda x: x.softmax(dim=0), lambda x: x.cumsum(dim=0)],
    ids=["mean", "roll", "softmax over records", "running sum"],
)
@pytest.mark.parametrize("kind", [Function, OnlyInTraining])
def test_a_network_that_mixes_records_is_refused(kind: type[Function], after: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidParameter, match="network must be a function of each record separately, got 'one that mixes records'"):
        plan(kind(after))


def test_mixing_is_found_behind_dropout_too() -> None:
    with pytest.raises(InvalidParameter, match="mixes records"):
        plan(nn.Sequential(nn.Dropout(0.5), OnlyInTraining(lambda x: x - x.mean(dim=0))))


def test_a_network_that_depends_on_the_number_of_records_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="got 'one that depends on the number of records'"):
        plan(Function(lambda x: x / len(x)))


class Counter(nn.Module):
    """Keeps a statistic of the records it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().sum(dim=0)
        return self.layer(x)


def test_a_statistic_of_the_records_is_refused_and_left_as_it_was() -> None:
    network = Counter()
    with pytest.raises(InvalidParameter, match=r"network\.seen must be unchanged by a forward pass"):
        plan(network)
    assert not network.seen.any()


def test_the_networks_mode_is_left_as_it_was() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    network[1].eval()
    plan(network)
    assert [module.training for module in network.modules()] == [True, True, False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex32], ids=str)
# torch says that complex half is experimental.
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_parameters_in_another_precision_are_refused(dtype: torch.dtype) -> None:
    network = nn.Linear(4, 3)
    network.weight = nn.Parameter(network.weight.detach().to(dtype))
    with pytest.raises(InvalidParameter, match=f"network.weight must be float32 or complex64, or float64 or complex128, got '{dtype}'"):
        plan(network)


def test_parameters_of_two_precisions_are_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"network\.1\.weight must be of the first parameter's precision, got 'torch.float64'"):
        plan(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3).double()))


def test_a_frozen_parameter_is_refused() -> None:
    network = nn.Linear(4, 3)
    network.bias.requires_grad_(False)
    with pytest.raises(InvalidParameter, match=r"network\.bias must be trainable"):
        plan(network)


def test_a_network_without_parameters_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="network must be one with parameters"):
        plan(nn.Identity())


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (lambda o, t: each(o, t).mean(), "losses must be one real number for each record .* of shape ()"),
        (lambda o, t: each(o, t).sum(), "losses must be one real number for each record .* of shape ()"),
        (lambda o, t: each(o, t)[:, None], r"losses must be one real number .* of shape (4, 1)"),
        (lambda o, t: each(o, t).to(C), "losses must be one real number .* got 'torch.complex64"),
        (lambda o, t: each(o, t) - each(o, t).mean(), "losses must be a function of each record separately, got 'one that mixes records'"),
        (lambda o, t: each(o, t) / len(o), "losses must be .* 'one that depends on the number of records'"),
        (lambda o, t: each(o.sum(dim=0, keepdim=True).expand_as(o), t), "losses must be .* 'one that mixes records'"),
        (lambda o, t: o @ t, "losses must be a function of data of these shapes and types"),
    ],
    ids=["mean", "sum", "a column", "complex", "minus the mean", "over n", "of the sum", "wrong shapes"],
)
def test_losses_that_are_not_one_real_number_a_record_are_refused(losses: Losses, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message.replace("()", r"\(\)").replace("(4, 1)", r"\(4, 1\)")):
        plan(nn.Linear(4, 3), losses)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_data_that_are_not_finite_are_refused(broken: float) -> None:
    data = features(is_complex=True)
    data[5, 1] = complex(0.0, broken)
    with pytest.raises(InvalidParameter, match="features must be finite everywhere, got 'NaN or infinity'"):
        plan(nn.Linear(4, 3, dtype=C), data=data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.zeros(0, 4), r"features must be \(records, ...\) with at least one record, got '\(0, 4\)'"),
        (torch.zeros(8, 5), "network must be a function of data of these shapes and types"),
        (torch.zeros(8, 4, dtype=torch.float64), "network must be a function of data of these shapes and types"),
        (torch.zeros(8, 4, dtype=C), "network must be a function of data of these shapes and types"),
        (torch.zeros(8, 4, dtype=torch.float16), "features must be in single precision"),
    ],
    ids=["none", "width", "double", "complex", "half"],
)
def test_data_that_do_not_fit_the_network_are_refused(data: Tensor, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        plan(nn.Linear(4, 3), data=data)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.arange(8) % 4, "targets must be classes from 0 to 2, got '0 to 3'"),
        # torch's own ``ignore_index``: the record would be left out without a word.
        (torch.tensor([0, 1, 2, 0, 1, 2, 0, -100]), "targets must be classes from 0 to 2, got '-100 to 2'"),
        (torch.zeros(7, dtype=torch.int64), r"targets must be \(8, ...\), one for each record, got \(7,\)"),
    ],
    ids=["too large", "negative", "too few"],
)
def test_labels_that_are_no_classes_are_refused(targets: Tensor, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        plan(nn.Linear(4, 3), targets=targets)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (torch.tensor([[0, 8]]), "members must be record numbers from 0 to 7, or -1, got '0 to 8'"),
        (torch.tensor([[0, -2]]), "members must be record numbers"),
        (torch.tensor([[-1, 0]]), "members must be at least one record in each unit, and padding only after its records"),
        (torch.tensor([[0, 1], [-1, -1]]), "members must be at least one record in each unit"),
        (torch.tensor([[0, 1], [1, 2]]), "members must be units that share no record"),
        (torch.tensor([0, 1]), r"members must be \(units, records_per_unit\), int64"),
        (torch.tensor([[0.0, 1.0]]), r"members must be \(units, records_per_unit\), int64"),
    ],
    ids=["too large", "too small", "padding first", "nobody", "shared", "flat", "not whole"],
)
def test_users_that_are_not_sets_of_records_are_refused(members: Tensor, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        plan(nn.Linear(4, 3), members=members)


class InPlace(nn.Module):
    """Changes what a layer has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = 1.0 * x
        y = self.layer(x)
        x += 1.0
        return y + x


def test_an_input_that_is_changed_after_its_use_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=re.escape("network.layer must be called with an input that isn't changed in place")):
        plan(InPlace())


def test_a_network_that_fits_is_not_refused() -> None:
    assert plan(nn.Linear(4, 3, dtype=C), lambda o, t: each(o.abs(), t), features(is_complex=True)).layout.coordinates == 30
