r"""Chooses a network's route once, before training, and checks it against ordinary autograd on made-up records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from mechanisms.errors import InvalidParameter
from trainer.engine.gradients import (
    Layer,
    Microbatch,
    Route,
    TapedRoute,
    WholeNetworkRoute,
    layers_of,
    squared_features,
    summed_loss,
    takes_batched_parameters,
)
from trainer.engine.parameters import as_real
from trainer.engine.probe import SEED, made_up_features, same_randomness, some_targets
from trainer.engine.problem import Problem
from trainer.engine.rules import LayerGradients
from trainer.engine.tape import UnsuitableCall

UNITS = 3

AGREEMENT = 1e-3
"""Relative to the sum of the units' norms in a layer. Rounding is 1e-5; a gradient with a term missing is off by far more."""


def plan_route(problem: Problem) -> tuple[list[Layer], Route]:
    r"""The layers, and the cheapest route that gives the right gradients.

    Raises:
      InvalidParameter: no route works.
    """
    layers = layers_of(problem.network)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    if _each_parameter_has_its_module(problem.network, layers):
        taped = TapedRoute(problem, layers)
        if _agrees(problem, layers, taped, parameters):
            return layers, taped
    whole = WholeNetworkRoute(problem, layers)
    try:
        whole.gradients(parameters, _made_up_batch(problem))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InvalidParameter("network", "one that torch.func can differentiate record by record", reason) from error
    return layers, whole


def _each_parameter_has_its_module(network: nn.Module, layers: Sequence[Layer]) -> bool:
    """No parameter is shared between modules, and none belongs to a module around others that have parameters."""
    owned = sum(1 for module in network.modules() for _ in module.named_parameters(recurse=False))
    if owned != sum(len(layer.names) for layer in layers):
        return False
    return all(takes_batched_parameters(layer.module) or sum(1 for _ in layer.module.parameters()) == len(layer.names) for layer in layers)


def _made_up_batch(problem: Problem) -> Microbatch:
    records = UNITS * min(problem.records_per_unit, 2)
    features = made_up_features(problem, records)
    return Microbatch(features, some_targets(problem, records), None, UNITS, squared_features(features))


def _agrees(problem: Problem, layers: Sequence[Layer], route: Route, parameters: Mapping[str, Tensor]) -> bool:
    """Whether sums and norms are those of autograd, and of each other."""
    try:
        with same_randomness(problem.features.device, SEED):
            gradients = route.gradients(parameters, _made_up_batch(problem))
        expected = _autograd(problem, parameters, _made_up_batch(problem))
    except (UnsuitableCall, RuntimeError):
        return False
    return all(_layer_agrees(layer, of_layer, expected) for layer, of_layer in zip(layers, gradients, strict=True))


def _layer_agrees(layer: Layer, gradients: LayerGradients, expected: Mapping[str, Tensor]) -> bool:
    norms = gradients.squared_norms().double().sqrt()
    tolerance = AGREEMENT * norms.sum() + 1e-12
    total = gradients.weighted_sum(torch.ones(UNITS, device=norms.device))
    difference = _length([total[own] - expected[full] for own, full in layer.names.items()])
    alone = [_length(list(gradients.weighted_sum(pick).values())) for pick in torch.eye(UNITS, device=norms.device)]
    return bool(difference <= tolerance) and bool(((torch.stack(alone) - norms).abs() <= tolerance).all())


def _autograd(problem: Problem, parameters: Mapping[str, Tensor], batch: Microbatch) -> dict[str, Tensor]:
    """Gradients of the summed loss by name."""
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad(), same_randomness(batch.features.device, SEED):
        loss = summed_loss(problem, functional_call(problem.network, leaves, (batch.features,)), batch)
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    found = zip(leaves.items(), gradients, strict=True)
    return {name: torch.zeros_like(leaf) if gradient is None else gradient for (name, leaf), gradient in found}


def _length(tensors: list[Tensor]) -> Tensor:
    return torch.stack([as_real(tensor).double().square().sum() for tensor in tensors]).sum().sqrt()
