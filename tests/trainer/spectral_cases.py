r"""Networks whose gradients are filtered, and the naive loop: one record, one backward pass and one explicit Fourier transform at a time.

``python -m tests.trainer.spectral_cases`` prints the worst error of each case.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import final

import torch
from torch import Tensor, nn

from tests.trainer.layer_cases import MEMBERS, MICROBATCH, Bend, LayerCase, Twice, problem_of, squared_errors, unit_gradients
from zetadp.mechanisms import RandomStream
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN, ClippedGradients
from zetadp.trainer.engine.gradients.per_unit import layers_of
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers import BlockCirculantLinear
from zetadp.trainer.specs.algorithms.spectral_dp import kept_frequencies
from zetadp.trainer.specs.execution_plan import LayerBound, LayerBoundsClipping
from zetadp.trainer.specs.projection import LayerSpectrum, SpectralProjection

ORDERS = ("project_then_clip", "clip_then_filter")
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)


def circulant(inputs: int, outputs: int, block: int, stream: RandomStream) -> nn.Module:
    """On real numbers."""
    return BlockCirculantLinear(inputs, outputs, block, stream, is_complex=False)


# Append lines here: name, network, shape of one record.
CASES: dict[str, LayerCase] = {
    "Conv2d 5x5": LayerCase(lambda _: nn.Conv2d(3, 4, 5, padding=2), (3, 8, 7)),
    "Conv2d 5x5, no bias, stride": LayerCase(lambda _: nn.Conv2d(3, 4, 5, padding=2, stride=2, bias=False), (3, 9, 8)),
    "Conv2d 4x4, groups, dilation": LayerCase(lambda _: nn.Conv2d(4, 6, 4, padding=3, dilation=2, groups=2), (4, 8, 8)),
    "Conv2d 3x3, few positions (Gram)": LayerCase(lambda _: nn.Conv2d(8, 24, 3), (8, 3, 4)),
    "Conv2d 3x3, shared": LayerCase(lambda _: Twice(nn.Conv2d(2, 2, 3, padding=1)), (2, 6, 6)),
    "Conv2d 3x3, circular padding (no rule)": LayerCase(lambda _: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 6, 6)),
    "Conv1d 8": LayerCase(lambda _: nn.Conv1d(3, 5, 8, padding=2), (3, 16)),
    "ConvTranspose2d 4x4": LayerCase(lambda _: nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1), (3, 4, 4)),
    "BlockCirculantLinear": LayerCase(lambda s: circulant(16, 24, 8, s), (16,)),
    "BlockCirculantLinear, odd block, filled up": LayerCase(lambda s: circulant(13, 17, 5, s), (13,)),
    "BlockCirculantLinear, positions": LayerCase(lambda s: circulant(12, 8, 4, s), (6, 12)),
    "BlockCirculantLinear, shared": LayerCase(lambda s: Twice(circulant(12, 12, 6, s)), (12,)),
    "convolution, circulant, norm, dense": LayerCase(
        lambda s: nn.Sequential(
            nn.Conv2d(2, 4, 5, padding=2), Bend(), nn.GroupNorm(2, 4), nn.Flatten(), circulant(144, 20, 10, s), Bend(), nn.Linear(20, 3)
        ),
        (2, 6, 6),
    ),
}


def spectra_of(network: nn.Module, ratio: float, transform: int | None) -> tuple[LayerSpectrum, ...]:
    """Every convolution's kernels and every circulant layer's blocks; a transform size is for kernels."""
    spectra: list[LayerSpectrum] = []
    for layer in layers_of(network):
        weight = layer.module.get_parameter("weight") if "weight" in layer.names else None
        if weight is None or not isinstance(layer.module, (*CONVOLUTIONS, BlockCirculantLinear)):
            continue
        axes = 1 if isinstance(layer.module, BlockCirculantLinear) else weight.ndim - 2
        shape = tuple(weight.shape[-axes:])
        of_kernel = shape if transform is None or isinstance(layer.module, BlockCirculantLinear) else (transform,) * axes
        kept = tuple(kept_frequencies(length, ratio) for length in of_kernel)
        signals = weight.numel() // torch.Size(shape).numel()
        spectra.append(LayerSpectrum(layer=layer.name, signals=signals, shape=shape, transform=of_kernel, kept=kept))
    return tuple(spectra)


def filtered(signals: Tensor, spectrum: LayerSpectrum) -> Tensor:
    """(..., *shape) -> (..., *transform): filled up with zeros, transformed, cut to the kept frequencies, transformed back."""
    axes = tuple(range(-len(spectrum.shape), 0))
    coefficients = torch.fft.fftn(signals, s=spectrum.transform, dim=axes, norm="ortho")
    for axis, length, kept in zip(axes, spectrum.transform, spectrum.kept, strict=True):
        frequencies = torch.arange(length)
        keeps = torch.minimum(frequencies, length - frequencies) < kept
        coefficients = coefficients * keeps.reshape(-1, *[1] * (-axis - 1))
    return torch.fft.ifftn(coefficients, dim=axes, norm="ortho").real


def cropped(signals: Tensor, spectrum: LayerSpectrum) -> Tensor:
    """(..., *transform) -> (..., *shape)."""
    return signals[(..., *(slice(length) for length in spectrum.shape))]


def naive_sum(problem: Problem, projection: SpectralProjection, bounds: Mapping[str, float]) -> dict[str, Tensor]:
    """Of every unit: each layer clipped to its bound, before or after the filter, added up in float64."""
    spectra = {spectrum.layer: spectrum for spectrum in projection.layers}
    total: dict[str, Tensor] = {}
    for unit in unit_gradients(problem):
        for layer in layers_of(problem.network):
            spectrum = spectra.get(layer.name)
            whole = {own: unit[full] for own, full in layer.names.items()}
            kept = whole if spectrum is None else whole | {"weight": filtered(whole["weight"], spectrum)}
            clipped = whole if projection.order == "clip_then_filter" else kept
            length = float(torch.stack([value.square().sum() for value in clipped.values()]).sum().sqrt())
            factor = min(1.0, bounds[layer.name] * (1.0 - CLIP_MARGIN) / length)
            for own, full in layer.names.items():
                value = cropped(kept[own], spectrum) if spectrum is not None and own == "weight" else kept[own]
                total[full] = total.get(full, 0.0) + factor * value
    return total


def bounds_of(problem: Problem) -> dict[str, float]:
    """Of each layer: its units' median norm, half of it for every second layer."""
    bounds: dict[str, float] = {}
    units = list(unit_gradients(problem))
    for place, layer in enumerate(layers_of(problem.network)):
        lengths = [float(sum(unit[full].square().sum() for full in layer.names.values()) ** 0.5) for unit in units]
        bounds[layer.name] = sorted(lengths)[len(lengths) // 2] / (1 + place % 2)
    return bounds


def clipping_of(bounds: Mapping[str, float]) -> LayerBoundsClipping:
    """What the plan carries."""
    return LayerBoundsClipping(layers=tuple(LayerBound(layer=name, bound=bound) for name, bound in bounds.items()))


def relative_error(case: LayerCase, members: Tensor | None, order: str, ratio: float, transform: int | None) -> float:
    """Of the engine's clipped sum, taken back to weights, against the naive loop's, in l2."""
    # In a row, since a layer of a projection has a name.
    problem = problem_of(replace(case, network=lambda stream: nn.Sequential(case.network(stream))), members)
    bounds = bounds_of(problem)
    projection = SpectralProjection.model_validate({"order": order, "layers": spectra_of(problem.network, ratio, transform)})
    clipping = clipping_of(bounds)
    engine = ClippedGradients(problem, clipping, MICROBATCH, projection)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    total = engine.sum(parameters, torch.arange(problem.units), clipping.bound).total
    assert engine.spectra is not None
    got = engine.spectra.gradient(total.double())
    reference = engine.layout.flatten(naive_sum(problem, projection, bounds))
    return float((got - reference).norm() / reference.norm())


@final
@dataclass(frozen=True)
class Ratios:
    """How far one unit moved the released coordinates, as parts of the bounds, at most: in any layer, and altogether."""

    network: nn.Module
    worst_layer: float
    worst_whole: float


def random_ratios(order: str, seed: int) -> Ratios:
    r"""Of a random network with convolutions, circulant layers, a norm and a dense layer, on units of wildly different sizes.

    Every unit is left out once; ratio and transform size are drawn too.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        problem = _random_problem(RandomStream.from_seed(seed, "random network"))
        bounds = {layer.name: float(10.0 ** torch.empty(1).uniform_(-3.0, 1.0)) for layer in layers_of(problem.network)}
        ratio, transform = (float(torch.rand(1)) * 0.9, 0.75)[seed % 2], (None, 6, 17, 32)[seed % 4]
    clipping = clipping_of(bounds)
    projection = SpectralProjection.model_validate({"order": order, "layers": spectra_of(problem.network, ratio, transform)})
    engine = ClippedGradients(problem, clipping, 64, projection)
    assert engine.spectra is not None
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    units = torch.arange(problem.units)
    everybody = engine.sum(parameters, units, clipping.bound).total
    layer, whole = 0.0, 0.0
    for unit in units:
        moved = everybody.double() - engine.sum(parameters, units[units != unit], clipping.bound).total.double()
        whole = max(whole, float(moved.norm()) / clipping.bound)
        pieces = engine.spectra.layout.unflatten(moved)
        for of_layer in layers_of(problem.network):
            length = torch.cat([pieces[full].flatten() for full in of_layer.names.values()]).norm()
            layer = max(layer, float(length) / bounds[of_layer.name])
    return Ratios(problem.network, layer, whole)


def _random_problem(stream: RandomStream) -> Problem:
    kernel, width, block = (int(torch.randint(low, high, (1,))) for low, high in ((3, 6), (3, 9), (3, 11)))
    network = nn.Sequential(
        nn.Conv2d(2, width, kernel, padding=2, stride=int(torch.randint(1, 3, (1,)))),
        Bend(),
        nn.Conv2d(width, 5, 3, padding=1),
        nn.GroupNorm(1, 5),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        circulant(45, 24, block, stream),
        nn.Tanh(),
        circulant(24, 11, 4, stream),
        nn.Tanh(),
        nn.Linear(11, 3),
    )
    count = 24
    sizes = torch.logspace(-4, 2, count)[torch.randperm(count)].reshape(-1, 1, 1, 1)
    features = sizes * torch.randn(count, 2, 9, 8)
    return Problem(network, squared_errors, features, 3.0 * torch.randn(count, 3), None)


SETTINGS = [(order, ratio, transform) for order, (ratio, transform) in product(ORDERS, ((0.5, None), (0.7, None), (0.5, 12), (0.6, 9)))]
"""Order, ratio, transform."""


def main() -> None:
    """Prints the worst relative error of each case over all settings, by record and by user, and how far one unit moved a sum."""
    sys.stdout.write(f"{'network':52s} {'records':>9s} {'users':>9s}\n")
    for name, case in CASES.items():
        errors = [max(relative_error(case, members, *setting) for setting in SETTINGS) for members in (None, MEMBERS)]
        sys.stdout.write(f"{name:52s} " + " ".join(f"{error:9.1e}" for error in errors) + "\n")
    for order in ORDERS:
        ratios = [random_ratios(order, seed) for seed in range(24)]
        layer, whole = max(one.worst_layer for one in ratios), max(one.worst_whole for one in ratios)
        sys.stdout.write(f"{order}: one unit moved a layer by {layer:.6f} of its bound, everything by {whole:.6f} of C, at most\n")


if __name__ == "__main__":
    main()
