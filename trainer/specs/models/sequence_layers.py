r"""Layers on sequences, (channels, length): embeddings, attention, recurrence. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Value, is_absent
from zetadp.trainer.specs.models.layer_numbers import Width

LONGEST_RECURRENCE = 1024
"""Places of a sequence that a recurrent layer goes through, one after the other."""


@final
class Embedding(Value):
    """A flat record of whole numbers becomes a sequence: each number's row of a table. The first layer, on real records.

    Attributes:
      entries: rows of the table; numbers are rounded, and those below 0 or above entries - 1 taken for the nearest of these.
      outputs: channels.
    """

    kind: Literal["embedding"] = "embedding"
    entries: Width
    outputs: Width


@final
class PositionEmbedding(Value):
    """Adds a trained number to each channel at each place of a sequence; initially 0."""

    kind: Literal["position_embedding"] = "position_embedding"


@final
class PositionNorm(Value):
    """Layer norm of a transformer: each place's channels are normalised (complex: whitened); affine per channel."""

    kind: Literal["position_norm"] = "position_norm"


@final
class SelfAttention(Value):
    r"""Every place of a sequence becomes a mean over all places' values, weighted by how its query fits their keys.

    The weights of a head of d channels are softmax(Re <query, key> / sqrt(d)), real weights of complex values, which turning all queries
    and keys by a common phase doesn't change. Queries, keys, values and outputs are 1 x 1 convolutions.

    Attributes:
      heads: a divisor of ``width``.
      width: channels of all heads together. The layer's output has its input's channels.
      adapter_rank: None to train all four convolutions; a number r to keep them as given and train beside each one two 1 x 1 convolutions
        with r channels between: LoRA.
    Sources: Vaswani et al. 2017; Eilers and Jiang 2023, arXiv:2306.09827 (complex attention); Hu et al. 2021, arXiv:2106.09685 (LoRA).
    """

    kind: Literal["self_attention"] = "self_attention"
    heads: Annotated[int, Strict(), Field(ge=1, le=256)]
    width: Width
    # Left out of JSON where absent: most have none.
    adapter_rank: Width | None = Field(default=None, exclude_if=is_absent)


@final
class Recurrent(Value):
    r"""Goes through a sequence place by place with a state h, initially 0.

    ``rnn``: h = tanh(W x + U h), each with a bias. ``gru``: r, u = sigmoid(W x + U h), n = tanh(W x + r (U h)), h = (1 - u) n + u h, as
    torch's GRU. Of complex numbers tanh acts on both parts separately, and a gate is the sigmoid of the real part: it is a real number.

    Attributes:
      outputs: channels of the state.
      returns: the state at every place, or behind the last one, which is flat.
    Sources: Cho et al. 2014; Wolter and Yao 2018, arXiv:1806.08267 (complex gates).
    """

    kind: Literal["recurrent"] = "recurrent"
    cell: Literal["rnn", "gru"]
    outputs: Width
    returns: Literal["sequence", "last"]
