r"""The loops for a convolution's gradients by unit: what they give, that a unit's bits are decided by its own numbers, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.convolution import PlanarConv1d, PlanarConv2d
from zetadp.trainer.layers.rules import correlation, patch_gradients
from zetadp.trainer.layers.rules.base import Use
from zetadp.trainer.layers.rules.convolution import convolution
from zetadp.trainer.layers.rules.correlation import Found, gradients_of, is_taken
from zetadp.trainer.layers.rules.patch_gradients import PatchGradients, Route
from zetadp.trainer.layers.rules.patches import Correlated, Geometry, correlated

pytestmark = pytest.mark.skipif(correlation.COMPILED is None, reason="no compiler, or a processor without AVX2")

UNITS = 5
RELATIVE_ERROR = 1e-5
"""Between float32 and float64: some hundred roundings of 6e-8."""

Make = Callable[[RandomStream], nn.Module]
LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "one channel": (lambda _: nn.Conv2d(1, 8, 3), (1, 9, 8)),
    "three channels, many positions": (lambda _: nn.Conv2d(3, 32, 3), (3, 32, 30)),
    "outputs of a pair of registers and one": (lambda _: nn.Conv2d(5, 24, 3), (5, 7, 6)),
    "a chunk for each row": (lambda _: nn.Conv2d(2, 128, 3), (2, 6, 40)),
    "stride, dilation and padding": (lambda _: nn.Conv2d(4, 16, (3, 2), stride=(2, 3), padding=(2, 1), dilation=(2, 1)), (4, 9, 11)),
    "dilation across": (lambda _: nn.Conv2d(3, 8, 3, padding=2, dilation=2), (3, 8, 7)),
    "kernel of one place, no bias": (lambda _: nn.Conv2d(7, 16, 1, bias=False), (7, 5, 4)),
    "one axis": (lambda _: nn.Conv1d(6, 40, 5, padding=2), (6, 21)),
    "complex": (lambda _: nn.Conv2d(3, 8, 3, padding=1, dtype=torch.complex64), (3, 7, 6)),
    "planes": (lambda stream: PlanarConv2d(2, 24, 3, stream, stride=2), (4, 9, 8)),
    "planes of one axis": (lambda stream: PlanarConv1d(2, 8, 3, stream, padding="same", dilation=2), (4, 12)),
}


def drawn(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    pairs = torch.randn(*shape, 2, generator=generator)
    return torch.view_as_complex(pairs) if dtype.is_complex else pairs[..., 0].contiguous()


def prepared(name: str, *, channels_last: bool) -> tuple[nn.Module, Tensor, Tensor]:
    """A layer, its input, and the gradient of its output."""
    make, shape = LAYERS[name]
    module, generator = make(RandomStream.from_seed(3, "layer")), torch.Generator().manual_seed(3)
    native = next(module.parameters()).is_complex() and not isinstance(module, PlanarConv1d | PlanarConv2d)
    dtype = torch.complex64 if native else torch.float32
    features = drawn((UNITS, *shape), generator, dtype)
    gradient = drawn(tuple(module(features).shape), generator, dtype)
    if channels_last and gradient.dim() == 4:
        features, gradient = (one.contiguous(memory_format=torch.channels_last) for one in (features, gradient))
    return module, features, gradient


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("by_loops", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_loops_and_matrix_products_give_each_units_gradient(
    name: str, by_loops: bool, channels_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, features, gradient = prepared(name, channels_last=channels_last)
    if not by_loops:
        monkeypatch.setattr(correlation, "COMPILED", None)
    taken: list[Found] = []
    monkeypatch.setattr(patch_gradients, "gradients_of", lambda *use: taken.append(gradients_of(*use)) or taken[-1])
    found = convolution(module, [Use(features, gradient)], UNITS)
    norms, parameters = found.squared_norms(), dict(module.named_parameters())
    assert len(taken) == by_loops
    for unit, pick in enumerate(torch.eye(UNITS)):
        output = module(features[unit : unit + 1])
        expected = torch.autograd.grad(output, list(parameters.values()), gradient[unit : unit + 1])
        squares = 0.0
        for own, value in zip(parameters, expected, strict=True):
            difference = found.weighted_sum(pick)[own] - value
            assert float(difference.abs().square().sum().sqrt()) <= RELATIVE_ERROR * float(value.abs().square().sum().sqrt())
            squares += float(value.abs().double().square().sum())
        assert float(norms[unit]) == pytest.approx(squares, rel=RELATIVE_ERROR)


def use_of(geometry: Geometry, outputs: int, size: int, *, channels_last: bool = True, units: int = UNITS) -> Correlated:
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(units, geometry.parts * 3, size, size, generator=generator)
    seen = [
        (size - dilation * (kernel - 1) - 1) // stride + 1
        for kernel, stride, dilation in zip((3, 3), geometry.stride, geometry.dilation, strict=True)
    ]
    gradients = torch.randn(units, geometry.parts * outputs, *seen, generator=generator)
    order = torch.channels_last if channels_last else torch.contiguous_format
    use = correlated(images, gradients.contiguous(memory_format=order), geometry, units)
    assert is_taken(use, geometry)
    return use


REAL, COMPLEX = Geometry((3, 3), (1, 1), (1, 1), (0, 0), 1, 1), Geometry((3, 3), (1, 1), (1, 1), (0, 0), 1, 2)


def same_bits(one: Found, other: Found) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in ("weights", "sums", "squares"))


@pytest.mark.parametrize("geometry", [REAL, COMPLEX])
def test_a_units_bits_depend_on_nothing_else(geometry: Geometry, monkeypatch: pytest.MonkeyPatch) -> None:
    use = use_of(geometry, 48, 20)
    together = gradients_of(use, geometry)
    for unit in range(UNITS):
        alone = gradients_of(use.of_units(unit, unit + 1), geometry)
        parts = Found(together.weights[:, unit : unit + 1], together.sums[unit : unit + 1], together.squares[unit : unit + 1])
        assert same_bits(alone, parts)
    assert same_bits(gradients_of(use_of(geometry, 48, 20, channels_last=False), geometry), together)
    monkeypatch.setattr(correlation, "WIDEST", 8)
    assert same_bits(gradients_of(use, geometry), together)


@pytest.mark.parametrize("threads", [2, 3, 7, 100])
def test_threads_give_the_same_bits(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use = use_of(REAL, 16, 12)
    expected = gradients_of(use, REAL)
    monkeypatch.setattr(correlation, "SMALLEST_SHARE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert same_bits(gradients_of(use, REAL), expected)


def test_a_unit_that_is_not_finite_or_too_long_leaves_the_others_alone() -> None:
    use = use_of(REAL, 16, 12)
    expected = gradients_of(use, REAL)
    images = use.images.clone()
    images[0, 1], images[0, 3] = torch.nan, 1e25
    found = gradients_of(replace(use, images=images), REAL)
    assert found.squares[1].isnan()
    assert found.squares[3].isinf()
    assert found.weights[0, 3].isfinite().all()
    others = torch.tensor([0, 2, 4])
    assert torch.equal(found.weights[:, others], expected.weights[:, others])
    assert torch.equal(found.squares[others], expected.squares[others])


@pytest.mark.parametrize(
    "change",
    [
        lambda use: replace(use, images=use.images.double(), gradients=use.gradients.double()),
        lambda use: replace(use, images=use.images.flip(2).transpose(3, 4)),
        lambda use: replace(use, gradients=use.gradients[..., :12]),
        lambda use: replace(use, gradients=use.gradients[..., ::2]),
        lambda use: replace(use, images=use.images.unflatten(1, (1, -1)).transpose(0, 2)[:, 0]),
    ],
    ids=["float64", "another order", "12 outputs", "every other output", "several records a unit"],
)
def test_other_uses_are_left_to_matrix_products(change: Callable[[Correlated], Correlated]) -> None:
    use = use_of(REAL, 16, 12)
    assert not is_taken(change(use), REAL)


def test_only_what_is_held_is_summed_by_loops() -> None:
    """Others are built twice, rounded otherwise, with a slack for what matrix products round."""
    use = use_of(REAL, 16, 12)
    assert PatchGradients([use], REAL, Route.HELD).is_looped
    assert not PatchGradients([use], REAL, Route.DROPPED).is_looped
    assert not PatchGradients([use, use], REAL, Route.HELD).is_looped


SIZES, STEPS = (2, 6, 5, 3, 4, 3, 8, 1), (3, 3, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 3),
        (0, -1),
        (1, 5),
        (2, 4),
        (3, 0),
        (3, 2),
        (4, 0),
        (4, 5),
        (5, 4),
        (6, 4),
        (6, 16),
        (7, 0),
        (7, 2),
        (7, 3),
        (8, 0),
        (8, 5),
        (10, 0),
        (11, 2),
    ],
)
def test_arrays_of_other_sizes_are_refused(place: int, value: int) -> None:
    def call(sizes: tuple[int, ...], steps: tuple[int, ...]) -> None:
        arrays = [np.zeros(count, np.float32) for count in (2 * 6 * 5 * 3, 2 * 12 * 8, 2 * 9 * 3 * 8, 2 * 8)]
        correlation.COMPILED.gradients(*arrays, np.zeros(2), False, sizes, steps, (16, 1))

    call(SIZES, STEPS)
    changed = [*SIZES, *STEPS]
    changed[place] = value
    with pytest.raises(ValueError, match="arrays of other sizes than a convolution's"):
        call(tuple(changed[:8]), tuple(changed[8:]))
