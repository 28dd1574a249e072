r"""A torch optimizer, and a schedule of its learning rate, on released gradients. Post-processing: whatever they do costs nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers.flat_parameters import ParameterLayout, as_real

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler]

_COMPLEX = ".complex"
"""Ends the name of a complex tensor of the state, which is kept as real pairs."""


@final
class TorchOptimization:
    r"""See ``Optimization``. A resumed run makes the optimizer anew, with the state that was kept, and steps the schedule as often.

    Args:
      module: whose parameters are trained.
      make: gives the optimizer of these parameters, for example ``partial(torch.optim.Adam, lr=1e-3)``.
      schedule: gives the schedule of that optimizer; it is stepped once after every step and told nothing else. None for none.
    Raises:
      InvalidParameter: the optimizer wants more than gradients (a closure), keeps a state that isn't tensors, or the schedule wants more
        than steps.
    """

    def __init__(self, module: nn.Module, layout: ParameterLayout, make: MakeOptimizer, schedule: MakeScheduler | None) -> None:
        self._layout, self._make, self._schedule = layout, make, schedule
        self._module_parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
        start = layout.flatten(self._module_parameters)
        self._restore({}, start, 0)
        self.described = f"{self._optimizer}" + ("" if self._scheduler is None else f", {type(self._scheduler).__name__}")
        try:
            state, begun = {}, start
            for step in (1, 2):  # the first step makes the state, the second one reads it back
                begun, state = self.updated(state, begun, torch.zeros_like(start), step)
                self._known = None
        except TypeError as error:
            raise InvalidParameter("optimizer and scheduler", "such that step() takes no arguments", str(error)) from error
        self._restore({}, start, 0)

    def initial(self, _parameters: Tensor, /) -> dict[str, Tensor]:
        """Torch's optimizers make their state in the first step."""
        return {}

    def updated(self, state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, step: int, /) -> tuple[Tensor, dict[str, Tensor]]:
        """One step of optimizer and schedule."""
        if state is not self._known:
            self._restore(state, parameters, step - 1)
        for name, slope in self._layout.unflatten(gradient).items():
            self._parameters[name].grad = slope.clone()
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
        self._known = self._state()
        return self._layout.flatten(self._parameters), self._known

    def _restore(self, state: dict[str, Tensor], parameters: Tensor, step: int) -> None:
        """Optimizer and schedule as they were after ``step``."""
        values = self._layout.unflatten(parameters)
        self._parameters = {name: nn.Parameter(values[name].detach().clone()) for name in self._module_parameters}
        self._optimizer = self._make(self._parameters.values())
        for name, kept in state.items():
            parameter, _, key = name.removesuffix(_COMPLEX).rpartition("/")
            value = kept.clone()
            self._optimizer.state[self._parameters[parameter]][key] = torch.view_as_complex(value) if name.endswith(_COMPLEX) else value
        self._scheduler = None if self._schedule is None else self._schedule(self._optimizer)
        if self._scheduler is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the optimizer hasn't stepped: it did, before the run was resumed
                for _ in range(step):
                    self._scheduler.step()
        self._known: dict[str, Tensor] | None = state

    def _state(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            for key, value in self._optimizer.state[parameter].items():
                if value is None:
                    continue
                if not isinstance(value, Tensor):
                    raise InvalidParameter("optimizer", "one whose state is tensors, or it couldn't be resumed", f"{key} {value!r}")
                found[f"{name}/{key}{_COMPLEX if value.is_complex() else ''}"] = as_real(value.detach()).clone()
        return found
