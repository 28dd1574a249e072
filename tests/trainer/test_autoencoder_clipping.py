r"""Clipped sums of an autoencoder in closed form: against every unit's own gradient by torch, and against what would break the bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from zetadp.trainer.engine.autoencoders import DECODER, ENCODERS, SLOPES, Autoencoder, ClippedRows, TrainingRows, layout_of
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN
from zetadp.trainer.engine.gradients.microbatches import ONE_BY_ONE
from zetadp.trainer.specs.autoencoder import AutoencoderShape

SHAPE = AutoencoderShape(encoders=3, features=5, hidden=2)
ROWS = 12
NORMS = ("l1", "l2")


def _rows(*, users: bool) -> TrainingRows:
    features = torch.from_numpy(np.random.default_rng(1).uniform(size=(ROWS, 5))).float()
    if not users:
        return TrainingRows(features, torch.arange(ROWS) % 3, None)
    # Users of one, two, three and four rows; two rows belong to nobody who is left.
    members = torch.tensor([[3, -1, -1, -1], [0, 7, -1, -1], [1, 2, 9, -1], [4, 5, 6, 11]])
    places = torch.zeros(ROWS, dtype=torch.int64)
    for user, row in enumerate(members):
        places[row[row >= 0]] = user % 3
    return TrainingRows(features, places, members)


def _clipped(rows: TrainingRows, norm: str) -> ClippedRows:
    return ClippedRows(Autoencoder.of(SHAPE, torch.device("cpu")), rows, SLOPES["cross_entropy"], "l1" if norm == "l1" else "l2")


def _parameters(scale: float = 1.0, seed: int = 2) -> dict[str, Tensor]:
    vector = torch.from_numpy(np.random.default_rng(seed).normal(size=SHAPE.coordinates)).float() * scale
    return layout_of(Autoencoder.of(SHAPE, torch.device("cpu"))).unflatten(vector)


def _gradient(rows: TrainingRows, parameters: dict[str, Tensor], members: list[int]) -> Tensor:
    """Of one unit's summed losses, by torch in float64, row by row."""
    encoders, decoder = (parameters[name].double().requires_grad_() for name in (ENCODERS, DECODER))
    total = torch.zeros((), dtype=torch.float64)
    for row in members:
        x, place = rows.features[row].double(), int(rows.places[row])
        logits = torch.sigmoid(x @ encoders[place]) @ decoder[place]
        total = total + (torch.nn.functional.softplus(logits) - x * logits).sum()
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(total, (encoders, decoder))])


def _units(rows: TrainingRows) -> list[list[int]]:
    if rows.members is None:
        return [[row] for row in range(ROWS)]
    return [[row for row in members if row >= 0] for members in rows.members.tolist()]


def _size(vector: Tensor, norm: str) -> float:
    return torch.linalg.vector_norm(vector, ord=1 if norm == "l1" else 2).item()


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_sum_is_of_every_units_own_clipped_gradient(norm: str, users: bool) -> None:
    rows, parameters = _rows(users=users), _parameters()
    gradients = [_gradient(rows, parameters, members) for members in _units(rows)]
    sizes = [_size(gradient, norm) for gradient in gradients]
    bound = float(np.median(sizes))
    expected = torch.stack([g * min(1.0, bound * (1.0 - CLIP_MARGIN) / size) for g, size in zip(gradients, sizes, strict=True)]).sum(dim=0)
    found = _clipped(rows, norm).sum(parameters, torch.arange(len(gradients)), bound)
    # The forward pass is in float32.
    assert torch.allclose(found.total, expected, rtol=1e-4, atol=1e-5 * bound)
    assert found.norms.tolist() == pytest.approx(sizes, rel=1e-4)
    assert found.within == sum(size <= bound for size in sizes)


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_one_unit_moves_the_sum_by_at_most_the_bound_and_nearly_that(norm: str, users: bool) -> None:
    rows = _rows(users=users)
    clipped, units = _clipped(rows, norm), torch.arange(len(_units(rows)))
    for scale in (1e-3, 1.0, 30.0):
        parameters, bound = _parameters(scale), 1e-3
        whole = clipped.sum(parameters, units, bound).total.float()
        moves = [
            _size(whole.double() - clipped.sum(parameters, units[units != left_out], bound).total.float().double(), norm)
            for left_out in units
        ]
        assert max(moves) <= bound
        assert max(moves) >= (1.0 - 1.25 * CLIP_MARGIN) * bound


def test_clipping_in_l1_bounds_l1_where_clipping_in_l2_does_not() -> None:
    rows, parameters = _rows(users=False), _parameters()
    one = torch.tensor([4])
    assert _size(_clipped(rows, "l1").sum(parameters, one, 0.1).total, "l1") == pytest.approx(0.1 * (1.0 - CLIP_MARGIN), rel=1e-4)
    assert _size(_clipped(rows, "l2").sum(parameters, one, 0.1).total, "l2") == pytest.approx(0.1 * (1.0 - CLIP_MARGIN), rel=1e-4)
    assert _size(_clipped(rows, "l2").sum(parameters, one, 0.1).total, "l1") > 0.2


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_an_empty_sample_gives_exact_zeros(norm: str, users: bool) -> None:
    found = _clipped(_rows(users=users), norm).sum(_parameters(), torch.zeros(0, dtype=torch.int64), 1.0)
    assert found.total.shape == (SHAPE.coordinates,)
    assert not found.total.any()
    assert found.within == 0


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_units_with_gradients_that_arent_finite_count_as_zero(norm: str, users: bool) -> None:
    rows, parameters = _rows(users=users), _parameters()
    clipped, units = _clipped(rows, norm), torch.arange(len(_units(rows)))
    broken = 1
    rows.features[_units(rows)[broken][0], 0] = torch.nan
    with_it = clipped.sum(parameters, units, 0.5)
    without = clipped.sum(parameters, units[units != broken], 0.5)
    assert with_it.zeroed == 1
    assert torch.allclose(with_it.total, without.total, rtol=1e-12)
    assert with_it.within == without.within + 1


@pytest.mark.parametrize("norm", NORMS)
def test_gradients_that_vanish_in_float32_squares_are_clipped_too(norm: str) -> None:
    # Squares of 1e-25 aren't there in float32: a norm of 0 would leave the gradient as it is.
    rows, bound = _rows(users=False), 1e-30
    parameters = {name: value * 1e-25 for name, value in _parameters().items()}
    found = _clipped(rows, norm).sum(parameters, torch.tensor([0]), bound)
    assert _size(found.total, norm) <= bound


@pytest.mark.parametrize("users", [False, True])
def test_samples_beyond_a_chunk_are_added_up(users: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, parameters = _rows(users=users), _parameters()
    units = torch.arange(len(_units(rows)))
    whole = _clipped(rows, "l1").sum(parameters, units, 0.7)
    monkeypatch.setattr("zetadp.trainer.engine.autoencoders.clipping.ROWS_AT_ONCE", 4)
    parts = _clipped(rows, "l1").sum(parameters, units, 0.7)
    assert torch.allclose(parts.total, whole.total, rtol=1e-6, atol=1e-8)
    assert parts.norms.tolist() == pytest.approx(whole.norms.tolist(), rel=1e-6)


@pytest.mark.parametrize("users", [False, True])
def test_a_row_keeps_its_bits_in_every_size_of_product(users: bool) -> None:
    clipped = _clipped(_rows(users=users), "l1")
    assert clipped.settle()
    assert clipped._sizes.largest > 1


def test_rows_that_change_with_their_companions_are_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, parameters = _rows(users=False), _parameters()
    clipped = _clipped(rows, "l2")
    expected = clipped.sum(parameters, torch.arange(9), 0.7)
    right = clipped._products

    def off(given: Tensor, inputs: Tensor, places: Tensor) -> object:
        return right(given, inputs * (1.0 + 2.0**-20 * (len(inputs) > 1) * float(inputs.sum())), places)

    monkeypatch.setattr(clipped, "_products", off)
    assert not clipped.settle()
    assert clipped._sizes == ONE_BY_ONE
    monkeypatch.undo()
    found = clipped.sum(parameters, torch.arange(9), 0.7)
    assert torch.allclose(found.total, expected.total, rtol=1e-6, atol=1e-8)
