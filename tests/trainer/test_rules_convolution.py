r"""Norms and clipped sums of convolutions equal the naive loop's: one record, one ordinary backward pass, at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.convolution import PlanarConv1d, PlanarConv2d, PlanarConvTranspose2d
from zetadp.trainer.layers.planes import to_planes
from zetadp.trainer.layers.rules.base import LayerGradients, Rule, UnsupportedLayer, Use
from zetadp.trainer.layers.rules.convolution import convolution, transposed_convolution
from zetadp.trainer.layers.rules.patch_gradients import PatchGradients, Route, route_of
from zetadp.trainer.layers.rules.patches import Geometry, correlated

RELATIVE_ERROR = 1e-5
"""Between two orders of summation in float32: some hundred roundings of 6e-8."""

# torch says that it pads a copy.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


@final
@dataclass(frozen=True)
class Case:
    """A layer, its rule, and the shape of one record; ``calls``: of the layer on each record."""

    make: Callable[[RandomStream], nn.Module]
    rule: Rule
    record: tuple[int, ...]
    native: bool = False
    calls: int = 1
    records: int = 1


CFLOAT = torch.complex64
CASES = {
    "conv1d": Case(lambda _: nn.Conv1d(3, 5, 3), convolution, (3, 9)),
    "conv1d, stride 2, dilation 2": Case(lambda _: nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=2, groups=2), convolution, (2, 11)),
    "conv1d, complex": Case(lambda _: nn.Conv1d(2, 3, 5, padding="same", dtype=CFLOAT), convolution, (2, 7), native=True),
    "conv2d": Case(lambda _: nn.Conv2d(3, 4, 3), convolution, (3, 7, 6)),
    "conv2d, no bias": Case(lambda _: nn.Conv2d(3, 4, 3, bias=False), convolution, (3, 7, 6)),
    "conv2d, kernel 1": Case(lambda _: nn.Conv2d(3, 4, 1), convolution, (3, 4, 5)),
    "conv2d, kernel 5, padding 1": Case(lambda _: nn.Conv2d(2, 3, 5, padding=1), convolution, (2, 6, 5)),
    "conv2d, same, kernel of even size": Case(lambda _: nn.Conv2d(2, 3, (4, 3), padding="same"), convolution, (2, 6, 5)),
    "conv2d, valid": Case(lambda _: nn.Conv2d(2, 3, 3, padding="valid"), convolution, (2, 6, 5)),
    "conv2d, stride 2 leaves a rest": Case(lambda _: nn.Conv2d(2, 3, 3, stride=2), convolution, (2, 8, 6)),
    "conv2d, unequal everything": Case(
        lambda _: nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=2), convolution, (4, 7, 6)
    ),
    "conv2d, dilation 2": Case(lambda _: nn.Conv2d(2, 3, 3, dilation=2, padding=2), convolution, (2, 6, 6)),
    "conv2d, depthwise": Case(lambda _: nn.Conv2d(4, 8, 3, groups=4, padding=1), convolution, (4, 5, 5)),
    "conv2d, little space and many channels": Case(lambda _: nn.Conv2d(24, 32, 2), convolution, (24, 3, 3)),
    "conv2d, complex": Case(lambda _: nn.Conv2d(2, 3, 3, padding=1, dtype=CFLOAT), convolution, (2, 5, 6), native=True),
    "conv2d, complex, stride 2, groups": Case(
        lambda _: nn.Conv2d(4, 6, 3, stride=2, groups=2, dtype=CFLOAT), convolution, (4, 7, 7), native=True
    ),
    "conv2d, complex, little space": Case(lambda _: nn.Conv2d(24, 32, 2, dtype=CFLOAT), convolution, (24, 3, 3), native=True),
    "planar 1d": Case(lambda stream: PlanarConv1d(2, 3, 3, stream, padding="same", dilation=2), convolution, (4, 8)),
    "planar 1d, stride 2, groups": Case(lambda stream: PlanarConv1d(4, 2, 3, stream, stride=2, groups=2), convolution, (8, 9)),
    "planar 2d": Case(lambda stream: PlanarConv2d(2, 3, 3, stream), convolution, (4, 6, 7)),
    "planar 2d, no bias": Case(lambda stream: PlanarConv2d(2, 3, 3, stream, padding=1, bias=False), convolution, (4, 4, 5)),
    "planar 2d, stride 2, groups": Case(
        lambda stream: PlanarConv2d(4, 6, 3, stream, stride=2, padding=1, groups=2), convolution, (8, 6, 5)
    ),
    "planar 2d, depthwise": Case(lambda stream: PlanarConv2d(3, 3, 3, stream, padding=1, groups=3), convolution, (6, 5, 5)),
    "planar 2d, little space": Case(lambda stream: PlanarConv2d(24, 32, 2, stream), convolution, (48, 3, 3)),
    "transposed 1d": Case(lambda _: nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), transposed_convolution, (3, 5)),
    "transposed 2d": Case(lambda _: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), transposed_convolution, (3, 4, 5)),
    "transposed 2d, groups, dilation": Case(
        lambda _: nn.ConvTranspose2d(4, 6, (3, 2), dilation=2, groups=2, bias=False), transposed_convolution, (4, 4, 5)
    ),
    "transposed 2d, kernel within stride": Case(lambda _: nn.ConvTranspose2d(2, 3, 1, stride=2), transposed_convolution, (2, 3, 3)),
    "transposed 2d, complex": Case(
        lambda _: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, dtype=CFLOAT), transposed_convolution, (2, 4, 4), native=True
    ),
    "planar transposed": Case(lambda stream: PlanarConvTranspose2d(2, 3, 2, stream, stride=2), transposed_convolution, (4, 4, 3)),
    "planar transposed, groups": Case(
        lambda stream: PlanarConvTranspose2d(4, 6, 3, stream, stride=2, padding=1, output_padding=1, groups=2),
        transposed_convolution,
        (8, 3, 4),
    ),
    "shared conv2d": Case(lambda _: nn.Conv2d(3, 3, 3, padding=1), convolution, (3, 5, 5), calls=3),
    "shared complex conv2d": Case(lambda _: nn.Conv2d(2, 2, 3, padding=1, dtype=CFLOAT), convolution, (2, 5, 5), native=True, calls=2),
    "shared planar with little space": Case(lambda stream: PlanarConv2d(24, 24, 2, stream), convolution, (48, 4, 4), calls=2),
    "users of 3 records": Case(lambda _: nn.Conv2d(3, 4, 3, padding=1), convolution, (3, 5, 5), records=3),
    "users of 6 records": Case(lambda stream: PlanarConv2d(2, 3, 3, stream), convolution, (4, 5, 5), records=6),
    "users of 3 records, groups": Case(lambda _: nn.Conv2d(4, 4, 3, groups=2), convolution, (4, 5, 5), records=3),
    "users of 3 records, two calls": Case(lambda stream: PlanarConv1d(2, 2, 3, stream, padding=1), convolution, (4, 6), calls=2, records=3),
    "users of 2 records, transposed": Case(
        lambda stream: PlanarConvTranspose2d(2, 2, 2, stream, stride=2), transposed_convolution, (4, 3, 3), records=2
    ),
}
UNITS = 4


def drawn(shape: tuple[int, ...], generator: torch.Generator, *, native: bool) -> Tensor:
    return torch.randn(*shape, generator=generator) if not native else torch.view_as_complex(torch.randn(*shape, 2, generator=generator))


def loss(module: nn.Module, features: Tensor, calls: int) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Of one or more records, with each call's input and output. It is no symmetric function: a missing conjugate shows."""
    called, total = [], torch.zeros(())
    for call in range(calls):
        output = module(features)
        called.append((features, output))
        values = torch.view_as_real(output) if output.is_complex() else output
        weights = torch.linspace(-1.0, 2.0, values[0].numel(), dtype=values.dtype).reshape(values[0].shape)
        total = total + (weights * (values + 0.3 * call).square() + torch.sin(values)).sum()
        features = 0.5 * output
    return total, called


def uses(module: nn.Module, features: Tensor, calls: int) -> list[Use]:
    total, called = loss(module, features, calls)
    gradients = torch.autograd.grad(total, [output for _, output in called])
    return [Use(seen.detach(), gradient) for (seen, _), gradient in zip(called, gradients, strict=True)]


def looped(module: nn.Module, features: Tensor, case: Case) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Squared norms and gradients of each unit."""
    norms, gradients = [], []
    for unit in features.split(case.records):
        total = sum(loss(module, record[None], case.calls)[0] for record in unit)
        assert isinstance(total, Tensor)
        of_unit = dict(zip(dict(module.named_parameters()), torch.autograd.grad(total, list(module.parameters())), strict=True))
        gradients.append(of_unit)
        norms.append(sum(float(value.abs().square().sum()) for value in of_unit.values()))
    return torch.tensor(norms), gradients


def prepared(case: Case) -> tuple[nn.Module, Tensor]:
    generator = torch.Generator().manual_seed(7)
    module = case.make(RandomStream.from_seed(7, "layer"))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * drawn(tuple(parameter.shape), generator, native=parameter.is_complex()))
    return module, drawn((UNITS * case.records, *case.record), generator, native=case.native)


def of_rule(case: Case) -> tuple[LayerGradients, Tensor, list[dict[str, Tensor]]]:
    module, features = prepared(case)
    return case.rule(module, uses(module, features, case.calls), UNITS), *looped(module, features, case)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_norms_equal_the_loops(case: Case) -> None:
    gradients, norms, _ = of_rule(case)
    torch.testing.assert_close(gradients.squared_norms(), norms, rtol=RELATIVE_ERROR, atol=0.0, check_dtype=False)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_weighted_sums_equal_the_loops(case: Case) -> None:
    gradients, _, looped_gradients = of_rule(case)
    factors = torch.tensor([0.5, 0.0, 2.0, 1.0])
    total = gradients.weighted_sum(factors)
    for name, value in total.items():
        expected = sum(float(factor) * gradient[name] for factor, gradient in zip(factors, looped_gradients, strict=True))
        assert isinstance(expected, Tensor)
        assert (value.shape, value.is_complex()) == (expected.shape, expected.is_complex())
        assert float((value - expected).abs().square().sum().sqrt()) <= RELATIVE_ERROR * float(expected.abs().square().sum().sqrt())


GEOMETRIES = {
    "real": Geometry((3, 3), (1, 1), (1, 1), (1, 1), groups=1, parts=1),
    "complex, groups": Geometry((3, 2), (1, 2), (2, 1), (1, 0), groups=2, parts=2),
}


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=list(GEOMETRIES))
@pytest.mark.parametrize("route", [Route.GRAM, Route.DROPPED])
def test_every_route_gives_the_same(geometry: Geometry, route: Route) -> None:
    generator = torch.Generator().manual_seed(3)
    images, outputs = torch.randn(6, 8, 7, 8, generator=generator), torch.randn(6, 12, 5, 3, generator=generator)
    use = correlated(images, outputs, geometry, units=3)
    factors = torch.tensor([1.0, 0.25, 3.0])
    held, other = PatchGradients([use, use], geometry, Route.HELD), PatchGradients([use, use], geometry, route)
    torch.testing.assert_close(other.squared_norms(), held.squared_norms(), rtol=RELATIVE_ERROR, atol=0.0)
    torch.testing.assert_close(other.weighted_sum(factors), held.weighted_sum(factors).double(), rtol=RELATIVE_ERROR, atol=1e-4)


def test_a_few_units_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["planar 2d, stride 2, groups"]
    at_once, _, _ = of_rule(case)
    monkeypatch.setattr("zetadp.trainer.layers.rules.patch_gradients.NUMBERS_AT_ONCE", 1)
    one_by_one, _, _ = of_rule(case)
    torch.testing.assert_close(one_by_one.squared_norms(), at_once.squared_norms(), rtol=RELATIVE_ERROR, atol=0.0)


def test_other_padding_than_zeros_has_no_formula() -> None:
    module = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")
    with pytest.raises(UnsupportedLayer):
        convolution(module, uses(module, torch.ones(2, 1, 4, 4), 1), 2)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_planar_convolution_is_the_complex_one(groups: int) -> None:
    module = PlanarConv2d(4, 6, 3, RandomStream.from_seed(1, "layer"), stride=2, padding=1, groups=groups)
    z = drawn((2, 4, 7, 8), torch.Generator().manual_seed(1), native=True)
    expected = nn.functional.conv2d(z, module.weight, module.bias, 2, 1, 1, groups)
    torch.testing.assert_close(module(to_planes(z)), to_planes(expected), rtol=1e-5, atol=1e-5)


def test_a_planar_transposed_convolution_is_the_complex_one() -> None:
    module = PlanarConvTranspose2d(4, 6, 3, RandomStream.from_seed(1, "layer"), stride=2, padding=1, output_padding=1, groups=2)
    z = drawn((2, 4, 5, 4), torch.Generator().manual_seed(1), native=True)
    expected = nn.functional.conv_transpose2d(z, module.weight, module.bias, 2, 1, 1, 2)
    torch.testing.assert_close(module(to_planes(z)), to_planes(expected), rtol=1e-5, atol=1e-5)


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="groups must be a divisor of 3 inputs and of 4 outputs"):
        PlanarConv1d(3, 4, 3, RandomStream.from_seed(1, "layer"), groups=2)


# channels, outputs, height and width of the positions, units, and the route: large weights before few positions have Gram matrices, and
# those of many units aren't held.
ROUTES = [(128, 128, 2, 1, Route.GRAM), (8, 16, 20, 1, Route.HELD), (128, 128, 9, 113, Route.HELD), (128, 128, 9, 114, Route.DROPPED)]


@pytest.mark.parametrize(("channels", "outputs", "size", "units", "route"), ROUTES)
def test_the_route_follows_from_shapes(channels: int, outputs: int, size: int, units: int, route: Route) -> None:
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1), groups=1, parts=1)
    use = correlated(torch.zeros(units, channels, size, size), torch.zeros(units, outputs, size, size), geometry, units)
    assert route_of([use], geometry) is route


def test_gradients_that_come_channels_first_are_not_copied() -> None:
    """Of a first layer the copy took as long as the products."""
    images, gradients = torch.randn(6, 3, 8, 7), torch.randn(6, 5, 6, 5)
    geometry = Geometry((3, 3), (1, 1), (1, 1), (0, 0), 1, 1)
    use = correlated(images, gradients, geometry, 3)
    assert use.gradients.data_ptr() == gradients.data_ptr()
    last = correlated(images, gradients.contiguous(memory_format=torch.channels_last), geometry, 3)
    for route in Route:
        both = [PatchGradients([one], geometry, route) for one in (use, last)]
        torch.testing.assert_close(both[0].squared_norms(), both[1].squared_norms(), rtol=RELATIVE_ERROR, atol=0.0)
        sums = [one.weighted_sum(torch.tensor([1.0, 0.5, 2.0])) for one in both]
        torch.testing.assert_close(sums[0], sums[1], rtol=RELATIVE_ERROR, atol=RELATIVE_ERROR)
