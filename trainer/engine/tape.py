r"""One forward and one backward pass that record, for each module with parameters, what went in and the gradient of what came out.

The parameters are frozen, so autograd computes input gradients only: no summed weight gradient is paid for that nobody wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call  # pyright: ignore[reportPrivateImportUsage]

from mechanisms.errors import InvalidParameter
from trainer.engine.rules.base import Use


class UnsuitableCall(Exception):
    """A call of a module that doesn't map n records, as one tensor, to n records, as one tensor."""


@final
@dataclass(frozen=True)
class _Call:
    """What is known of a call before the backward pass; ``edge``: where the gradient of its output will arrive."""

    input: Tensor
    version: int
    edge: GradientEdge


@final
class Tape:
    r"""Records one microbatch.

    Args:
      modules: those to record, by their name in the network.
      records: rows of the microbatch.
    """

    def __init__(self, modules: Mapping[str, nn.Module], records: int) -> None:
        self._modules = modules
        self._records = records
        self._calls: dict[str, list[_Call]] = {name: [] for name in modules}

    def forward(self, network: nn.Module, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
        r"""The network's outputs with ``parameters``, none of which may be a leaf that requires grad unless its gradient is wanted.

        Raises:
          UnsuitableCall: a recorded module isn't called with n records.
          InvalidParameter: it is called with one record that is then used for all.
        """
        handles = [module.register_forward_hook(partial(self._record, name), with_kwargs=True) for name, module in self._modules.items()]
        try:
            return functional_call(network, dict(parameters), (features,))
        finally:
            for handle in handles:
                handle.remove()

    def backward(self, loss: Tensor, leaves: Sequence[Tensor]) -> tuple[dict[str, list[Use]], list[Tensor | None]]:
        r"""The uses of each module, and the gradients of ``leaves``; None where the loss doesn't depend on one.

        Raises:
          InvalidParameter: an input was changed in place after its use.
        """
        calls = [(name, call) for name, of_module in self._calls.items() for call in of_module]
        uses: dict[str, list[Use]] = {name: [] for name in self._calls}
        wanted: list[GradientEdge | Tensor] = [*(call.edge for _, call in calls), *leaves]
        if not wanted or not loss.requires_grad:
            return uses, [None for _ in leaves]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
        for (name, call), gradient in zip(calls, gradients, strict=False):
            if call.input._version != call.version:
                raise InvalidParameter(
                    f"network.{name}", "called with an input that nothing changes in place afterwards", "a changed input"
                )
            if gradient is not None:
                uses[name].append(Use(_full(call.input), _full(gradient)))
        return uses, list(gradients[len(calls) :])

    def _record(self, name: str, _module: nn.Module, inputs: tuple[object, ...], named: dict[str, object], output: object) -> None:
        if named or len(inputs) != 1 or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
            raise UnsuitableCall(name)
        for rows in (inputs[0].shape[:1], output.shape[:1]):
            if rows == (1,) and self._records != 1:
                got = f"{self._records} records"
                raise InvalidParameter(f"network.{name}", "called with every record, not with one tensor that is broadcast to all", got)
            if rows != (self._records,):
                raise UnsuitableCall(name)
        if not output.requires_grad:
            # The first layer with parameters: a leaf, so that the backward pass ends here.
            output.requires_grad_()
        self._calls[name].append(_Call(inputs[0].detach(), inputs[0]._version, get_gradient_edge(output)))


def _full(values: Tensor) -> Tensor:
    """Norms and sums are computed in float32 at least, also where the forward pass ran in half precision."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
