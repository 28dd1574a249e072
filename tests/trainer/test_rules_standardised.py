r"""The rules of standardised weights: in float64 they are autograd's record by record, and no norm is below what a unit adds to the sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.layer_cases import CASES as LAYERS
from tests.trainer.layer_cases import problem_of, squared_errors, unit_gradients
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.explicit import module_gradients
from zetadp.trainer.engine.gradients.per_unit import TapedRoute
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.rules import RULES, ExplicitGradients, LayerGradients
from zetadp.trainer.layers.rules.analysis import Analysis
from zetadp.trainer.layers.rules.base import Use, doubled
from zetadp.trainer.layers.rules.convolution import ConvolutionGradients
from zetadp.trainer.layers.rules.patch_gradients import Route
from zetadp.trainer.layers.standardised import (
    StandardisedComplexLinear,
    StandardisedConv1d,
    StandardisedConv2d,
    StandardisedLinear,
    StandardisedPlanarConv1d,
    StandardisedPlanarConv2d,
    centred_and_scale,
    standardised,
)
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.projection import LayerSpectrum

UNITS = 5
ROUNDING = 1e-11
"""Relative, of float64 in another order of summation."""
SLACK = 1e-5
"""Relative, by which a norm may be above a gradient's: ``GRAM_SLACK`` and ``EXPLICIT_SLACK`` where nothing cancels."""

NORM_ROUNDING = 2.0**-16
"""Relative, of a norm in float32: what ``CLIP_MARGIN`` counts for it."""
C = torch.complex128


@final
@dataclass(frozen=True)
class Case:
    """A layer and the shape of one record; ``native``: the layer takes complex numbers."""

    make: Callable[[RandomStream], nn.Module]
    record: tuple[int, ...]
    native: bool = False


CASES = {
    "conv1d, stride": Case(lambda _: StandardisedConv1d(3, 5, 4, stride=2, padding=1), (3, 11)),
    "conv1d, groups": Case(lambda _: StandardisedConv1d(4, 6, 3, groups=2, bias=False), (4, 7)),
    "conv2d": Case(lambda _: StandardisedConv2d(3, 4, 3, padding=1), (3, 6, 5)),
    "conv2d, stride": Case(lambda _: StandardisedConv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (2, 7, 6)),
    "conv2d, dilation": Case(lambda _: StandardisedConv2d(2, 3, 3, padding=2, dilation=2), (2, 6, 6)),
    "conv2d, kernel 1": Case(lambda _: StandardisedConv2d(5, 3, 1), (5, 3, 4)),
    "conv2d, groups": Case(lambda _: StandardisedConv2d(4, 6, 3, stride=2, padding=1, groups=2), (4, 6, 7)),
    "conv2d, depthwise": Case(lambda _: StandardisedConv2d(4, 8, 3, padding=1, groups=4), (4, 5, 5)),
    "conv2d, little space": Case(lambda _: StandardisedConv2d(24, 32, 2), (24, 3, 3)),
    "planar 1d": Case(lambda s: StandardisedPlanarConv1d(2, 3, 3, s, padding="same", dilation=2), (4, 8)),
    "planar 2d": Case(lambda s: StandardisedPlanarConv2d(2, 3, 3, s, padding=1), (4, 6, 5)),
    "planar 2d, stride, groups": Case(lambda s: StandardisedPlanarConv2d(4, 6, 3, s, stride=2, padding=1, groups=2), (8, 6, 5)),
    "linear": Case(lambda _: StandardisedLinear(7, 5), (7,)),
    "linear, one output": Case(lambda _: StandardisedLinear(7, 1), (7,)),
    "linear, few positions": Case(lambda _: StandardisedLinear(12, 10), (2, 12)),
    "linear, many positions": Case(lambda _: StandardisedLinear(3, 4, bias=False), (9, 3)),
    "complex linear": Case(lambda s: StandardisedComplexLinear(7, 5, s, bias=True), (7,), native=True),
    "complex linear, few positions": Case(lambda s: StandardisedComplexLinear(12, 10, s, bias=True), (2, 12), native=True),
    "complex linear, many positions": Case(lambda s: StandardisedComplexLinear(3, 4, s, bias=False), (9, 3), native=True),
    "complex linear on planes": Case(lambda s: StandardisedComplexLinear(4, 3, s, bias=True), (8,)),
}
CONVOLUTIONS = {name: case for name, case in CASES.items() if "linear" not in name}


def drawn(shape: tuple[int, ...], generator: torch.Generator, *, native: bool) -> Tensor:
    return torch.randn(shape, dtype=C if native else torch.float64, generator=generator)


def module_and_uses(case: Case, seed: int, calls: int = 2) -> tuple[nn.Module, list[Use]]:
    """In float64: a module with random weights that are far from mean 0, called several times on random records."""
    generator = torch.Generator().manual_seed(seed)
    module = case.make(RandomStream.from_seed(seed, "layer"))
    for parameter in module.parameters():
        parameter.data = 0.3 * drawn(tuple(parameter.shape), generator, native=parameter.is_complex()) + 0.2
    uses: list[Use] = []
    for _ in range(calls):
        records = drawn((UNITS, *case.record), generator, native=case.native) + 0.5
        with torch.no_grad():
            outputs = module(records)
        uses.append(Use(records, drawn(tuple(outputs.shape), generator, native=outputs.is_complex())))
    return module, uses


def by_autograd(module: nn.Module, uses: list[Use]) -> LayerGradients:
    """Each record's own vector-Jacobian product, by torch.func."""
    return module_gradients(module, {name: value.detach() for name, value in module.named_parameters()}, uses, UNITS)


def by_rule(module: nn.Module, uses: list[Use]) -> LayerGradients:
    with torch.no_grad():
        return RULES[type(module)](module, uses, UNITS)


def difference(found: LayerGradients, expected: LayerGradients, factors: Tensor) -> float:
    """Of the weighted sums, relative, in l2 over all parameters."""
    with torch.no_grad():
        sums, wanted = found.weighted_sum(factors), expected.weighted_sum(factors)
    assert {name: value.shape for name, value in sums.items()} == {name: value.shape for name, value in wanted.items()}
    return length([sums[name] - value for name, value in wanted.items()]) / length(list(wanted.values()))


def length(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(as_real(doubled(tensor)).square().sum()) for tensor in tensors))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_gradients_and_norms_are_autograds(name: str, seed: int) -> None:
    module, uses = module_and_uses(CASES[name], seed)
    rule, loop = by_rule(module, uses), by_autograd(module, uses)
    assert difference(rule, loop, torch.linspace(-1.0, 2.0, UNITS)) <= ROUNDING
    norms, expected = rule.squared_norms(), loop.squared_norms()
    assert bool((norms >= (1.0 - ROUNDING) * expected).all())
    assert bool((norms <= (1.0 + SLACK) * expected).all())


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_that_are_not_held_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, uses = module_and_uses(CASES[name], 3)
    monkeypatch.setattr("zetadp.trainer.layers.rules.patch_gradients.route_of", lambda *_, **__: Route.DROPPED)
    monkeypatch.setattr("zetadp.trainer.layers.rules.patch_gradients.NUMBERS_AT_ONCE", 1)
    rule, loop = by_rule(module, uses), by_autograd(module, uses)
    assert difference(rule, loop, torch.linspace(-1.0, 2.0, UNITS)) <= ROUNDING
    norms, expected = rule.squared_norms(), loop.squared_norms()
    assert bool((norms >= (1.0 - ROUNDING) * expected).all())
    # The slack of a convolution counts every place of the kernel as seeing the whole image.
    assert bool((norms <= (1.0 + 1e-3) * expected).all())


SPECTRA = {"lowest": (1, 1), "two": (2, 1)}


@pytest.mark.parametrize("kept", SPECTRA.values(), ids=list(SPECTRA))
@pytest.mark.parametrize("route", [Route.HELD, Route.DROPPED])
def test_the_kept_frequencies_are_of_the_trained_weights_gradient(kept, route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    module, uses = module_and_uses(CASES["conv2d"], 4)
    monkeypatch.setattr("zetadp.trainer.layers.rules.patch_gradients.route_of", lambda *_, **__: route)
    analysis = Analysis(LayerSpectrum(layer="layer", shape=(3, 3), transform=(3, 3), kept=kept, signals=12), torch.device("cpu"))
    rule, loop = by_rule(module, uses), by_autograd(module, uses)
    assert isinstance(rule, ConvolutionGradients)
    assert isinstance(loop, ExplicitGradients)
    found, expected = rule.projected(analysis), loop.projected(analysis)
    assert difference(found, expected, torch.linspace(-1.0, 2.0, UNITS)) <= ROUNDING
    assert bool((found.squared_norms() >= (1.0 - ROUNDING) * expected.squared_norms()).all())


# Without biases, of which nothing is taken away.
PARALLEL = {
    "conv2d, whole image": Case(lambda _: StandardisedConv2d(3, 4, 3, bias=False), (3, 3, 3)),
    "linear": Case(lambda _: StandardisedLinear(7, 5, bias=False), (7,)),
    "linear, one output": Case(lambda _: StandardisedLinear(7, 1, bias=False), (7,)),
    "complex linear": Case(lambda s: StandardisedComplexLinear(7, 5, s, bias=False), (7,), native=True),
}


def along_the_applied_weight(case: Case) -> tuple[nn.Module, Use]:
    """In float32, records that are the applied weight's conjugate, of several lengths: next to nothing is left of their gradients."""
    generator = torch.Generator().manual_seed(5)
    module = case.make(RandomStream.from_seed(5, "layer"))
    with torch.no_grad():
        weight = module.get_parameter("weight")
        weight.copy_(torch.randn(weight.shape, dtype=weight.dtype, generator=generator))
        outputs = torch.arange(UNITS) % len(weight)
        sizes = torch.logspace(-3, 3, UNITS).reshape(-1, *(1 for _ in case.record))
        # A gradient is g conj(a).
        records = standardised(weight)[outputs].conj().resolve_conj().reshape(UNITS, *case.record) * sizes
        slopes = torch.zeros_like(module(records))
        slopes[torch.arange(UNITS), outputs] = torch.randn((UNITS, *slopes.shape[2:]), generator=generator).to(slopes.dtype)
    return module, Use(records, slopes)


@pytest.mark.parametrize("route", [Route.HELD, Route.DROPPED])
@pytest.mark.parametrize("case", PARALLEL.values(), ids=list(PARALLEL))
def test_no_norm_is_below_what_a_unit_adds_where_all_but_rounding_is_taken_away(
    case: Case, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zetadp.trainer.layers.rules.patch_gradients.route_of", lambda *_, **__: route)
    module, use = along_the_applied_weight(case)
    rule = by_rule(module, [use])
    norms = rule.squared_norms().double().sqrt().tolist()
    with torch.no_grad():
        added = [length(list(rule.weighted_sum(pick).values())) for pick in torch.eye(UNITS)]
        scale = float(centred_and_scale(module.get_parameter("weight"))[1].max())
    for unit, (norm, one) in enumerate(zip(norms, added, strict=True)):
        assert one <= (1.0 + NORM_ROUNDING) * norm
        assert norm <= 0.01 * scale * length([use.input[unit]]) * length([use.gradient[unit]])  # 99 hundredths were taken away


def test_the_rule_reads_the_steps_parameters_and_not_the_modules() -> None:
    case = LAYERS["StandardisedPlanarConv2d, groups, shared"]
    problem = problem_of(case, None)
    engine = ClippedGradients(problem, FlatClipping(bound=1.0), 4)
    assert isinstance(engine.route, TapedRoute)
    generator = torch.Generator().manual_seed(6)
    now = {name: value.detach() + torch.randn(value.shape, generator=generator) for name, value in problem.network.named_parameters()}
    total = engine.sum(now, torch.arange(problem.units), 1e6).total
    with torch.no_grad():
        for name, value in problem.network.named_parameters():
            value.copy_(now[name])
    expected = [engine.layout.flatten(unit) for unit in unit_gradients(problem)]
    assert float((total - torch.stack(expected).sum(dim=0)).norm()) <= 1e-5 * float(torch.stack(expected).norm(dim=1).sum())


@pytest.mark.parametrize("is_complex", [False, True])
def test_one_units_clipped_sum_is_within_the_bound_whatever_is_taken_away(is_complex: bool) -> None:
    module, use = along_the_applied_weight(PARALLEL["complex linear" if is_complex else "linear"])
    problem = Problem(module, squared_errors, use.input, use.gradient, None)
    bound = 1e-4
    engine = ClippedGradients(problem, FlatClipping(bound=bound), UNITS)
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    for unit in range(UNITS):
        assert float(engine.sum(parameters, torch.tensor([unit]), bound).total.double().norm()) <= bound


def test_a_units_gradient_keeps_its_bits_in_every_microbatch() -> None:
    stream = RandomStream.from_seed(7, "layer")
    planar = StandardisedPlanarConv2d(2, 4, 3, stream, padding=1, groups=2)
    network = nn.Sequential(planar, nn.Tanh(), nn.Flatten(), StandardisedComplexLinear(4 * 64, 10, stream, bias=True))
    features = torch.randn(100, 4, 8, 8, generator=torch.Generator().manual_seed(7))
    problem = Problem(network, squared_errors, features, torch.zeros(100, 20), None)
    assert ClippedGradients(problem, FlatClipping(bound=1.0), 64, lot=40).settle()
