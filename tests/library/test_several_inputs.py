"""Modules that take several inputs, by place or by name: their steps are those of autograd too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import zetadp  # noqa: E402
from tests.selection import chosen  # noqa: E402
from zetadp.app.kit.settings import Settings  # noqa: E402
from zetadp.mechanisms.errors import InvalidParameter  # noqa: E402

nn = torch.nn
RECORDS = 24
AIM = 0.3 * (1.0 - 2.0**-8)
"""Clipping aims 2^-8 below the bound."""


class Words(nn.Module):
    """The mean of the words that a mask keeps, and numbers beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 4), nn.Embedding(5, 4)
        self.numbers, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, words: Any, numbers: Any, mask: Any = None) -> Any:
        found = self.words(words) + self.places(torch.arange(5)[None])
        if mask is not None:
            found = found * mask[..., None]
        return self.last(torch.tanh(found.mean(dim=1) + self.numbers(numbers)))


class Paired(torch.utils.data.Dataset):
    """Rows of tensors as items of a form."""

    def __init__(self, item: Callable[[int], Any]) -> None:
        self.item = item

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


def made() -> tuple[Any, dict[str, Any], Any]:
    generator = torch.Generator().manual_seed(4)
    inputs = {
        "words": torch.randint(11, (RECORDS, 5), generator=generator),
        "numbers": torch.randn(RECORDS, 3, generator=generator),
        "mask": torch.randint(2, (RECORDS, 5), generator=generator).bool(),
    }
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        return Words(), inputs, torch.randint(2, (RECORDS,), generator=generator)


FORMS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "tensors": lambda inputs, target: (*inputs.values(), target),
    "tensor data set": lambda inputs, target: torch.utils.data.TensorDataset(*inputs.values(), target),
    "names": lambda inputs, target: (inputs, target),
    "labels": lambda inputs, target: {**inputs, "labels": target},
    "items": lambda inputs, target: Paired(lambda row: (*(one[row] for one in inputs.values()), target[row])),
    "tuples": lambda inputs, target: Paired(lambda row: (tuple(one[row] for one in inputs.values()), target[row])),
    "named items": lambda inputs, target: Paired(
        lambda row: {"labels": int(target[row]), **{key: one[row] for key, one in inputs.items()}}
    ),
}


def trained(module: Any, data: Any, folder: Path, **changed: Any) -> zetadp.Trained:
    usual: dict[str, Any] = {
        "noise_multiplier": 1e-3,
        "delta": 1e-5,
        "unit": "record",
        "clipping_bound": 0.3,
        "expected_batch_size": RECORDS,
        "steps": 1,
        "optimizer": partial(torch.optim.SGD, lr=1.0),
        "folder": folder / "run",
        "settings": Settings(data_dir=folder / "keys"),
    }
    return zetadp.train(module, nn.CrossEntropyLoss(), data, **(usual | changed))


def stepped(module: Any, inputs: dict[str, Any], target: Any, units: list[list[int]]) -> dict[str, Any]:
    """The trained parameters after one step on everybody, each unit's gradient by autograd on its records alone."""
    named = {name: value for name, value in module.named_parameters() if value.requires_grad}
    total = {name: torch.zeros_like(value) for name, value in named.items()}
    for rows in units:
        outputs = module(**{key: one[rows] for key, one in inputs.items()})
        loss = nn.functional.cross_entropy(outputs, target[rows], reduction="sum")
        slopes = torch.autograd.grad(loss, list(named.values()))
        norm = float(torch.sqrt(sum(slope.square().sum() for slope in slopes)))
        for name, slope in zip(named, slopes, strict=True):
            total[name] += slope * min(1.0, AIM / norm)
    return {name: value.detach() - total[name] / len(units) for name, value in named.items()}


@pytest.mark.parametrize("form", chosen(FORMS, ["named items"]))
def test_a_step_is_that_of_autograd_whatever_form_the_inputs_have(form: str, tmp_path: Path) -> None:
    module, inputs, target = made()
    module.last.bias.requires_grad_(requires_grad=False)
    expected = stepped(module, inputs, target, [[row] for row in range(RECORDS)])
    done = trained(module, FORMS[form](inputs, target), tmp_path)
    assert torch.equal(done.module.get_parameter("last.bias"), module.last.bias)
    for name, value in expected.items():
        assert torch.allclose(done.module.get_parameter(name), value, rtol=1e-4, atol=1e-4), name


@pytest.mark.parametrize("form", chosen(["tensors", "named items"], ["named items"]))
def test_users_with_several_inputs_are_clipped_as_one(form: str, tmp_path: Path) -> None:
    module, inputs, target = made()
    expected = stepped(module, inputs, target, [[user, user + 8, user + 16] for user in range(8)])
    changed = {"users": [row % 8 for row in range(RECORDS)], "unit": "writer", "records_per_user": 3, "expected_batch_size": 8}
    done = trained(module, FORMS[form](inputs, target), tmp_path, **changed)
    for name, value in expected.items():
        assert torch.allclose(done.module.get_parameter(name), value, rtol=1e-4, atol=3e-4), name


class Centred(nn.Module):
    """Takes away the mean over the batch."""

    def forward(self, values: Any) -> Any:
        return values - values.mean(dim=0)


def test_mixing_is_found_behind_several_inputs_and_whole_numbers() -> None:
    module, inputs, _ = made()
    assert zetadp.check(module, inputs) == ()
    assert zetadp.check(module, tuple(inputs.values())) == ()
    module.words = nn.Sequential(module.words, Centred())
    assert [one.name for one in zetadp.check(module, inputs)] == ["words.1"]
    words = nn.Sequential(nn.Embedding(11, 4), Centred())
    assert [one.name for one in zetadp.check(words, inputs["words"])] == ["1"]


def test_whole_numbers_that_are_all_the_same_cannot_show_mixing(tmp_path: Path) -> None:
    words = nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.Linear(20, 2))
    with pytest.raises(InvalidParameter, match="at least two different records where all inputs are whole numbers"):
        zetadp.check(words, torch.ones(3, 5, dtype=torch.int64))
    with pytest.raises(InvalidParameter, match="records of whole numbers that are all the same"):
        trained(words, (torch.ones(RECORDS, 5, dtype=torch.int64), torch.zeros(RECORDS, dtype=torch.int64)), tmp_path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ((torch.zeros(4, 2), torch.zeros(3, 2), torch.zeros(4)), "inputs of as many records each"),
        ((torch.zeros(4, 2),), "input, ..., target"),
        ({"words": torch.zeros(4, 2)}, "'labels' among them"),
        ([{"a": torch.zeros(2), "labels": 0}, {"b": torch.zeros(2), "labels": 0}], r"records with the inputs \['a'\]"),
        ([(torch.zeros(2), torch.zeros(3), 0), (torch.zeros(2), torch.zeros(4), 0)], "one shape and type"),
    ],
)
def test_inputs_that_do_not_fit_together_are_refused(data: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=text):
        trained(nn.Linear(2, 2), data, tmp_path)
