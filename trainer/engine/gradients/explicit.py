r"""Per-unit gradients by torch.func, for whatever has no rule: correctness comes before speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap  # pyright: ignore[reportPrivateImportUsage]

from zetadp.trainer.engine.gradients.problem import Losses
from zetadp.trainer.layers.rules.base import ExplicitGradients, LayerGradients, Use


def module_gradients(module: nn.Module, parameters: Mapping[str, Tensor], uses: Sequence[Use], units: int) -> LayerGradients:
    """Gradients of a module that maps one tensor to one without randomness: each record's own vector-Jacobian product, summed over uses."""

    def of_record(record: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        pull = vjp(lambda values: functional_call(module, values, (record[None],)), dict(parameters))[1]
        return pull(gradient[None])[0]

    total: dict[str, Tensor] = {}
    for use in uses:
        for name, value in vmap(of_record)(use.input, use.gradient).items():
            total[name] = total[name] + value if name in total else value
    return ExplicitGradients({name: per_unit(value, units) for name, value in total.items()})


def network_gradients(
    network: nn.Module, losses: Losses, parameters: Mapping[str, Tensor], features: Tensor, targets: Tensor, weights: Tensor, units: int
) -> dict[str, Tensor]:
    r"""Gradients of a whole network, by parameter name, (units, *shape).

    Args:
      weights: (units * records_per_unit,), 1 for records and 0 for padding.
    """

    def loss(values: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        return losses(functional_call(network, values, (record[None],)), target[None])[0]

    gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(dict(parameters), features, targets)
    return {name: per_unit(_without_padding(value, weights), units) for name, value in gradients.items()}


def per_unit(gradients: Tensor, units: int) -> Tensor:
    """The sum over each unit's records: (units * records_per_unit, ...) -> (units, ...)."""
    return gradients if len(gradients) == units else gradients.reshape(units, -1, *gradients.shape[1:]).sum(dim=1)


def _without_padding(gradients: Tensor, weights: Tensor) -> Tensor:
    return gradients.masked_fill(weights.reshape(-1, *(1 for _ in gradients.shape[1:])) == 0, 0.0)
