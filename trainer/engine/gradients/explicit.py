r"""Per-unit gradients by torch.func, for whatever has no rule: correctness comes before speed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap  # pyright: ignore[reportPrivateImportUsage]

from zetadp.trainer.engine.gradients.inputs import mapped, parts_of
from zetadp.trainer.engine.gradients.problem import Losses
from zetadp.trainer.layers.rules.base import ExplicitGradients, LayerGradients, Use


def module_gradients(module: nn.Module, parameters: Mapping[str, Tensor], uses: Sequence[Use], units: int) -> LayerGradients:
    """Gradients of a module that maps one tensor to one without randomness: each record's own vector-Jacobian product, summed over uses."""

    def of_record(record: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        pull = vjp(lambda values: functional_call(module, values, (record[None],)), dict(parameters))[1]
        return pull(gradient[None])[0]

    total: dict[str, Tensor] = {}
    for use in uses:
        with _unhurried():
            of_use = vmap(of_record)(use.input, use.gradient)
        for name, value in of_use.items():
            total[name] = total[name] + value if name in total else value
    return ExplicitGradients({name: per_unit(value, units) for name, value in total.items()})


def network_gradients(
    network: nn.Module, losses: Losses, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor, weights: Tensor, units: int
) -> dict[str, Tensor]:
    r"""Gradients of a whole network, by parameter name, (units, *shape).

    Args:
      weights: (units * records_per_unit,), 1 for records and 0 for padding.
    """

    parts = tuple(parts_of(features).values())

    def loss(values: dict[str, Tensor], record: tuple[Tensor, ...], target: Tensor) -> Tensor:
        own = iter(record)
        row = mapped(features, lambda _part: next(own)[None])
        return losses(functional_call(network, values, (row,)), target[None])[0]

    with _unhurried():
        gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(dict(parameters), parts, targets)
    return {name: per_unit(_without_padding(value, weights), units) for name, value in gradients.items()}


def single_gradients(
    network: nn.Module, losses: Losses, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor, weights: Tensor, units: int
) -> dict[str, Tensor]:
    r"""The same by a pass for each record, for what torch.func can't differentiate."""
    leaves = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    gradients = {name: leaf.new_zeros(len(features), *leaf.shape) for name, leaf in leaves.items()}
    for row in range(len(features)):
        one = slice(row, row + 1)
        # cuDNN's recurrent layers have no gradient outside training mode, where checks are made.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            loss = losses(functional_call(network, leaves, (features[one],)), targets[one])[0]
            if not loss.requires_grad:
                continue
            found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        for name, gradient in zip(leaves, found, strict=True):
            if gradient is not None:
                gradients[name][row] = gradient
    return {name: per_unit(_without_padding(value, weights), units) for name, value in gradients.items()}


@contextmanager
def _unhurried() -> Iterator[None]:
    """Without torch's warnings about operations that it takes record by record: the user has no choice."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


def per_unit(gradients: Tensor, units: int) -> Tensor:
    """The sum over each unit's records: (units * records_per_unit, ...) -> (units, ...)."""
    return gradients if len(gradients) == units else gradients.reshape(units, -1, *gradients.shape[1:]).sum(dim=1)


def _without_padding(gradients: Tensor, weights: Tensor) -> Tensor:
    return gradients.masked_fill(weights.reshape(-1, *(1 for _ in gradients.shape[1:])) == 0, 0.0)
