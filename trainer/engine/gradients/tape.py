r"""One forward and one backward pass that record, for each module with parameters, its input and its output's gradient.

The parameters are frozen, so autograd computes input gradients only and wastes no time on summed weight gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn.functional import pad

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers.linear import ComplexLinear
from zetadp.trainer.layers.products import linear
from zetadp.trainer.layers.rules.base import Use

ROW_BYTES = 16
"""What a library that reads four numbers of float32 at once would have each row begin at."""


class UnsuitableCall(Exception):
    """A call of a module that doesn't map n records, as one tensor, to n records, as one tensor."""


@final
@dataclass(frozen=True)
class _Call:
    """What is known about a call before the backward pass; ``output``: the leaf, or the place in the graph, where its gradient arrives."""

    input: Tensor
    version: int
    output: Tensor | GradientEdge


@final
class Tape:
    r"""Records one microbatch.

    Args:
      modules: the modules to record, by their name in the network.
      features: the network's input; its first axis is the records.
      squares: squared norms of the features, (records,), where known.
      fills_rows: whether rows of linear layers' inputs are filled up with zeros (``linear_of_whole_rows``).
    """

    def __init__(self, modules: Mapping[str, nn.Module], features: Tensor, squares: Tensor | None, *, fills_rows: bool = False) -> None:
        self._modules, self._fills_rows = modules, fills_rows
        self._features = features
        self._squares = squares
        self._rows = (len(features),)
        self._version = 0 if squares is None else features._version
        self._calls: dict[str, list[_Call]] = {name: [] for name in modules}

    def forward(self, network: nn.Module) -> Tensor:
        r"""The network's outputs; its parameters must already be in place (``in_place``).

        Raises:
          UnsuitableCall: a recorded module isn't called with n records.
        """
        before = [vars(module).get("forward") for module in self._modules.values()]
        for name, module in self._modules.items():
            # Hooks would take a small network's step a twentieth more: modules with any are called another way.
            vars(module)["forward"] = partial(self._call, name, module.forward)
        try:
            return network(self._features)
        finally:
            for module, own in zip(self._modules.values(), before, strict=True):
                if own is None:
                    del vars(module)["forward"]
                else:
                    vars(module)["forward"] = own

    def backward(self, loss: Tensor, leaves: Sequence[Tensor]) -> tuple[dict[str, list[Use]], list[Tensor | None]]:
        r"""The uses of each module, and the gradients of ``leaves``; None where the loss doesn't depend on one.

        Raises:
          InvalidParameter: an input was changed in place after its use.
        """
        calls = [(name, call) for name, of_module in self._calls.items() for call in of_module]
        uses: dict[str, list[Use]] = {name: [] for name in self._calls}
        wanted = [*(call.output for _, call in calls), *leaves]
        if not wanted or not loss.requires_grad:
            return uses, [None for _ in leaves]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
        for (name, call), gradient in zip(calls, gradients, strict=False):
            if call.input._version != call.version:
                raise InvalidParameter(f"network.{name}", "called with an input that isn't changed in place afterwards", "a changed input")
            if gradient is not None:
                uses[name].append(Use(_full(call.input), _full(gradient), self._known(call)))
        return uses, list(gradients[len(calls) :])

    def _known(self, call: _Call) -> Tensor | None:
        """Squared norms of the input's rows, if the input is the features, reshaped or not, and nothing changed them in place."""
        values, features = call.input, self._features
        if self._squares is None:
            return None
        if values.data_ptr() != features.data_ptr() or values.numel() != features.numel() or values.dtype != features.dtype:
            return None
        return self._squares if call.version == self._version else None

    def _call(self, name: str, forward: Callable[..., Tensor], *inputs: Tensor, **named: object) -> Tensor:
        if len(inputs) == 1 and isinstance(inputs[0], Tensor) and inputs[0].shape[:1] == (1,) != self._rows:
            # What all records share (places in a sequence, say) goes through a layer once for each, so that its gradient is each record's.
            inputs = (inputs[0].expand(*self._rows, *inputs[0].shape[1:]),)
        module = self._modules[name]
        if type(module) in (nn.Linear, ComplexLinear) and _is_plain(module, forward):
            forward = partial(_linear, module, self._fills_rows)
        ends_here = len(inputs) == 1 and isinstance(inputs[0], Tensor) and not inputs[0].requires_grad
        with _differentiable(module) if ends_here else nullcontext():
            output = forward(*inputs, **named)
        self._record(name, inputs, named, output)
        return output

    def _record(self, name: str, inputs: tuple[object, ...], named: dict[str, object], output: object) -> None:
        if named or len(inputs) != 1 or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
            raise UnsuitableCall(name)
        rows, results = inputs[0].shape[:1], output.shape[:1]
        if rows != self._rows or results != self._rows:
            raise UnsuitableCall(name)
        if output.requires_grad:
            # Not the tensor: it would stay in memory, and a change in place would move its gradient.
            place = GradientEdge(output.grad_fn, output.output_nr) if output.grad_fn is not None else output
        else:
            # It depends on no parameter: a leaf, so that the backward pass ends here.
            place = output.requires_grad_()
        self._calls[name].append(_Call(inputs[0].detach(), inputs[0]._version, place))


def _is_plain(module: nn.Module, forward: Callable[..., Tensor]) -> bool:
    """Whether it does what its type does, and nobody asks for its parameters' gradients."""
    return getattr(forward, "__func__", None) is type(module).forward and not any(
        own is not None and own.requires_grad for own in module._parameters.values()
    )


def _linear(module: nn.Module, fills_rows: bool, values: Tensor) -> Tensor:
    weight, bias = cast("Tensor", module.weight), cast("Tensor | None", module.bias)
    return linear_of_whole_rows(values, weight, bias) if fills_rows else linear(values, weight, bias)


def linear_of_whole_rows(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    r"""A linear layer's outputs, of inputs and weights whose rows are filled up with zeros to a multiple of ``ROW_BYTES``.

    Where rows begin at any number a library may add some of them in another order than others, by their place in memory.
    """
    if missing := -values.shape[-1] % (ROW_BYTES // values.element_size()):
        values, weight = pad(values, (0, missing)), pad(weight, (0, missing))
    return linear(values, weight, bias)


@contextmanager
def _differentiable(module: nn.Module) -> Iterator[None]:
    """Makes autograd count a module's output, whose input needs no gradient, as one that has a gradient: the backward pass ends there. As a
    leaf the output itself would stay in memory until then."""
    *_, parameter = (own for own in module._parameters.values() if own is not None)
    if parameter.requires_grad:
        yield
        return
    parameter.requires_grad_()
    try:
        yield
    finally:
        parameter.requires_grad = False


@contextmanager
def in_place(parameters: Sequence[tuple[nn.Module, str, Tensor]]) -> Iterator[None]:
    """Puts tensors in parameters' places: module, own name, tensor. ``functional_call`` takes 50 us for this, much of a small step."""
    before = [module._parameters[name] for module, name, _ in parameters]
    try:
        for module, name, tensor in parameters:
            cast("dict[str, Tensor]", module._parameters)[name] = tensor
        yield
    finally:
        for (module, name, _), parameter in zip(parameters, before, strict=True):
            module._parameters[name] = parameter


def _full(values: Tensor) -> Tensor:
    """Norms and sums are computed in at least float32, even where the forward pass ran in half precision."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
