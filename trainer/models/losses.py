r"""Each record's own loss, neither summed nor averaged over records, as clipping needs it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from zetadp.trainer.data.base import DataSetFacts

Losses = Callable[[Tensor, Tensor], Tensor]
"""Outputs (n, ...), targets (n, ...) -> (n,), real: each record's own loss."""


def losses_for(facts: DataSetFacts) -> Losses:
    """Cross-entropy for a classification, the mean squared error for a reconstruction, of complex pixels or of real features."""
    return cross_entropies if facts.task == "classification" else squared_errors


def cross_entropies(scores: Tensor, labels: Tensor) -> Tensor:
    """(n, classes) real scores and (n,) int64 labels -> (n,): -log softmax(scores)[label]."""
    return nn.functional.cross_entropy(scores, labels, reduction="none")


def squared_errors(images: Tensor, references: Tensor) -> Tensor:
    """(n, channels, height, width) complex or (n, features) real, twice -> (n,): the mean of |difference|^2 over a record's numbers.

    fastMRI's example takes the mean absolute error of magnitudes. Here phases count too, and the gradient is smooth at 0.
    """
    difference = images - references
    if not difference.is_complex():
        return difference.square().flatten(1).mean(dim=1)
    return (difference.real.square() + difference.imag.square()).flatten(1).mean(dim=1)
