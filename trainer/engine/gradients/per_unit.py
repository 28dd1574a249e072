r"""The routes from parameters to per-unit gradients; the route is chosen once and checked once against ordinary autograd."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor, nn

from zetadp.trainer.engine.gradients.explicit import module_gradients, network_gradients, per_unit, single_gradients
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.gradients.tape import Tape, in_place
from zetadp.trainer.layers.rules import RULES, ExplicitGradients, LayerGradients, UnsupportedLayer, Use
from zetadp.trainer.layers.rules.base import squared_rows
from zetadp.trainer.layers.standardised import StandardisedConv2d


@final
@dataclass(frozen=True)
class Microbatch:
    r"""Records of some units, unit-major.

    Attributes:
      features: (units * records_per_unit, ...); ``targets`` likewise.
      weights: (units * records_per_unit,), 1 for records and 0 for padding; None without padding.
      squares: squared norms of the features, (units * records_per_unit,), where known: they are the same in every step.
    """

    features: Tensor
    targets: Tensor
    weights: Tensor | None
    units: int
    squares: Tensor | None


@final
@dataclass(frozen=True)
class Layer:
    """A module that has parameters itself; ``names``: each parameter's name in the module -> its name in the network."""

    name: str
    module: nn.Module
    names: Mapping[str, str]


class Route(Protocol):
    """From parameters and records to the gradients of each layer, in the order of the layers."""

    def gradients(self, parameters: Mapping[str, Tensor], batch: Microbatch) -> list[LayerGradients]: ...


def layers_of(network: nn.Module) -> list[Layer]:
    """The modules that have parameters themselves; a parameter shared by several belongs to the first."""
    seen: set[int] = set()
    layers: list[Layer] = []
    for prefix, module in network.named_modules():
        names: dict[str, str] = {}
        for own, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                names[own] = f"{prefix}.{own}" if prefix else own
        if names:
            layers.append(Layer(prefix, module, names))
    return layers


def filters_in_a_row(layers: Sequence[Layer], device: str) -> list[str]:
    r"""Names of the filters of real convolutions over images, where there are several: on a CPU they are faster with channels last.

    After a single one its outputs would be brought into another order for what follows, at a greater cost.
    """
    found = [layer.names["weight"] for layer in layers if type(layer.module) in (nn.Conv2d, StandardisedConv2d)]
    return found if len(found) > 1 and device == "cpu" else []


def squared_features(features: Tensor) -> Tensor | None:
    """Each record's squared norm, for a linear first layer; None where features are integers, or read when they are asked for."""
    if not isinstance(features, Tensor):
        return None
    return squared_rows(features) if features.is_complex() or features.is_floating_point() else None


def summed_loss(problem: Problem, outputs: Tensor, batch: Microbatch) -> Tensor:
    """The loss summed over the records; padding's loss doesn't count, and no gradient flows into it."""
    losses = problem.losses(outputs, batch.targets)
    if batch.weights is None:
        return losses.sum()
    return torch.where(batch.weights > 0, losses, 0.0).sum()


@final
class TapedRoute:
    r"""Every layer by its rule, or by itself: one forward and one backward pass.

    Args:
      channels_last: names of filters (outputs, inputs, height, width) that are kept in this order in memory, and so are their outputs.
    """

    def __init__(self, problem: Problem, layers: Sequence[Layer], channels_last: Sequence[str] = ()) -> None:
        self._problem = problem
        self._layers = layers
        self._taped = {layer.name: layer.module for layer in layers if not takes_batched_parameters(layer.module)}
        self._channels_last = channels_last
        # Linear layers' rows are filled up where they don't keep their bits otherwise.
        self.fills_rows = False

    def gradients(self, parameters: Mapping[str, Tensor], batch: Microbatch) -> list[LayerGradients]:
        records = len(batch.features)
        frozen = {name: value.detach() if value.requires_grad else value for name, value in parameters.items()}
        for name in self._channels_last:
            # Copied: with one input channel the weight already counts as such, and its outputs wouldn't be.
            frozen[name] = frozen[name].clone(memory_format=torch.channels_last)
        leaves: dict[str, Tensor] = {}
        for layer in self._layers:
            if layer.name not in self._taped:
                # One parameter per record: autograd then returns each record's gradient, at the cost of the summed one.
                leaves |= {full: frozen[full].expand(records, *frozen[full].shape).requires_grad_() for full in layer.names.values()}
        tape = Tape(self._taped, batch.features, batch.squares, fills_rows=self.fills_rows)
        places = [(layer.module, own, leaves.get(full, frozen[full])) for layer in self._layers for own, full in layer.names.items()]
        with in_place(places):  # to the end: a rule may read the parameters
            with torch.enable_grad():
                outputs = tape.forward(self._problem.network)
                loss = summed_loss(self._problem, outputs, batch)
            del outputs
            uses, slopes = tape.backward(loss, list(leaves.values()))
            of_leaves = {
                name: per_unit(torch.zeros_like(leaf) if slope is None else slope, batch.units)
                for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
            }
            return [self._layer_gradients(layer, frozen, uses, of_leaves, batch.units) for layer in self._layers]

    def _layer_gradients(
        self, layer: Layer, parameters: Mapping[str, Tensor], uses: Mapping[str, list[Use]], of_leaves: Mapping[str, Tensor], units: int
    ) -> LayerGradients:
        if layer.name not in self._taped:
            return ExplicitGradients({own: of_leaves[full] for own, full in layer.names.items()})
        own = {name: parameters[full] for name, full in layer.names.items()}
        if not (of_layer := uses[layer.name]):
            return ExplicitGradients({name: value.new_zeros(units, *value.shape) for name, value in own.items()})
        if (rule := RULES.get(type(layer.module))) is not None:
            with contextlib.suppress(UnsupportedLayer):
                return rule(layer.module, of_layer, units)
        return module_gradients(layer.module, own, of_layer, units)


@final
class WholeNetworkRoute:
    r"""Every record's gradient of every parameter, all held at once: for networks with layers that can't be taken one by one.

    Args:
      is_one_by_one: by a pass for each record instead of torch.func, which can't differentiate everything.
    """

    def __init__(self, problem: Problem, layers: Sequence[Layer], *, is_one_by_one: bool) -> None:
        self._problem = problem
        self._layers = layers
        self.is_one_by_one = is_one_by_one
        self._compute = single_gradients if is_one_by_one else network_gradients

    def gradients(self, parameters: Mapping[str, Tensor], batch: Microbatch) -> list[LayerGradients]:
        problem = self._problem
        weights = torch.ones(len(batch.features), device=batch.features.device) if batch.weights is None else batch.weights
        named = self._compute(problem.network, problem.losses, parameters, batch.features, batch.targets, weights, batch.units)
        return [ExplicitGradients({own: named[full] for own, full in layer.names.items()}) for layer in self._layers]


def takes_batched_parameters(module: nn.Module) -> bool:
    """Whether a module's parameters may have a leading axis of records."""
    return bool(getattr(type(module), "batched_parameters", False))
