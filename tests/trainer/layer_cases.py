r"""Every layer type that the engine takes, for the test that its clipped sum is the naive loop's. A new layer is one line in ``CASES``.

``python -m tests.trainer.layer_cases`` prints the worst error of each.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer import layers
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN, ClippedGradients
from zetadp.trainer.engine.gradients.per_unit import layers_of
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.layers.blocks import sequences
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.linear import PlanarLinear
from zetadp.trainer.layers.standardised import (
    StandardisedComplexLinear,
    StandardisedConv1d,
    StandardisedConv2d,
    StandardisedLinear,
    StandardisedPlanarConv1d,
    StandardisedPlanarConv2d,
)
from zetadp.trainer.specs.execution_plan import FlatClipping, PerLayerClipping

RECORDS = 14
MICROBATCH = 6
C = torch.complex64


@final
@dataclass(frozen=True)
class LayerCase:
    """A network around one layer type; ``record``: shape of a record; ``taped``: False where only the whole network's gradient will do."""

    network: Callable[[RandomStream], nn.Module]
    record: tuple[int, ...]
    is_complex: bool = False
    taped: bool = True


@final
class Twice(nn.Module):
    """The same layer, two times: its gradient is a sum over uses."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(bend(self.layer(x)))


@final
class Polynomial(nn.Module):
    """Of no type that has a rule: a complex and a real parameter, and a child without any."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1 + 1j, 0.5 - 1j, -0.3j]))
        self.shift = nn.Parameter(torch.tensor([0.3, -0.2, 0.1]))
        self.child = nn.Identity()

    def forward(self, z: Tensor) -> Tensor:
        return self.child(self.scale * z**2) + self.shift


@final
class Tied(nn.Module):
    """One parameter in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, dtype=C), nn.Linear(4, 4, dtype=C)
        self.second.weight = self.first.weight

    def forward(self, z: Tensor) -> Tensor:
        return self.second(bend(self.first(z)))


@final
class Owner(nn.Module):
    """A parameter of a module around others that have parameters, and a weight that is used behind its module's back."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * nn.functional.linear(self.layer(x).square(), self.layer.weight)


@final
class Borrower(nn.Module):
    """Uses a layer's weight without calling the layer: no hook sees that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(bend(self.layer(x)), self.layer.weight)


@final
class Folded(nn.Module):
    """Gives a layer positions as if they were records."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def bend(x: Tensor) -> Tensor:
    """Not linear, and for complex numbers neither real nor symmetric under conjugation."""
    return x + 0.2 * x.square()


@final
class Whole(nn.Module):
    """Numbers as rows of a table of four."""

    def forward(self, x: Tensor) -> Tensor:
        return x.round().clamp(0, 3).long()


@final
class Alike(nn.Module):
    """A table that is looked into twice, at other places."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, numbers: Tensor) -> Tensor:
        return bend(self.table(numbers)) * self.table(3 - numbers)


@final
class Bend(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return bend(x)


def between(make: Callable[[RandomStream], nn.Module], width: int) -> Callable[[RandomStream], nn.Module]:
    """The layer in the middle: its input's gradient is needed too."""
    return lambda s: nn.Sequential(nn.Linear(width, width), Bend(), make(s), Bend(), nn.Linear(width, width))


# Append lines here: name, network, shape of one record. Planes are real tensors of twice the channels.
CASES: dict[str, LayerCase] = {
    "Linear": LayerCase(between(lambda _: nn.Linear(5, 5), 5), (5,)),
    "Linear, no bias": LayerCase(lambda _: nn.Linear(5, 3, bias=False), (5,)),
    "Linear, complex": LayerCase(lambda _: nn.Linear(5, 3, dtype=C), (5,), True),
    "Linear, few positions (Gram)": LayerCase(lambda _: nn.Linear(12, 10), (2, 12)),
    "Linear, many positions (explicit)": LayerCase(lambda _: nn.Linear(3, 4), (4, 5, 3)),
    "Linear, complex, few positions (Gram)": LayerCase(lambda _: nn.Linear(12, 10, dtype=C), (2, 12), True),
    "Linear, complex, many positions (explicit)": LayerCase(lambda _: nn.Linear(3, 4, bias=False, dtype=C), (9, 3), True),
    "Linear, shared": LayerCase(lambda _: Twice(nn.Linear(4, 4)), (4,)),
    "Linear, complex, shared": LayerCase(lambda _: Twice(nn.Linear(6, 6, dtype=C)), (6,), True),
    "PlanarLinear": LayerCase(lambda s: nn.Sequential(PlanarLinear(3, 5, s, bias=True), Bend(), PlanarLinear(5, 3, s, bias=False)), (6,)),
    "PlanarLinear twice": LayerCase(lambda s: Twice(PlanarLinear(3, 3, s, bias=True)), (6,)),
    "ComplexLinear": LayerCase(lambda s: nn.Sequential(layers.ComplexLinear(6, 5, s), Bend(), layers.ComplexLinear(5, 3, s)), (6,), True),
    "BlockCirculantLinear": LayerCase(lambda s: layers.BlockCirculantLinear(8, 12, 4, s, is_complex=False), (8,)),
    "BlockCirculantLinear, complex": LayerCase(lambda s: layers.BlockCirculantLinear(8, 12, 4, s, is_complex=True), (8,), True),
    "Conv1d": LayerCase(lambda _: nn.Conv1d(3, 5, 3, padding=1), (3, 9)),
    "Conv1d, complex": LayerCase(lambda _: nn.Conv1d(2, 3, 3, stride=2, dtype=C), (2, 9), True),
    "Conv2d": LayerCase(lambda _: nn.Conv2d(3, 4, 3, padding=1), (3, 6, 5)),
    "Conv2d, stride, dilation, groups": LayerCase(
        lambda _: nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False), (4, 7, 6)
    ),
    "Conv2d, complex": LayerCase(lambda _: nn.Conv2d(2, 3, 3, dtype=C), (2, 5, 5), True),
    "Conv2d, circular padding (no rule)": LayerCase(lambda _: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)),
    "ConvTranspose1d": LayerCase(lambda _: nn.ConvTranspose1d(3, 4, 3, stride=2), (3, 5)),
    "ConvTranspose2d": LayerCase(lambda _: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (3, 4, 4)),
    "PlanarConv1d": LayerCase(lambda s: layers.PlanarConv1d(2, 3, 3, s, padding=1), (4, 8)),
    "PlanarConv2d": LayerCase(lambda s: layers.PlanarConv2d(2, 3, 3, s, stride=2), (4, 7, 6)),
    "PlanarConvTranspose2d": LayerCase(lambda s: layers.PlanarConvTranspose2d(2, 3, 2, s, stride=2), (4, 4, 4)),
    "StandardisedConv1d": LayerCase(lambda _: nn.Sequential(StandardisedConv1d(3, 5, 3, padding=1), Bend()), (3, 9)),
    "StandardisedConv2d, shared": LayerCase(lambda _: Twice(StandardisedConv2d(4, 4, 3, padding=1, groups=2)), (4, 5, 4)),
    "StandardisedPlanarConv1d": LayerCase(lambda s: StandardisedPlanarConv1d(2, 3, 3, s, padding=1), (4, 8)),
    "StandardisedPlanarConv2d": LayerCase(lambda s: nn.Sequential(StandardisedPlanarConv2d(2, 3, 3, s, stride=2), Bend()), (4, 7, 6)),
    "StandardisedConv2d, stride, dilation": LayerCase(
        lambda _: nn.Sequential(StandardisedConv2d(3, 4, 3, stride=2, padding=2, dilation=2, bias=False), Bend()), (3, 7, 6)
    ),
    "StandardisedConv2d, circular padding (no rule)": LayerCase(
        lambda _: StandardisedConv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 5)
    ),
    "StandardisedPlanarConv2d, groups, shared": LayerCase(
        lambda s: Twice(StandardisedPlanarConv2d(4, 4, 3, s, padding=1, groups=2)), (8, 5, 4)
    ),
    "StandardisedLinear": LayerCase(between(lambda _: StandardisedLinear(6, 6), 6), (6,)),
    "StandardisedLinear, one output": LayerCase(lambda _: StandardisedLinear(7, 1), (7,)),
    "StandardisedLinear, few positions (Gram)": LayerCase(lambda _: StandardisedLinear(12, 10), (2, 12)),
    "StandardisedLinear, many positions (explicit)": LayerCase(lambda _: StandardisedLinear(3, 4, bias=False), (4, 5, 3)),
    "StandardisedLinear, shared": LayerCase(lambda _: Twice(StandardisedLinear(4, 4)), (4,)),
    "StandardisedComplexLinear": LayerCase(lambda s: StandardisedComplexLinear(6, 5, s, bias=True), (6,), True),
    "StandardisedComplexLinear, few positions": LayerCase(lambda s: StandardisedComplexLinear(12, 10, s, bias=True), (2, 12), True),
    "StandardisedComplexLinear, planes, shared": LayerCase(lambda s: Twice(StandardisedComplexLinear(3, 3, s, bias=True)), (6,)),
    "Conv2d, shared": LayerCase(lambda _: Twice(nn.Conv2d(2, 2, 3, padding=1)), (2, 5, 5)),
    "GroupNorm": LayerCase(lambda _: nn.Sequential(nn.GroupNorm(2, 4), Bend()), (4, 5, 3)),
    # Of three numbers a group, not two: how far two are apart says nothing in float32 where they happen to be close.
    "GroupNorm, no positions": LayerCase(between(lambda _: nn.GroupNorm(2, 6), 6), (6,)),
    "LayerNorm": LayerCase(between(lambda _: nn.LayerNorm(5), 5), (5,)),
    "LayerNorm, positions": LayerCase(lambda _: nn.LayerNorm((3, 4)), (2, 3, 4)),
    "ComplexGroupNorm": LayerCase(lambda _: layers.ComplexGroupNorm(2, 4), (8, 4, 3)),
    "ComplexInstanceNorm": LayerCase(lambda _: layers.ComplexInstanceNorm(3), (6, 4, 4)),
    "ComplexLayerNorm": LayerCase(lambda _: nn.Sequential(layers.ComplexLayerNorm(5), Bend()), (5,), True),
    "TrainableCardioid": LayerCase(lambda _: layers.TrainableCardioid(4), (4,), True),
    "TrainableCardioid, single": LayerCase(lambda _: Twice(layers.TrainableCardioid(1)), (4,), True),
    "TrainableModRelu": LayerCase(lambda _: layers.TrainableModRelu(3), (3,), True),
    "TrainableModRelu, planes": LayerCase(lambda _: layers.TrainableModRelu(3), (6, 4, 2)),
    "TrainableCardioid, planes": LayerCase(lambda _: nn.Sequential(layers.TrainableCardioid(2), Bend()), (4, 5)),
    "TrainableCardioid, planes, single, shared": LayerCase(lambda _: Twice(layers.TrainableCardioid(1)), (4, 5)),
    "ComplexLayerNorm, planes": LayerCase(lambda _: layers.ComplexLayerNorm(2), (4, 6)),
    "ChannelAffine": LayerCase(lambda _: nn.Sequential(layers.ChannelAffine(3, is_complex=False), Bend()), (3, 4)),
    "ChannelAffine, no positions": LayerCase(between(lambda _: layers.ChannelAffine(5, is_complex=False), 5), (5,)),
    "ChannelAffine, planes, shared": LayerCase(lambda _: Twice(layers.ChannelAffine(2, is_complex=True)), (4, 3, 2)),
    "ChannelAffine, complex": LayerCase(lambda _: nn.Sequential(layers.ChannelAffine(3, is_complex=True), Bend()), (3,), True),
    "Embedding": LayerCase(lambda _: nn.Sequential(Whole(), nn.Embedding(4, 3), Bend()), (7,)),
    "Embedding, padding, shared": LayerCase(lambda _: nn.Sequential(Whole(), Alike(nn.Embedding(4, 3, padding_idx=1))), (5,)),
    "TokenEmbedding": LayerCase(lambda s: nn.Sequential(sequences.TokenEmbedding(4, 3, s, is_complex=False), Bend()), (7,)),
    "TokenEmbedding, complex": LayerCase(lambda s: nn.Sequential(sequences.TokenEmbedding(4, 3, s, is_complex=True), Bend()), (7,)),
    "PositionEmbedding": LayerCase(lambda _: nn.Sequential(sequences.PositionEmbedding(3, 4, is_complex=False), Bend()), (3, 4)),
    "PositionEmbedding, planes": LayerCase(lambda _: Twice(sequences.PositionEmbedding(2, 4, is_complex=True)), (4, 4)),
    "PositionNorm": LayerCase(lambda _: nn.Sequential(sequences.PositionNorm(5, is_complex=False), Bend()), (5, 4)),
    "PositionNorm, planes": LayerCase(lambda _: nn.Sequential(sequences.PositionNorm(5, is_complex=True), Bend()), (10, 4)),
    "a module without a rule": LayerCase(lambda _: nn.Sequential(Polynomial(), Bend()), (3,), True),
    "a module without a rule, shared": LayerCase(lambda _: Twice(Polynomial()), (3,), True),
    "PReLU (no rule)": LayerCase(between(lambda _: nn.PReLU(5), 5), (5,)),
    "positions given as records": LayerCase(lambda _: Folded(), (3, 4), taped=False),
    "tied parameters": LayerCase(lambda _: Tied(), (4,), True, taped=False),
    "a parameter around others": LayerCase(lambda _: Owner(), (4,), taped=False),
    "a weight used behind its module's back": LayerCase(lambda _: Borrower(), (4,), taped=False),
}

MEMBERS = torch.tensor([[0, 1, 2], [3, -1, -1], [4, 5, -1], [6, 7, 8], [12, 13, -1]])
"""Users of one to three records, some of nobody's left over."""


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of every record, half the squared distance from its target, real pairs of complex numbers."""
    return 0.5 * as_real(outputs - targets).square().flatten(1).sum(dim=1)


def problem_of(case: LayerCase, members: Tensor | None, records: int = RECORDS) -> Problem:
    """Records of sizes from 0.1 to 3, so that some gradients are clipped and some aren't."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = case.network(RandomStream.from_seed(3, "layer cases"))
        with torch.no_grad():
            for parameter in network.parameters():
                as_real(parameter).add_(0.1 * torch.randn(as_real(parameter).shape))  # away from zeros and ones
        features = _normal((records, *case.record), case.is_complex)
        features *= torch.logspace(-1, 0.5, records)[torch.randperm(records)].reshape(-1, *(1 for _ in case.record))
        with torch.no_grad():
            outputs = network(features)
        targets = _normal(tuple(outputs.shape), outputs.is_complex())
    return Problem(network, squared_errors, features, targets, members)


def unit_gradients(problem: Problem) -> Iterator[dict[str, Tensor]]:
    """Of each unit by ordinary autograd, one record at a time, in double precision."""
    network = copy.deepcopy(problem.network)
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = _double(tensor.data)
    for unit in range(problem.units):
        rows = [unit] if problem.members is None else [row for row in problem.members[unit].tolist() if row >= 0]
        network.zero_grad()
        for row in rows:
            # ``functional_call`` without values: what a plain call does.
            output = functional_call(network, {}, (_double(problem.features[row : row + 1]),))
            problem.losses(output, _double(problem.targets[row : row + 1])).sum().backward()
        yield {name: value.grad.clone() for name, value in network.named_parameters() if value.grad is not None}


def clipped_loop(problem: Problem, bound: float | None, per_layer: bool) -> tuple[dict[str, Tensor], float, int]:
    """The naive loop's sum, the bound (None: the median norm, with which half is clipped), and how many units were within it."""
    units = list(unit_gradients(problem))
    groups = [list(layer.names.values()) for layer in layers_of(problem.network)] if per_layer else [list(units[0])]
    if bound is None:
        bound = sorted(_length(unit, list(unit)) for unit in units)[len(units) // 2]
    share = bound / len(groups) ** 0.5
    total = {name: torch.zeros_like(value) for name, value in units[0].items()}
    within = 0
    for unit in units:
        lengths = [_length(unit, names) for names in groups]
        within += max(lengths) <= share
        for names, length in zip(groups, lengths, strict=True):
            for name in names:
                total[name] += unit[name] * min(1.0, share * (1.0 - CLIP_MARGIN) / length)
    return total, bound, within


def relative_error(case: LayerCase, members: Tensor | None, per_layer: bool) -> float:
    """Of the engine's clipped sum against the loop's, in l2."""
    problem = problem_of(case, members)
    expected, bound, within = clipped_loop(problem, None, per_layer)
    assert 0 < within < problem.units or per_layer
    clipping = PerLayerClipping(bound=bound) if per_layer else FlatClipping(bound=bound)
    engine = ClippedGradients(problem, clipping, MICROBATCH)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    got = engine.sum(parameters, torch.arange(problem.units), bound).total.double()
    reference = engine.layout.flatten(expected)
    return float((got - reference).norm() / reference.norm())


def _normal(shape: tuple[int, ...], is_complex: bool) -> Tensor:
    return torch.view_as_complex(torch.randn(*shape, 2)) if is_complex else torch.randn(shape)


def _double(values: Tensor) -> Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64)


def _length(gradients: dict[str, Tensor], names: list[str]) -> float:
    return float(torch.stack([as_real(gradients[name]).square().sum() for name in names]).sum().sqrt())


def main() -> None:
    """Prints a table: the worst relative error of each layer type, flat, per layer and by user."""
    sys.stdout.write(f"{'layer':52s} {'flat':>9s} {'per layer':>9s} {'by user':>9s}\n")
    for name, case in CASES.items():
        errors = [relative_error(case, members, per_layer) for members, per_layer in ((None, False), (None, True), (MEMBERS, False))]
        sys.stdout.write(f"{name:52s} " + " ".join(f"{error:9.1e}" for error in errors) + "\n")


if __name__ == "__main__":
    main()
