r"""Embeddings: a unit's gradient has rows for its own numbers only, however long the table is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from zetadp.trainer.layers.blocks.sequences import TokenEmbedding
from zetadp.trainer.layers.rules.base import LayerGradients, UnsupportedLayer, Use, squared_rows


def embedding(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``nn.Embedding``: numbers (n, ...) -> (n, ..., outputs)."""
    assert isinstance(module, nn.Embedding)
    if module.scale_grad_by_freq or module.sparse:
        # By how often a number is in the whole batch, other units' too; or in a format of its own.
        raise UnsupportedLayer("scale_grad_by_freq or sparse")
    numbers = torch.cat([use.input.reshape(units, -1) for use in uses], dim=1)
    gradients = torch.cat([use.gradient.reshape(units, -1, use.gradient.shape[-1]) for use in uses], dim=1)
    if module.padding_idx is not None:
        gradients = gradients.masked_fill((numbers == module.padding_idx).unsqueeze(-1), 0.0)
    return EmbeddingGradients(numbers, gradients, module.num_embeddings)


def token_embedding(module: nn.Module, uses: Sequence[Use], units: int) -> LayerGradients:
    """The rule of ``TokenEmbedding``: numbers (n, length) -> (n, outputs, length), or planes of twice the outputs."""
    assert isinstance(module, TokenEmbedding)
    numbers = torch.cat([module.rows(use.input).reshape(units, -1) for use in uses], dim=1)
    gradients = torch.cat([use.gradient.mT.reshape(units, -1, use.gradient.shape[1]) for use in uses], dim=1)
    if module.weight.is_complex():
        gradients = torch.complex(*gradients.chunk(2, dim=2))
    return EmbeddingGradients(numbers, gradients, len(module.weight))


@final
class EmbeddingGradients:
    r"""Gradients of one table ``weight`` (entries, outputs).

    A unit's gradients of the same number are added first, in float64, and their rows' squares then: nothing cancels afterwards.

    Args:
      numbers: (units, places), int64.
      gradients: (units, places, outputs), real or complex.
    """

    def __init__(self, numbers: Tensor, gradients: Tensor, entries: int) -> None:
        units, places = numbers.shape
        unit = torch.arange(units, device=numbers.device)[:, None].expand(units, places)
        # One key for each pair of a unit and a number, in the units' order.
        keys, places_of = torch.unique((unit * entries + numbers).flatten(), return_inverse=True)
        real = torch.view_as_real(gradients.resolve_conj()).flatten(2) if gradients.is_complex() else gradients
        self._rows = torch.zeros(len(keys), real.shape[2], device=real.device, dtype=torch.float64)
        self._rows.index_add_(0, places_of, real.flatten(0, 1).double())
        self._units, self._numbers = keys // entries, keys % entries
        self._shape, self._is_complex = (units, entries), gradients.is_complex()

    def squared_norms(self) -> Tensor:
        norms = torch.zeros(self._shape[0], device=self._rows.device, dtype=torch.float64)
        return norms.index_add_(0, self._units, squared_rows(self._rows)).to(torch.float32)

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        del sample  # rows are added in float64, whatever the sample
        weighted = self._rows * factors.double()[self._units].unsqueeze(1)
        total = torch.zeros(self._shape[1], self._rows.shape[1], device=self._rows.device, dtype=torch.float64)
        total.index_add_(0, self._numbers, weighted)
        return {"weight": torch.view_as_complex(total.unflatten(1, (-1, 2))) if self._is_complex else total}
