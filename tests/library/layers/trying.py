"""Tries one layer: whether ``zetadp.check`` accepts it, and whether its records' gradients are those of plain autograd on each alone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

import zetadp
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.own_module.preparation import trainable
from zetadp.trainer.engine.gradients.clipping import ClippedGradients
from zetadp.trainer.engine.gradients.inputs import Inputs
from zetadp.trainer.engine.gradients.problem import Problem
from zetadp.trainer.specs.execution_plan import FlatClipping

TRAINS = "trains"
BOUND = 1e9
"""Beyond every gradient here: nothing is clipped."""
TOLERANCE = 1e-3
"""Of the gradient's length: float32 rounds by 1e-5."""
RECORDS = 4


class Case(NamedTuple):
    """A layer's constructor, and its inputs (records, ...)."""

    make: Callable[[], Any]
    inputs: tuple[Any, ...]


class Tried(nn.Module):
    """The layer behind a trained factor, so that there is something to train in front of layers without parameters; its first result."""

    def __init__(self, layer: Any, kind: torch.dtype) -> None:
        super().__init__()
        self.layer = layer
        # A whole number isn't multiplied: the factor comes after the layer.
        self.factor = nn.Parameter(torch.ones((), dtype=kind if kind.is_complex else torch.float32))
        self.is_before = kind.is_complex or kind.is_floating_point

    def forward(self, first: Any, *others: Any) -> Any:
        found = self.layer(first * self.factor if self.is_before else first, *others)
        found = getattr(found, "logits", found)
        while isinstance(found, tuple):
            found = found[0]
        return found if self.is_before else found * self.factor


def losses(outputs: Any, _targets: Any) -> Any:
    numbers = (torch.view_as_real(outputs.resolve_conj()) if outputs.is_complex() else outputs).reshape(len(outputs), -1)
    return (numbers * torch.linspace(-1.0, 2.0, numbers.shape[1])).sum(dim=1)


def verdict(case: Case) -> str:
    """``trains``, or why not, in the words that a user reads."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = Tried(case.make(), case.inputs[0].dtype)
            found = zetadp.check(module, case.inputs)
        except (InvalidParameter, AttributeError) as refused:
            return f"fails by itself: {refused}"
        if found:
            # Figures differ a little between machines, and shapes between layers of one kind.
            words = re.sub(r": when another record was replaced, a row of its output moved by [^;]*", "", str(found[0]))
            words = re.sub(r"modified by an inplace operation.*", "modified by an inplace operation", words)
            return re.sub(r"^layer \((\w+)\): ", "", words).replace("layer.", "").replace("the module (Tried): network", "the network")
        difference = _difference(module.eval(), case.inputs)
    assert difference <= TOLERANCE, f"a record's gradient is off by {difference:.2g} of its length"
    return TRAINS


def _difference(module: nn.Module, inputs: Any) -> float:
    """How far each record's gradient is from that of plain autograd on this record alone, relative to its length."""
    network = trainable(module).eval()
    features: Any = Inputs(dict(enumerate(inputs))) if len(inputs) > 1 else inputs[0]
    problem = Problem(network, losses, features, torch.zeros(len(inputs[0])), None)
    clipped = ClippedGradients(problem, FlatClipping(bound=BOUND), RECORDS)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    named = [value for value in module.parameters() if value.requires_grad]
    layout = dict(zip(dict(network.named_parameters()), named, strict=True))
    worst = 0.0
    for row in range(len(inputs[0])):
        total = clipped.sum(parameters, torch.tensor([row]), BOUND).total
        loss = losses(module(*(one[row : row + 1] for one in inputs)), None)[0]
        slopes = torch.autograd.grad(loss, named, allow_unused=True, materialize_grads=True)
        alone = clipped.layout.flatten(dict(zip(layout, slopes, strict=True)))
        worst = max(worst, float((total - alone).norm() / alone.norm().clamp(min=1e-6)))
    return worst
