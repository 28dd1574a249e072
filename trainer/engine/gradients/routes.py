r"""Chooses a network's route once, before training, and checks it against ordinary autograd on made-up records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.gradients.inputs import is_numeric, mapped, parts_of
from zetadp.trainer.engine.gradients.per_unit import (
    Layer,
    Microbatch,
    Route,
    TapedRoute,
    WholeNetworkRoute,
    filters_in_a_row,
    layers_of,
    squared_features,
    takes_batched_parameters,
)
from zetadp.trainer.engine.gradients.probe import SEED, made_up_features, made_up_parameters, mode, some_targets, uneven
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.engine.gradients.tape import UnsuitableCall
from zetadp.trainer.engine.torch_seed import torch_seeded
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.layers.rules import LayerGradients

UNITS = 3

AGREEMENT = 1e-2
"""Relative to a unit's gradient in a layer. Rounding is 1e-5, in half precision 2^-8; a gradient that lacks a term is off by more."""

ROUNDING = 1e-5
"""Relative to a unit's whole gradient: a layer's part of it may be only rounding errors, like that of a bias before a norm layer."""

_FAILURES = (RuntimeError, TypeError, ValueError, IndexError)
"""What torch raises for a network that it can't run or differentiate."""


def plan_route(problem: Problem) -> tuple[list[Layer], Route]:
    r"""The layers, and the cheapest route that gives the right gradients.

    Raises:
      InvalidParameter: no route works.
    """
    layers = layers_of(problem.network)
    parameters = {name: value.detach() for name, value in problem.network.named_parameters()}
    plain = _made_up_batch(problem)
    if _each_parameter_has_its_module(problem.network, layers):
        # A parameter that is 0 at the start hides gradients, and short or large records may take another path: both are tried too.
        others = replace(plain, features=uneven(plain.features), squares=squared_features(uneven(plain.features)))
        cases = ((parameters, plain), (made_up_parameters(problem.network), others))
        filters = filters_in_a_row(layers, problem.features.device.type)
        # A network may need its images in torch's usual order: ``view`` does.
        for taped in (TapedRoute(problem, layers, order) for order in ([filters, []] if filters else [[]])):
            if all(_agrees(problem, layers, taped, *case) for case in cases):
                return layers, taped
    single = WholeNetworkRoute(problem, layers, is_one_by_one=True)
    whole = WholeNetworkRoute(problem, layers, is_one_by_one=False)
    try:
        whole.gradients(parameters, plain)
        if _agrees_without_masks(problem, whole, single, parameters, plain):
            return layers, whole
    except _FAILURES:
        pass  # torch.func can't differentiate everything
    try:
        single.gradients(parameters, plain)
    except _FAILURES as error:
        reason = str(error).splitlines()[0]
        raise InvalidParameter("network", "one that autograd can differentiate for one record alone", reason) from error
    return layers, single


def _agrees_without_masks(problem: Problem, whole: Route, single: Route, parameters: Mapping[str, Tensor], batch: Microbatch) -> bool:
    """Whether both give the same in the first mode in which nothing is random: each draws other masks. True if there is none."""
    for training in (problem.network.training, False):
        with mode(problem.network, training):
            if _is_random(problem.network, parameters, batch.features):
                continue
            found, expected = (route.gradients(parameters, batch) for route in (whole, single))
            for pick in torch.eye(UNITS, device=batch.targets.device):
                both = [[value for layer in each for value in layer.weighted_sum(pick).values()] for each in (found, expected)]
                if not _length([one - other for one, other in zip(*both, strict=True)]) <= AGREEMENT * _length(both[1]) + 1e-12:
                    return False
            return True
    return True


def _is_random(network: nn.Module, parameters: Mapping[str, Tensor], features: Tensor) -> bool:
    found: list[Tensor] = []
    for seed in (SEED, SEED + 1):
        with torch.no_grad(), torch_seeded(features.device, seed):
            found.append(functional_call(network, dict(parameters), (features.clone(),)))
    return not torch.equal(*found)


def _each_parameter_has_its_module(network: nn.Module, layers: Sequence[Layer]) -> bool:
    """Whether no parameter is shared between modules, and none belongs to a module that contains others with parameters."""
    owned = sum(1 for module in network.modules() for _ in module.named_parameters(recurse=False))
    if owned != sum(len(layer.names) for layer in layers):
        return False
    return all(takes_batched_parameters(layer.module) or sum(1 for _ in layer.module.parameters()) == len(layer.names) for layer in layers)


def _made_up_batch(problem: Problem) -> Microbatch:
    records = UNITS * min(problem.records_per_unit, 2)
    features = made_up_features(problem.features, records)
    return Microbatch(features, some_targets(problem, records), None, UNITS, squared_features(features))


def _agrees(problem: Problem, layers: Sequence[Layer], route: Route, parameters: Mapping[str, Tensor], batch: Microbatch) -> bool:
    """Whether each unit's gradient is autograd's for that unit's loss alone, and has the stated norm."""
    copied = replace(batch, features=batch.features.clone())  # the network may change it in place
    try:
        with torch_seeded(batch.features.device, SEED):
            gradients = route.gradients(parameters, batch)
        expected = _autograd(problem, parameters, copied)
    except (UnsuitableCall, RuntimeError):
        return False
    lengths = torch.stack([_length(list(of_unit.values())) for of_unit in expected])
    return all(_layer_agrees(layer, of_layer, expected, lengths) for layer, of_layer in zip(layers, gradients, strict=True))


def _layer_agrees(layer: Layer, gradients: LayerGradients, expected: Sequence[Mapping[str, Tensor]], lengths: Tensor) -> bool:
    """``expected``: each unit's gradients by parameter; ``lengths``: of each unit's whole gradient."""
    norms = gradients.squared_norms().double().sqrt()
    for unit, pick in enumerate(torch.eye(UNITS, device=norms.device)):
        alone = gradients.weighted_sum(pick)
        if set(alone) != set(layer.names):
            return False
        wanted = [expected[unit][full] for full in layer.names.values()]
        length = _length(wanted)
        tolerance = AGREEMENT * length + ROUNDING * lengths[unit] + 1e-12
        difference = _length([alone[own] - value for own, value in zip(layer.names, wanted, strict=True)])
        # A norm may exceed the gradient's where positions cancel (``GRAM_SLACK``), as they do before a norm layer on a constant image.
        if not (difference <= tolerance and length - tolerance <= norms[unit] <= length + tolerance + 0.25 * lengths[unit]):
            return False
    return True


def _autograd(problem: Problem, parameters: Mapping[str, Tensor], batch: Microbatch) -> list[dict[str, Tensor]]:
    """Each unit's own gradients by name: the gradient of their sum wouldn't show that a part of one unit's was counted as another's."""
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    features, wanted = batch.features, list(leaves.values())
    # Requested as well: torch 2.13's group norm on channels_last crashes if only its parameters' gradients are requested.
    features = mapped(features, lambda part: part.detach().requires_grad_(is_numeric(part)))
    wanted += [part for part in parts_of(features).values() if is_numeric(part)]
    with torch.enable_grad(), torch_seeded(features.device, SEED):
        outputs = functional_call(problem.network, leaves, (features.clone(),))  # a leaf can't be changed in place
        losses = problem.losses(outputs, batch.targets).reshape(UNITS, -1).sum(dim=1)
    units: list[dict[str, Tensor]] = []
    for loss in losses:
        gradients = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
        found = zip(leaves.items(), gradients, strict=False)
        units.append({name: torch.zeros_like(leaf) if gradient is None else gradient for (name, leaf), gradient in found})
    return units


def _length(tensors: list[Tensor]) -> Tensor:
    return torch.stack([as_real(tensor).double().square().sum() for tensor in tensors]).sum().sqrt()
