r"""Scale and shift of group and layer normalisation: a record's gradients are as small as the parameters, so they are simply built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor, nn
from torch.nn import functional

from zetadp.trainer.layers.rules.base import ExplicitGradients, LayerGradients, Use


def group_norm(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``nn.GroupNorm``: parameters (channels,), input (n, channels, ...)."""
    assert isinstance(module, nn.GroupNorm)
    return _affine(
        module, uses, lambda x: functional.group_norm(x, module.num_groups, eps=module.eps), lambda x: _per_unit_channels(x, units)
    )


def layer_norm(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``nn.LayerNorm``: parameters of the last axes' shape."""
    assert isinstance(module, nn.LayerNorm)
    shape = tuple(module.normalized_shape)
    return _affine(
        module, uses, lambda x: functional.layer_norm(x, shape, eps=module.eps), lambda x: x.reshape(units, -1, *shape).sum(dim=1)
    )


def _affine(
    module: nn.Module, uses: Sequence[Use], normalize: Callable[[Tensor], Tensor], per_unit: Callable[[Tensor], Tensor]
) -> ExplicitGradients:
    """Scale: sum over positions of gradient times normalised input; shift: sum of gradients."""
    gradients: dict[str, Tensor] = {}
    if module.weight is not None:
        gradients["weight"] = sum_over(per_unit(use.gradient * normalize(use.input)) for use in uses)
    if module.bias is not None:
        gradients["bias"] = sum_over(per_unit(use.gradient) for use in uses)
    return ExplicitGradients(gradients)


def sum_over(tensors: Iterable[Tensor]) -> Tensor:
    """The sum of at least one tensor, without adding to 0."""
    first, *others = tensors
    for other in others:
        first = first + other
    return first


def _per_unit_channels(values: Tensor, units: int) -> Tensor:
    """(units * records, channels, ...) -> (units, channels)."""
    return values.reshape(units, -1, *values.shape[1:]).transpose(1, 2).flatten(2).sum(dim=2)
