r"""Networks on sequences as values: real and complex, of numbers or of whole numbers that stand for words. Without torch."""

from __future__ import annotations

from typing import Literal

from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    Columns,
    Convolution,
    Dropout,
    Flatten,
    LayerSpec,
    Linear,
    PlainLayer,
    Residual,
)
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.sequence_layers import Embedding, PositionEmbedding, PositionNorm, Recurrent, SelfAttention

FORWARD = 4
"""How many times the channels the layers between have, as in Vaswani et al. 2017."""


def transformer(
    classes: int,
    numbers: Literal["complex", "real"],
    *,
    layers: int,
    channels: int,
    heads: int,
    entries: int | None,
    dropout: float,
    columns: bool = False,
) -> Sequential:
    r"""An encoder with norms before attention and before the layers between (Xiong et al. 2020), and class scores of the mean over places.

    Args:
      entries: rows of the embedding's table, for records of whole numbers; None for sequences of numbers, whose channels a 1 x 1
        convolution turns into ``channels``.
      dropout: probability, behind attention and behind the layers between; 0 for none.
      columns: records are images, whose columns are the places.
    """
    dropped: tuple[PlainLayer, ...] = (Dropout(probability=dropout),) if dropout > 0.0 else ()
    active = Activation(name="crelu" if numbers == "complex" else "relu")
    first = Convolution(outputs=channels, kernel=1) if entries is None else Embedding(entries=entries, outputs=channels)
    row: list[LayerSpec] = [*((Columns(),) if columns else ()), first, PositionEmbedding()]
    for _ in range(layers):
        between: tuple[PlainLayer, ...] = (
            *(PositionNorm(), Convolution(outputs=FORWARD * channels, kernel=1), active),
            *(Convolution(outputs=channels, kernel=1), *dropped),
        )
        row += [Residual(layers=(PositionNorm(), SelfAttention(heads=heads, width=channels), *dropped)), Residual(layers=between)]
    row += [PositionNorm(), AdaptiveAveragePool(size=1), Flatten(), Linear(outputs=classes)]
    return Sequential(numbers=numbers, layers=tuple(row), head="real_part" if numbers == "complex" else "none")


def recurrent(
    classes: int,
    numbers: Literal["complex", "real"],
    cell: Literal["rnn", "gru"],
    *,
    layers: int,
    channels: int,
    entries: int | None,
    columns: bool = False,
) -> Sequential:
    r"""Recurrent layers, one behind the other, and class scores of the last one's last state.

    Args:
      entries: as a transformer's; None for sequences of numbers, which the first layer takes as they are.
      columns: as a transformer's.
    """
    row: list[LayerSpec] = [
        *((Columns(),) if columns else ()),
        *(() if entries is None else (Embedding(entries=entries, outputs=channels),)),
    ]
    row += [Recurrent(cell=cell, outputs=channels, returns="sequence") for _ in range(layers - 1)]
    row += [Recurrent(cell=cell, outputs=channels, returns="last"), Linear(outputs=classes)]
    return Sequential(numbers=numbers, layers=tuple(row), head="real_part" if numbers == "complex" else "none")
