r"""Layers on sequences: real tensors (N, C, length), or planes (N, 2C, length) of complex numbers."""

from __future__ import annotations

import math
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.norms import FLOOR, whiten
from zetadp.trainer.layers.planes import join


@final
class TokenEmbedding(nn.Module):
    r"""Whole numbers (N, length), given as floats, to their rows of a table: (N, outputs, length), or planes (N, 2 outputs, length).

    Attributes:
      weight: (entries, outputs), float32 or complex64, standard normal: E|w|^2 = 1.
    """

    def __init__(self, entries: int, outputs: int, stream: RandomStream, *, is_complex: bool) -> None:
        super().__init__()
        numbers = torch.from_numpy(stream.normal((2 if is_complex else 1) * entries * outputs)).to(torch.float32)
        weight = torch.view_as_complex(math.sqrt(0.5) * numbers.reshape(entries, outputs, 2)) if is_complex else numbers
        self.weight = nn.Parameter(weight.reshape(entries, outputs))

    def rows(self, x: Tensor) -> Tensor:
        """Each number's row of the table, int64."""
        return x.round().clamp(0, len(self.weight) - 1).long()

    def forward(self, x: Tensor) -> Tensor:
        table = torch.cat((self.weight.real, self.weight.imag), dim=1) if self.weight.is_complex() else self.weight
        return nn.functional.embedding(self.rows(x), table).mT


@final
class PositionEmbedding(nn.Module):
    """Adds ``weight`` (C, length), initially 0, to every record; it may come with a leading axis of records."""

    batched_parameters: ClassVar[bool] = True

    def __init__(self, channels: int, length: int, *, is_complex: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, length, dtype=torch.complex64 if is_complex else torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return x + (torch.cat((self.weight.real, self.weight.imag), dim=-2) if self.weight.is_complex() else self.weight)


@final
class PositionNorm(nn.Module):
    r"""Every place's channels to mean 0 and variance 1 (complex: whitened), then ``weight`` z + ``bias`` for each channel.

    Both are (C,), float32 or complex64, and may come with a leading axis of records. Statistics are of one place of one record.
    """

    batched_parameters: ClassVar[bool] = True

    def __init__(self, channels: int, *, is_complex: bool) -> None:
        super().__init__()
        start, kind = (complex(math.sqrt(0.5), math.sqrt(0.5)), torch.complex64) if is_complex else (1.0, torch.float32)
        self.weight = nn.Parameter(torch.full((channels,), start, dtype=kind))
        self.bias = nn.Parameter(torch.zeros(channels, dtype=kind))

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.unsqueeze(-1), self.bias.unsqueeze(-1)
        if not weight.is_complex():
            return weight * nn.functional.layer_norm(x.mT, (x.shape[1],), eps=FLOOR).mT + bias
        # (N, length, 2, C): a group is a place.
        pairs = whiten(x.unflatten(1, (2, -1)).permute(0, 3, 1, 2), FLOOR).permute(0, 2, 3, 1)
        re, im = pairs.unbind(1)
        return join(weight.real * re - weight.imag * im + bias.real, weight.real * im + weight.imag * re + bias.imag)


@final
class SelfAttention(nn.Module):
    """softmax(Re <q, k> / sqrt(d)) v in each of ``heads`` heads of d channels; ``parts``: 2 for planes, 1 for real tensors.

    Args:
      query, key, value, output: (N, C, length) -> (N, C', length), each place by itself.
    """

    def __init__(self, query: nn.Module, key: nn.Module, value: nn.Module, output: nn.Module, heads: int, parts: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = query, key, value, output
        self._heads, self._parts = heads, parts

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._of_heads(module(x)) for module in (self.query, self.key, self.value))
        weights = torch.softmax(query.mT @ key / math.sqrt(query.shape[2] / self._parts), dim=-1)
        seen = value @ weights.mT
        return self.output(seen.unflatten(2, (self._parts, -1)).transpose(1, 2).flatten(1, 3))

    def _of_heads(self, x: Tensor) -> Tensor:
        """(N, heads, numbers of a head, length): the real parts of a head's channels, then the imaginary ones."""
        return x.unflatten(1, (self._parts, self._heads, -1)).transpose(1, 2).flatten(2, 3)


@final
class Recurrent(nn.Module):
    r"""h = cell(W x, U h), place by place: see the layer of this name in a network's description.

    Args:
      inputs: W x + b of the whole sequence, (N, C, length) -> (N, gates of H, length).
      recurrent: U h + b, (N, H) -> (N, gates of H); both on planes if ``parts`` is 2.
    """

    def __init__(self, inputs: nn.Module, recurrent: nn.Module, gates: int, parts: int, *, returns_sequence: bool) -> None:
        super().__init__()
        self.inputs, self.recurrent = inputs, recurrent
        self._gates, self._parts, self._returns_sequence = gates, parts, returns_sequence

    def forward(self, x: Tensor) -> Tensor:
        every = self._split(self.inputs(x))  # (N, parts, gates, H, length)
        state = x.new_zeros(len(x), every.shape[1] * every.shape[3])
        states: list[Tensor] = []
        for place in every.unbind(-1):
            state = self._next(place, self._split(self.recurrent(state)), state)
            states.append(state)
        return torch.stack(states, dim=2) if self._returns_sequence else state

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self._parts, self._gates, -1))

    def _next(self, of_inputs: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
        if self._gates == 1:
            return torch.tanh(of_inputs + of_state).flatten(1)
        reset, update = torch.sigmoid((of_inputs + of_state)[:, 0, :2]).unbind(1)  # of the real part: (N, H) each
        new = torch.tanh(of_inputs[:, :, 2] + reset.unsqueeze(1) * of_state[:, :, 2])
        kept = update.unsqueeze(1)
        return ((1.0 - kept) * new + kept * state.unflatten(1, (self._parts, -1))).flatten(1)
