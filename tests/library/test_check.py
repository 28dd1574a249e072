"""``zetadp.check``: the part that keeps a module from private training is named, with what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import zetadp  # noqa: E402

nn = torch.nn


class Mean(nn.Module):
    """Takes the batch's mean away."""

    def forward(self, records: Any) -> Any:
        return records - records.mean(dim=0)


class Gated(nn.Module):
    """Mixes records only once its gate has left 0."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))
        self.inner = nn.Linear(4, 4)

    def forward(self, records: Any) -> Any:
        return self.inner(records) + self.gate * records.mean(dim=0)


def attention(*, batch_first: bool) -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first), nn.Linear(8, 2))


OBSTACLES: dict[str, tuple[Callable[[], Any], tuple[int, ...], str, str, str | None]] = {
    "batch norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.Sequential(nn.BatchNorm2d(6), nn.ReLU())),
        (3, 8, 8),
        "1.0",
        "statistics of all records",
        "use nn.GroupNorm(2, 6)",
    ),
    "instance norm": (
        lambda: nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True), nn.Conv1d(4, 2, 1)),
        (4, 5),
        "0",
        "keeps statistics",
        "give track_running_stats=False",
    ),
    "own": (lambda: nn.Sequential(nn.Linear(4, 4), Mean(), nn.Linear(4, 2)), (4,), "1", "it mixes records", None),
    "gate": (lambda: nn.Sequential(nn.Linear(4, 4), Gated()), (4,), "1", "it mixes records", None),
    "attention": (lambda: attention(batch_first=False), (5, 4), "1.self_attn", "it mixes records", "give batch_first=True"),
    "half": (lambda: nn.Linear(4, 2, dtype=torch.float16), (4,), "", "weight is torch.float16", "call .float()"),
    "two precisions": (
        lambda: nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2).double()),
        (4,),
        "1",
        "weight is torch.float64",
        "call .float()",
    ),
    "max norm": (lambda: nn.Embedding(3, 4, max_norm=1.0), (2,), "", "unchanged by a forward pass", None),
    "shape": (lambda: nn.Linear(5, 2), (4,), "", "a function of data of these shapes", None),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_the_part_in_the_way_is_named(name: str) -> None:
    make, shape, where, why, repair = OBSTACLES[name]
    module = make()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    example = torch.tensor([[0, 1], [1, 2]]) if name == "max norm" else torch.zeros(2, *shape)
    found = zetadp.check(module, example)[0]
    assert found.name == where
    assert why in found.why
    assert repair is None or (found.repair or "").startswith(repair)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


FINE: dict[str, tuple[Callable[[], Any], tuple[int, ...], Any]] = {
    "linear": (lambda: nn.Linear(4, 2), (4,), torch.float32),
    "double": (lambda: nn.Linear(4, 2, dtype=torch.double), (4,), torch.double),
    "complex double": (lambda: nn.Linear(4, 2, dtype=torch.cdouble), (4,), torch.cdouble),
    "complex": (lambda: nn.Linear(4, 2, dtype=torch.cfloat), (4,), torch.cfloat),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)), (4,), torch.float32),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()), (3, 8, 8), torch.float32),
    "attention": (lambda: attention(batch_first=True), (5, 4), torch.float32),
}


@pytest.mark.parametrize("name", FINE)
def test_nothing_is_in_the_way_of_what_treats_each_record_alone(name: str) -> None:
    make, shape, kind = FINE[name]
    assert zetadp.check(make(), torch.zeros(1, *shape, dtype=kind)) == ()


def test_a_lazy_layer_has_to_see_an_example_first() -> None:
    module = nn.Sequential(nn.LazyLinear(5))
    assert str(zetadp.check(module, torch.zeros(2, 4))[0]).startswith("0 (LazyLinear): its parameters have no shape yet")
    module(torch.zeros(2, 4))
    assert zetadp.check(module, torch.zeros(2, 4)) == ()


def test_a_repaired_module_can_be_trained_and_keeps_scale_and_shift() -> None:
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Sequential(nn.ReLU(), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4)))
    nn.init.normal_(module[1].weight)
    repaired = zetadp.repaired(module)
    assert zetadp.check(repaired, torch.zeros(1, 3, 9, 9)) == ()
    assert isinstance(repaired[1], nn.GroupNorm)
    assert torch.equal(repaired[1].weight, module[1].weight)
    assert isinstance(module[1], nn.BatchNorm2d)
