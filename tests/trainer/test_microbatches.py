"""Microbatches filled up to few sizes: a unit's gradient keeps its bits whoever is computed beside it, or units are computed one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ALGORITHMS, RuntimeSpec, load_train
from zetadp.trainer.engine.autoencoders import ClippedRows
from zetadp.trainer.engine.gradients import clipping
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.microbatches import MOST_SIZES, ONE_BY_ONE, Bits, Padding, Probe, Sizes, gather
from zetadp.trainer.engine.gradients.per_unit import Microbatch, TapedRoute
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.gradients.tape import linear_of_whole_rows
from zetadp.trainer.layers.rules import LayerGradients
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.report import Started, TrainingEvent


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def network(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))


def problem(records: int, members: Tensor | None = None, of: nn.Module | None = None) -> Problem:
    generator = torch.Generator().manual_seed(records)
    features = torch.randn(records, 20, generator=generator)
    return Problem(of or network(), cross_entropy, features, torch.arange(records) % 3, members)


def parameters(of: Problem) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in of.network.named_parameters()}


@pytest.mark.parametrize("most", [1, 3, 15, 16, 17, 100, 256, 2048])
@pytest.mark.parametrize("lot", [1, 40, 128, 129, 1000, 10**6])
def test_sizes_are_few_and_hold_every_sample(most: int, lot: int) -> None:
    sizes = Sizes.of(most, lot)
    step = sizes.each[-1] - sizes.each[-2] if len(sizes.each) > 1 else sizes.largest
    assert sizes.each[-1] == sizes.largest <= most
    assert len(sizes.each) <= MOST_SIZES
    assert all(sizes.of_microbatch(units) in sizes.each for units in range(1, sizes.largest + 1))
    least = sizes.each[0]
    assert all(units <= sizes.of_microbatch(units) < units + step for units in range(least, sizes.largest + 1))
    assert step <= max(8, math.ceil(lot / 8) + 15) or step == most
    # A sample that leaves the smallest half empty is rare, or there are samples of several microbatches.
    assert least == step or (least <= lot - 3 * lot**0.5 and sizes.largest >= lot + 2 * lot**0.5)
    assert most < 100 or lot > 150 or sizes.largest >= min(most - step + 1, lot + 2 * lot**0.5)


@pytest.mark.parametrize("sampled", [1, 15, 16, 17, 63, 64, 100])
def test_filling_up_changes_no_sum_and_counts_nobody(sampled: int) -> None:
    of = problem(100)
    one_by_one = ClippedGradients(of, FlatClipping(bound=0.5), 1).sum(parameters(of), torch.arange(sampled), 0.5)
    filled = ClippedGradients(of, FlatClipping(bound=0.5), 64).sum(parameters(of), torch.arange(sampled), 0.5)
    assert len(filled.norms) == sampled
    assert (filled.within, filled.zeroed) == (one_by_one.within, 0)
    assert (filled.total - one_by_one.total).norm() <= 1e-5 * sampled


def test_users_are_filled_up_whole() -> None:
    members = torch.arange(60).reshape(20, 3)
    members[::4, 2] = -1
    of = problem(60, members)
    one_by_one = ClippedGradients(of, FlatClipping(bound=0.5), 1).sum(parameters(of), torch.arange(19), 0.5)
    clipped = ClippedGradients(of, FlatClipping(bound=0.5), 96)
    assert clipped.settle()
    filled = clipped.sum(parameters(of), torch.arange(19), 0.5)
    assert len(filled.norms) == 19
    assert (filled.total - one_by_one.total).norm() <= 1e-4


def test_a_broken_unit_is_left_out_of_a_filled_microbatch() -> None:
    of = problem(40)
    of.features[7] = 1e30  # the square of its gradient overflows
    clipped = ClippedGradients(of, FlatClipping(bound=0.5), 64)
    filled = clipped.sum(parameters(of), torch.arange(40), 0.5)
    expected = clipped.sum(parameters(of), torch.cat((torch.arange(7), torch.arange(8, 40))), 0.5)
    assert (filled.zeroed, len(filled.norms)) == (1, 39)
    # Every gradient to the bit; their sum is added in another order, which the margin is for.
    assert torch.equal(filled.norms, expected.norms)
    assert torch.allclose(filled.total, expected.total, rtol=0.0, atol=1e-6)


def test_padding_that_breaks_breaks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    of = problem(20)
    clipped = ClippedGradients(of, FlatClipping(bound=0.5), 64)
    expected = clipped.sum(parameters(of), torch.arange(20), 0.5)
    good = clipped._padding
    clipped._padding = Padding(good.features * math.inf, good.target, good.square)
    sizes: list[int] = []

    def gradients(given: Mapping[str, Tensor], batch: Microbatch) -> Sequence[LayerGradients]:
        sizes.append(batch.units)
        return clipped.route.gradients(given, batch)

    monkeypatch.setattr(clipped, "gradients", gradients)
    found = clipped.sum(parameters(of), torch.arange(20), 0.5)
    assert (found.zeroed, len(found.norms)) == (0, 20)
    assert (found.total - expected.total).norm() <= 1e-5
    assert sizes[1:] == [1] * 20
    # What broke it was one sum's: the next one is as fast as before, and the same to the bit.
    clipped._padding = good
    sizes.clear()
    assert torch.equal(clipped.sum(parameters(of), torch.arange(20), 0.5).total, expected.total)
    assert len(sizes) == 1


def test_padding_that_breaks_in_the_middle_of_a_sample_leaves_its_units_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where draws are random a microbatch of 16 has 15 units and one place for padding, whose gradient overflows here.
    of = replace(problem(64), is_random=True)
    clipped = ClippedGradients(of, FlatClipping(bound=0.5), 16, lot=64)
    clipped._padding = Padding(clipped._padding.features * math.inf, clipped._padding.target, clipped._padding.square)
    sizes: list[int] = []
    right = clipped.gradients

    def seen(given: Mapping[str, Tensor], batch: Microbatch) -> Sequence[LayerGradients]:
        sizes.append(batch.units)
        return right(given, batch)

    monkeypatch.setattr(clipped, "gradients", seen)
    found = clipped.sum(parameters(of), torch.arange(64), 0.5)
    assert sizes == [16] + [1] * 64
    assert (found.zeroed, len(found.norms), found.total.dtype) == (0, 64, torch.float64)
    expected = ClippedGradients(of, FlatClipping(bound=0.5), 64).sum(parameters(of), torch.arange(64), 0.5)
    assert (found.total - expected.total).norm() <= 1e-5


def test_an_empty_sample_gives_exact_zeros() -> None:
    of = problem(5)
    found = ClippedGradients(of, FlatClipping(bound=0.5), 64).sum(parameters(of), torch.arange(0), 0.5)
    assert not found.total.any()
    assert found.within == 0


# One record more


def moved_by_one_more(of: Problem, clipped: ClippedGradients) -> float:
    """How far the sum of 132 records is from that of 131, in bounds."""
    before, after = (clipped.sum(parameters(of), torch.arange(size), 1.0).total.double() for size in (131, 132))
    return (after - before).norm().item()


@pytest.mark.parametrize("of", ["this processor", "another one"])
def test_one_record_more_moves_the_sum_by_one_bound_however_close_to_a_kink_the_others_are(of: str) -> None:
    """Three records for whom a product of 3 rows and one of 4 fall on different sides of every kink: they moved the sum by 4 bounds."""
    kinked = on_a_kink() if of == "this processor" else on_another_processor_s_kink()
    clipped = ClippedGradients(kinked, FlatClipping(bound=1.0), 128, lot=131)
    assert clipped.settle()
    assert moved_by_one_more(kinked, clipped) <= 1.0


@pytest.mark.parametrize("of", ["this processor", "another one"])
def test_products_of_as_many_rows_as_there_are_units_are_caught(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinked = on_a_kink() if of == "this processor" else on_another_processor_s_kink()
    clipped = ClippedGradients(kinked, FlatClipping(bound=1.0), 128)
    monkeypatch.setattr(Padding, "gathered", lambda _self, of, units, squares, _size, _replaced: gather(of, units, squares))
    clipped._sizes = Sizes(tuple(range(1, 129)))
    assert moved_by_one_more(kinked, clipped) > 3.9


class Rounded(nn.Module):
    """What some libraries do to a row of a product: another last bit where the rows aren't a multiple of 4."""

    def forward(self, x: Tensor) -> Tensor:
        return x if len(x) % 4 == 0 else x - 1e-9


def on_another_processor_s_kink() -> Problem:
    """128 empty records, and four for which every neuron's sum is 0 up to such a bit."""
    first, last = nn.Linear(8, 16, bias=False), nn.Linear(16, 3, bias=False)
    torch.manual_seed(3)
    with torch.no_grad():
        first.weight.zero_()
        first.weight[:, 0], first.weight[:, 1] = 1e-10, 1.0
        last.weight.copy_(torch.randn(3, 16))
    features = torch.zeros(132, 8)
    features[128:] = torch.tensor([1.0, 0.0, *[20.0] * 6])
    return Problem(nn.Sequential(first, Rounded(), nn.ReLU(), last), cross_entropy, features, torch.zeros(132, dtype=torch.long), None)


def on_a_kink() -> Problem:
    """128 empty records, three that sit on the kink of all neurons at once, and one more like them."""
    inputs, hidden, classes = 784, 16, 10
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(inputs, generator=generator) / 28.0
    first = nn.Linear(inputs, hidden, bias=False)
    last = nn.Linear(hidden, classes, bias=False)
    with torch.no_grad():
        first.weight.copy_(direction.repeat(hidden, 1))
        last.weight.copy_(torch.randn(classes, hidden, generator=generator))
    wide = direction.double()
    crowd = torch.randn(6000, inputs, generator=generator)
    crowd = ((crowd.double() - (crowd.double() @ wide)[:, None] * wide / (wide @ wide)) * 20.0).float()
    chosen: list[int] = []
    for place in range(3):
        for number in range(len(crowd)):
            rows = torch.zeros(4, inputs)
            rows[place] = crowd[number]
            three, four = (nn.functional.linear(rows[:size], first.weight)[place] for size in (3, 4))
            if (three <= 0).all() and (four > 0).all():
                chosen.append(number)
                break
    if len(chosen) < 3:
        pytest.skip("on this processor products of 3 and of 4 rows agree")
    features = torch.zeros(132, inputs)
    features[128:131], features[131] = crowd[chosen], crowd[chosen[0]]
    return Problem(nn.Sequential(first, nn.ReLU(), last), cross_entropy, features, torch.zeros(132, dtype=torch.long), None)


# The probe


def convolutional() -> Problem:
    torch.manual_seed(2)
    layers = nn.Sequential(nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(160, 3))
    return problem(50, of=layers)


def test_ordinary_networks_keep_their_bits_here() -> None:
    assert all(ClippedGradients(of, FlatClipping(bound=1.0), 64, lot=40).settle() for of in (problem(50), convolutional()))


def flat_losses(outputs: Tensor, _targets: Tensor) -> Tensor:
    return outputs.square().flatten(1).sum(dim=1)


@pytest.mark.parametrize("widths", [(10, 3), (7, 13, 5, 3)])
@pytest.mark.parametrize("positions", [1, 5])
def test_rows_of_any_width_keep_their_bits_here(widths: tuple[int, ...], positions: int) -> None:
    """A library adds rows that begin at odd places in memory in another order; filled up they all begin alike."""
    torch.manual_seed(1)
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.Tanh())]
    of = Problem(nn.Sequential(*layers), flat_losses, torch.randn(50, positions, widths[0]), torch.zeros(50), None)
    plain, clipped = (ClippedGradients(of, FlatClipping(bound=1.0), 64, lot=40) for _ in range(2))
    assert clipped.settle()
    plain._sizes, units = ONE_BY_ONE, torch.arange(13)
    one_by_one = plain.sum(parameters(of), units, 1.0).total
    assert torch.allclose(clipped.sum(parameters(of), units, 1.0).total.double(), one_by_one.double(), rtol=1e-5, atol=1e-6)


def test_rows_are_filled_up_only_where_bits_depend_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clipped = ClippedGradients(problem(50), FlatClipping(bound=1.0), 64)
    assert clipped.settle()
    route = clipped.route
    assert isinstance(route, TapedRoute)
    assert not route.fills_rows
    # Sizes up to which units have other bits in each, without and with it; all is too many.
    for without, filled, helps in ((64, 0, True), (40, 0, True), (40, 64, False), (40, 40, False)):

        class Probed:
            def __init__(self, *_given: object, cases: tuple[int, int] = (without, filled)) -> None:
                self.upto = cases[route.fills_rows]

            def __call__(self, size: int) -> Bits | None:
                return None if size <= self.upto else Bits(torch.zeros(1, size), ())

        monkeypatch.setattr(clipping, "Probe", Probed)
        assert clipped.settle()
        assert route.fills_rows == helps
    monkeypatch.setattr(clipping, "Probe", lambda *_given: lambda _size: None)
    assert not clipped.settle()
    assert not route.fills_rows


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_filled_rows_change_no_output_and_no_slope(bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(7, 3, bias=bias, dtype=dtype)
    values = torch.randn(4, 2, 7, dtype=dtype, requires_grad=True)
    filled, plain = linear_of_whole_rows(values, layer.weight, layer.bias), layer(values)
    assert torch.allclose(filled, plain, rtol=1e-5, atol=1e-6)
    slopes = [torch.autograd.grad(outputs.abs().sum(), values)[0] for outputs in (filled, plain)]
    assert torch.allclose(*slopes, rtol=1e-5, atol=1e-6)


def test_dropout_is_no_reason_to_compute_one_by_one() -> None:
    of = problem(50, of=nn.Sequential(nn.Linear(20, 16), nn.Dropout(0.5), nn.Linear(16, 3)))
    clipped = ClippedGradients(of, FlatClipping(bound=1.0), 64)
    assert clipped.settle()
    assert all(module.training for module in of.network.modules())


@pytest.mark.parametrize("algorithm", ["zeta_dp_sgd", "dp_sgd_laplace"])
def test_a_run_may_be_refused_before_its_first_release_where_the_probe_fails(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClippedGradients if algorithm == "zeta_dp_sgd" else ClippedRows, "settle", lambda _self: False)
    example = next(known for known in ALGORITHMS if known.algorithm_name() == algorithm).example()
    spec: Any = type(example).model_validate_json(json.dumps(json.loads(example.model_dump_json()) | {"steps": 1}))
    events: list[TrainingEvent] = []

    def run(runtime: RuntimeSpec) -> None:
        load_train(spec)(spec, spec.plan(), runtime, tmp_path, report=events.append, should_stop=lambda: False)

    with pytest.raises(InvalidParameter, match=r"runtime\.when_probe_fails must be 'one_by_one' for this network on this machine"):
        run(RuntimeSpec(device="cpu", threads=1, when_probe_fails="refuse"))
    assert not [event for event in events if not isinstance(event, Started)]
    assert not list(tmp_path.glob("checkpoint*"))
    run(RuntimeSpec(device="cpu", threads=1))


def off(clipped: ClippedGradients, is_off: Callable[[Microbatch], bool], first: int = 0) -> Callable[..., Sequence[LayerGradients]]:
    """Gradients that have other last bits in some microbatches, from the record at ``first`` on."""
    right = clipped.gradients

    def gradients(given: Mapping[str, Tensor], batch: Microbatch) -> Sequence[LayerGradients]:
        features = batch.features.clone()
        if is_off(batch) and batch.units > 1:
            features[first:] = torch.nextafter(features[first:], torch.tensor(math.inf))
        return right(given, Microbatch(features, batch.targets, batch.weights, batch.units, None))

    return gradients


@pytest.mark.parametrize("what", ["places", "companions"])
def test_a_last_bit_that_depends_on_others_is_found_and_units_are_computed_one_by_one(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = problem(50)
    clipped = ClippedGradients(of, FlatClipping(bound=1.0), 64)
    wrong = off(clipped, lambda batch: what == "places" or bool(batch.features[0, 0] > batch.features[-1, 0]), int(what == "places"))
    monkeypatch.setattr(clipped, "gradients", wrong)
    assert not clipped.settle()
    assert clipped._sizes == ONE_BY_ONE
    monkeypatch.undo()
    assert len(clipped.sum(parameters(of), torch.arange(7), 1.0).norms) == 7


@pytest.mark.parametrize(("lot", "sizes"), [(10, (4, 8, 12, 16)), (20, (20, 24, 28, 32, 36, 40)), (64, (24, 32, 40, 48, 56, 64))])
def test_where_a_unit_has_other_bits_beyond_a_size_only_sizes_that_agree_are_used(
    lot: int, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So libraries multiply: few rows in one way, more in another. Units must not be computed one by one because of that."""
    of = problem(65)
    clipped = ClippedGradients(of, FlatClipping(bound=1.0), 64, lot=lot)
    monkeypatch.setattr(clipped, "gradients", off(clipped, lambda batch: batch.units > 16))
    assert clipped.settle()
    # All of them, unless this machine's library sets more apart.
    assert set(clipped._sizes.each) <= set(sizes)
    largest = clipped._sizes.largest
    parts = [clipped.sum(parameters(of), torch.arange(count), 1.0) for count in (1, largest, largest + 1, 65)]
    assert [len(part.norms) for part in parts] == [1, largest, largest + 1, 65]
    # In every size and every microbatch it has the same bits.
    assert all(torch.equal(part.norms[:1], parts[0].norms) for part in parts)
    assert torch.equal(parts[2].norms[:largest], parts[3].norms[:largest])


class OtherBits(nn.Module):
    """Another last bit in products of more than 16 rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x if len(x) > 16 else x - 1e-7


@pytest.mark.parametrize("microbatch", [128, 16])
def test_no_record_is_on_another_side_of_a_kink_in_a_sample_of_another_size(microbatch: int) -> None:
    kinked = on_another_processor_s_kink()
    kinked = replace(kinked, network=nn.Sequential(kinked.network[0], OtherBits(), *list(kinked.network)[2:]))  # pyright: ignore[reportIndexIssue, reportArgumentType]
    kinked.features[:20] = kinked.features[128:129]
    clipped = ClippedGradients(kinked, FlatClipping(bound=1.0), microbatch, lot=14)
    assert clipped.settle()
    sums = [clipped.sum(parameters(kinked), torch.arange(count), 1.0).total.double() for count in range(21)]
    assert max((after - before).norm().item() for before, after in pairwise(sums)) <= 1.0
    clipped._sizes = Sizes((4, 8, 12, 16, 20)[: 5 if microbatch > 16 else 4])
    mixed = [clipped.sum(parameters(kinked), torch.arange(count), 1.0).total.double() for count in range(21)]
    assert (max((after - before).norm().item() for before, after in pairwise(mixed)) > 3.9) == (microbatch > 16)


def test_the_probe_uses_nobodys_records() -> None:
    of = problem(50)
    clipped = ClippedGradients(of, FlatClipping(bound=1.0), 64)
    of.features.fill_(math.nan)
    probe = Probe(clipped.gradients, of, clipped._padding, 64)
    found = probe(64)
    assert found is not None
    assert found.all.isfinite().all()
