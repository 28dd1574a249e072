r"""Clipped sums of kept coordinates are the naive loop's, which transforms every record's gradient; bounds are each layer's own."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from tests.selection import thinned
from tests.trainer.layer_cases import MEMBERS, LayerCase, problem_of, squared_errors
from tests.trainer.spectral_cases import CASES, ORDERS, SETTINGS, bounds_of, circulant, clipping_of, relative_error, spectra_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine import ClippedGradients, Problem
from zetadp.trainer.layers.rules.analysis import Analysis
from zetadp.trainer.layers.rules.patch_gradients import PatchGradients, Route, route_of
from zetadp.trainer.layers.rules.patches import Geometry, correlated
from zetadp.trainer.specs.execution_plan import L1Clipping, LayerBound, LayerBoundsClipping, PerLayerClipping
from zetadp.trainer.specs.projection import LayerSpectrum, SpectralProjection

WORST = 5e-5
r"""Float32 alone gives 1e-6. A norm of coordinates that aren't held carries 2^-24 of the whole gradient's terms (``EXPLICIT_SLACK``), which
a filter may make many times longer than what it keeps; a term missing, or counted twice, is above 1e-2."""


# By default each network in one setting, in both orders: half of the settings are of either, and all settings come up.
@pytest.mark.parametrize(("setting", "name"), thinned(product(SETTINGS, CASES), every=4), ids=str)
def test_clipped_sum_over_records_is_the_naive_loops(name: str, setting: tuple[str, float, int | None]) -> None:
    assert relative_error(CASES[name], None, *setting) <= WORST


# By default each network in one order.
@pytest.mark.parametrize(("order", "name"), thinned(product(ORDERS, CASES), every=2))
def test_clipped_sum_over_users_is_the_naive_loops(name: str, order: str) -> None:
    assert relative_error(CASES[name], MEMBERS, order, 0.5, 9) <= WORST


# Wide enough for both ways: coordinates of every unit that are held, and such as are built twice.
WIDE = {
    Route.HELD: LayerCase(lambda _: nn.Conv2d(4, 8, 5, padding=2), (4, 16, 16)),
    Route.DROPPED: LayerCase(lambda _: nn.Conv2d(32, 48, 5, padding=2), (32, 2, 2)),
}


@pytest.mark.parametrize("route", WIDE)
@pytest.mark.parametrize("order", ORDERS)
def test_clipped_sum_of_a_wide_layer_is_the_naive_loops(route: Route, order: str) -> None:
    assert relative_error(WIDE[route], None, order, 0.5, None) <= WORST


@pytest.mark.parametrize("route", WIDE)
def test_few_positions_before_a_wide_kernel_are_not_held(route: Route) -> None:
    geometry = Geometry((5, 5), (1, 1), (1, 1), (2, 2), groups=1, parts=1)
    spectrum = LayerSpectrum(layer="layer", signals=1, shape=(5, 5), transform=(5, 5), kept=(2, 2))
    inputs, size, _ = WIDE[route].record
    images, outputs = torch.zeros(1, inputs, size, size), torch.zeros(1, {4: 8, 32: 48}[inputs], size, size)
    use = correlated(images, outputs, geometry, units=1)
    assert route_of([use], geometry, Analysis(spectrum, torch.device("cpu"))) is route


def test_one_frequency_of_a_kernel_is_the_gradient_of_one_place_of_what_the_kernel_sees_together() -> None:
    generator = torch.Generator().manual_seed(3)
    geometry = Geometry((3, 4), (1, 2), (2, 1), (2, 1), groups=2, parts=1)
    analysis = Analysis(LayerSpectrum(layer="layer", signals=24, shape=(3, 4), transform=(5, 4), kept=(1, 1)), torch.device("cpu"))
    images, outputs = torch.randn(6, 8, 7, 8, generator=generator), torch.randn(6, 6, 7, 4, generator=generator)
    use, factors = correlated(images, outputs, geometry, units=3), torch.tensor([1.0, 0.25, 3.0])
    whole, summed = PatchGradients([use], geometry, Route.HELD), PatchGradients([use], geometry, Route.HELD).projected(analysis)
    # (parts, groups, height, width, channels, outputs), every place of the kernel with the same weight.
    expected = whole.weighted_sum(factors).double().sum(dim=(2, 3), keepdim=True) / 20.0**0.5
    torch.testing.assert_close(summed.weighted_sum(factors).double(), expected, rtol=1e-5, atol=1e-4)
    held = PatchGradients([use], geometry, Route.HELD, analysis)
    torch.testing.assert_close(summed.squared_norms(), held.squared_norms(), rtol=1e-4, atol=0.0)


def _problem() -> Problem:
    def network(stream: object) -> nn.Module:
        first = nn.Sequential(nn.Conv2d(2, 4, 5, padding=2), nn.Tanh(), nn.Flatten())
        return nn.Sequential(*first, circulant(144, 20, 10, stream), nn.Tanh(), nn.Linear(20, 3))  # pyright: ignore[reportArgumentType]

    return problem_of(LayerCase(network, (2, 6, 6)), None)


def _parameters(problem: Problem) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in problem.network.named_parameters()}


def test_equal_bounds_layer_by_layer_are_per_layer_clipping_to_the_bit() -> None:
    problem, units = _problem(), torch.arange(14)
    names = list(bounds_of(problem))
    assert len(names) == 3
    total = 3.0**0.5 * 0.3
    own = LayerBoundsClipping(layers=tuple(LayerBound(layer=name, bound=total / 3.0**0.5) for name in names))
    ours = ClippedGradients(problem, own, 6).sum(_parameters(problem), units, own.bound)
    theirs = ClippedGradients(problem, PerLayerClipping(bound=total), 6).sum(_parameters(problem), units, total)
    assert torch.equal(ours.total, theirs.total)
    assert torch.equal(ours.norms, theirs.norms)
    assert (ours.bound, ours.within) == (theirs.bound, theirs.within)


def test_a_unit_is_within_if_every_layer_is_within_its_own_bound() -> None:
    problem, units = _problem(), torch.arange(14)
    bounds = bounds_of(problem)
    counts: list[int] = []
    for raised in bounds:
        # One layer's bound alone decides.
        clipping = clipping_of({name: bound if name == raised else 1e6 for name, bound in bounds.items()})
        counts.append(ClippedGradients(problem, clipping, 6).sum(_parameters(problem), units, clipping.bound).within)
    assert all(0 < count < 14 for count in counts)
    assert len(set(counts)) > 1  # every second layer's bound is half of its median


def test_half_of_all_bounds_together_is_half_of_each() -> None:
    problem, units = _problem(), torch.arange(14)
    bounds = {name: bound / 100.0 for name, bound in bounds_of(problem).items()}
    whole, half = clipping_of(bounds), clipping_of({name: bound / 2.0 for name, bound in bounds.items()})
    expected = ClippedGradients(problem, half, 6).sum(_parameters(problem), units, half.bound).total
    got = ClippedGradients(problem, whole, 6).sum(_parameters(problem), units, whole.bound / 2.0).total
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-12)


def test_bounds_of_other_layers_are_refused() -> None:
    problem = _problem()
    bounds = bounds_of(problem)
    first = next(iter(bounds))
    with pytest.raises(InvalidParameter, match=r"clipping.layers must be the network's trained layers \['0', '3', '5'\], got \['0'\]"):
        ClippedGradients(problem, clipping_of({first: 1.0}), 6)
    with pytest.raises(InvalidParameter, match=r"clipping.layers must be the network's trained layers .*, got \['5', '3', '0'\]"):
        ClippedGradients(problem, clipping_of(dict(reversed(bounds.items()))), 6)


def test_clipping_in_l1_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"clipping must be in l2 .*, got 'l1'"):
        ClippedGradients(_problem(), L1Clipping(bound=1.0), 6)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("order", ORDERS)
def test_a_unit_whose_gradient_is_not_finite_counts_for_nothing(order: str, broken: float) -> None:
    problem = _problem()
    bounds = bounds_of(problem)
    projection = SpectralProjection.model_validate({"order": order, "layers": spectra_of(problem.network, 0.5, None)})
    clipping = clipping_of(bounds)
    targets = problem.targets.clone()
    targets[11] = 100.0

    def losses(outputs: Tensor, wanted: Tensor) -> Tensor:
        return squared_errors(outputs, wanted) * torch.where(wanted[:, 0] == 100.0, broken, 1.0)

    spoilt = Problem(problem.network, losses, problem.features, targets, None)
    others = torch.tensor([unit for unit in range(14) if unit != 11])
    engine = ClippedGradients(spoilt, clipping, 64, projection)
    # Last in its sample it leaves the others in their places, so that every bit of the sum is the same.
    last = torch.cat((others, torch.tensor([11])))
    with_it, first, without = (engine.sum(_parameters(problem), units, clipping.bound) for units in (last, torch.arange(14), others))
    assert with_it.zeroed == first.zeroed == 1
    assert torch.equal(with_it.total, without.total)
    assert torch.equal(first.norms, without.norms)
    assert torch.allclose(first.total, without.total, rtol=0.0, atol=1e-6)


def test_nobodys_sum_is_as_long_as_what_is_released() -> None:
    problem = _problem()
    projection = SpectralProjection.model_validate({"order": ORDERS[0], "layers": spectra_of(problem.network, 0.5, None)})
    clipping = clipping_of(bounds_of(problem))
    engine = ClippedGradients(problem, clipping, 64, projection)
    nobody = engine.sum(_parameters(problem), torch.arange(0), clipping.bound)
    assert engine.spectra is not None
    assert nobody.total.shape == (engine.spectra.layout.coordinates,)
    assert engine.spectra.layout.coordinates < engine.layout.coordinates
    assert not nobody.total.any()


@pytest.mark.parametrize("order", ORDERS)
def test_a_unit_among_many_that_all_point_its_way_moves_what_is_released_by_at_most_the_bound(order: str) -> None:
    # The sum is about 256 bounds long: its rounding, and that of its coordinates, is what the margin is for.
    problem = _problem()
    features = problem.features[:1] + 1e-3 * torch.randn(256, 2, 6, 6, generator=torch.Generator().manual_seed(5))
    crowd = Problem(problem.network, squared_errors, features, problem.targets[:1].expand(256, -1) + 3.0, None)
    clipping = clipping_of(dict.fromkeys(bounds_of(problem), 0.001))
    projection = SpectralProjection.model_validate({"order": order, "layers": spectra_of(problem.network, 0.5, None)})
    engine, units = ClippedGradients(crowd, clipping, 256, projection), torch.arange(256)
    whole = engine.sum(_parameters(problem), units, clipping.bound).total
    assert whole.dtype == torch.float32
    assert whole.norm() >= 150.0 * clipping.bound
    for left_out in range(0, 256, 51):
        fewer = engine.sum(_parameters(problem), units[units != left_out], clipping.bound).total
        assert (whole.double() - fewer.double()).norm() <= clipping.bound
