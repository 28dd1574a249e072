r"""Each unit's whole gradient of an autoencoder, clipped in l1 or l2 and summed, in closed form.

A row's gradient is two outer products, x a^T and h s^T, so its norms are sums of products of norms and no row's gradient is ever formed.
A user's gradient is a sum of such products, and is formed. Only the forward pass is in float32; norms and sums are in float64, which holds
every product of two float32 numbers exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from zetadp.trainer.engine.autoencoders.network import DECODER, ENCODERS, Autoencoder, Slopes
from zetadp.trainer.engine.autoencoders.rows import TrainingRows
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN, ClippedSum
from zetadp.trainer.engine.gradients.microbatches import ONE_BY_ONE, Bits, Sizes, others_of, turns
from zetadp.trainer.engine.gradients.probe import SEED
from zetadp.trainer.engine.products import WholeProducts
from zetadp.trainer.layers.flat_parameters import ParameterLayout

Norm = Literal["l1", "l2"]

ROWS_AT_ONCE = 2048


class _Factors(NamedTuple):
    r"""The factors of the rows' gradients, float64.

    Attributes:
      inputs: x, (rows, n).
      hidden_slopes: a, (rows, m l); zero except in the row's own block.
      hidden: h, (rows, m l); likewise.
      slopes: s, (rows, n).
    """

    inputs: Tensor
    hidden_slopes: Tensor
    hidden: Tensor
    slopes: Tensor


def layout_of(network: Autoencoder) -> ParameterLayout:
    """The names and shapes of the flat vector's parts."""
    shape = network.shape
    outer = (shape.encoders, shape.features, shape.hidden), (shape.encoders, shape.hidden, shape.features)
    return ParameterLayout((ENCODERS, DECODER), outer, (False, False))


@final
class ClippedRows:
    r"""sum over units of g min(1, C / |g|), where g is the gradient of all weights, summed over the unit's rows.

    Args:
      norm: the norm that C bounds.
      lot: expected number of units in a sample, a public number; it decides the sizes of products (``microbatches``).
    """

    def __init__(self, network: Autoencoder, rows: TrainingRows, slopes_of: Slopes, norm: Norm, lot: int = ROWS_AT_ONCE) -> None:
        self._network = network
        self._rows = rows
        self._slopes_of = slopes_of
        self._order = 1 if norm == "l1" else 2
        per_unit = 1 if rows.members is None else rows.members.shape[1]
        self._per_unit, self._lot = per_unit, lot * per_unit
        self._sizes = self._candidates

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        r"""Clips and sums over a sample.

        Args:
          parameters: ``encoders`` and ``decoder``.
          units: the sampled units' numbers, (sampled,), int64; may be empty, and then gives exact zeros.
          bound: C > 0.
        """
        flat = torch.cat((parameters[ENCODERS].reshape(-1), parameters[DECODER].reshape(-1)))
        total = torch.zeros(self._network.shape.coordinates, dtype=torch.float64, device=flat.device)
        norms: list[Tensor] = []
        with WholeProducts():
            for chunk in units.split(max(1, self._sizes.largest // self._per_unit)):
                part, of_units = (self._of_rows if self._rows.members is None else self._of_users)(flat, chunk, bound)
                total += part
                norms.append(of_units)
        found = torch.cat(norms) if norms else total[:0]
        kept = found.isfinite()
        return ClippedSum(total, found[kept], bound, int((~kept).sum()))

    def _of_rows(self, parameters: Tensor, rows: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        """The clipped sum, and each row's norm."""
        factors = self._factors(parameters, rows)
        sizes = [torch.linalg.vector_norm(part, ord=self._order, dim=1) for part in factors]
        norms = _joined(sizes[0] * sizes[1], sizes[2] * sizes[3], self._order)
        kept = norms.isfinite()
        if not bool(kept.all()):
            # Left out, not weighted by 0, since 0 * NaN is NaN: a broken row would reveal that it was there (errata Z22).
            factors = _Factors(*(part[kept] for part in factors))
        inputs, hidden_slopes, hidden, slopes = factors
        weights = _weights(norms[kept], bound)[:, None]
        return self._network.outer_products(inputs, hidden_slopes * weights, hidden, slopes * weights), norms

    def _of_users(self, parameters: Tensor, users: Tensor, bound: float) -> tuple[Tensor, Tensor]:
        """The clipped sum, and each user's norm."""
        assert self._rows.members is not None  # otherwise units are rows
        members = self._rows.members[users]
        real = members >= 0
        # Padding repeats the user's own first row, with weight 0.
        rows = torch.where(real, members, members[:, :1])
        factors = self._factors(parameters, rows.reshape(-1))
        places, shape = self._rows.places[members[:, 0]], self._network.shape
        inputs, hidden_slopes, hidden, slopes = (part.view(*rows.shape, part.shape[1]) for part in factors)
        first = torch.arange(len(users), device=users.device)
        own_slopes, own_hidden = (
            part.view(*rows.shape, shape.encoders, shape.hidden)[first, :, places] for part in (hidden_slopes, hidden)
        )
        weights = real[:, :, None].double()
        encoders = inputs.transpose(1, 2) @ (own_slopes * weights)
        decoder = own_hidden.transpose(1, 2) @ (slopes * weights)
        sizes = [torch.linalg.vector_norm(part.flatten(1), ord=self._order, dim=1) for part in (encoders, decoder)]
        norms = _joined(sizes[0], sizes[1], self._order)
        kept = norms.isfinite()
        clipped = _weights(norms[kept], bound)[:, None, None]
        total = torch.zeros(shape.coordinates, dtype=torch.float64, device=parameters.device)
        blocks = self._network.split(total)
        blocks[ENCODERS].index_add_(0, places[kept], encoders[kept] * clipped)
        blocks[DECODER].index_add_(0, places[kept], decoder[kept] * clipped)
        return total, norms

    def made_up(self, count: int) -> Callable[[Tensor, float], ClippedSum]:
        """Clipped sums over any of ``count`` made-up units, with made-up parameters; see ``ClippedGradients.made_up``."""
        twin, rows = copy(self), self._rows
        parameters, features = self._made_up(count * self._per_unit)
        members = None if rows.members is None else torch.arange(len(features), device=features.device).reshape(count, -1)
        twin._rows = TrainingRows(features, rows.places.new_zeros(len(features)), members)
        named = self._network.split(parameters)
        return lambda units, bound: twin.sum(named, units.to(features.device), bound)

    def settle(self) -> bool:
        r"""Whether there are sizes of products in which a made-up row has the same factors, to the bit, at every position and beside any
        other rows: they are used from here on. If not, rows are computed one by one.
        """
        parameters, made_up = self._made_up(ROWS_AT_ONCE + others_of(ROWS_AT_ONCE))
        with WholeProducts():
            found = self._candidates.agreeing(lambda size: self._bits(parameters, made_up, size), self._lot)
        self._sizes = found or ONE_BY_ONE
        return found is not None

    @property
    def _candidates(self) -> Sizes:
        return Sizes.of(ROWS_AT_ONCE, self._lot)

    def _made_up(self, rows: int) -> tuple[Tensor, Tensor]:
        """Parameters, (coordinates,), and the given number of rows, (rows, n)."""
        generator = torch.Generator().manual_seed(SEED)
        like, shape = self._rows.features, self._network.shape
        parameters = torch.randn(shape.coordinates, generator=generator) / shape.features**0.5
        made_up = torch.rand(rows, shape.features, generator=generator)
        return parameters.to(like.device), made_up.to(like.device, like.dtype)

    def _bits(self, parameters: Tensor, made_up: Tensor, size: int) -> Bits | None:
        """Every row's factors, (numbers, rows)."""

        def factors(rows: Tensor) -> Tensor:
            return torch.cat(self._products(parameters, made_up[rows], self._rows.places.new_zeros(size)), dim=1).T

        rows = torch.arange(size, device=made_up.device)
        found = factors(rows)
        turned = (rows.roll(places) for places in turns(size, size * made_up.shape[1]))
        # And the other way round, where the last places have other rows.
        left = rows.flip(0)[: size - others_of(size)]
        mixed = torch.cat((left, torch.arange(len(made_up) - others_of(size), len(made_up), device=rows.device)))
        same = all(torch.equal(factors(order), found[:, order]) for order in turned)
        return Bits(found, ()) if same and torch.equal(factors(mixed)[:, : len(left)], found[:, left]) else None

    def _factors(self, parameters: Tensor, rows: Tensor) -> _Factors:
        # Filled up with copies of a row that is there anyway; their factors are dropped.
        # A user with more rows than the largest size has products of its own, always of as many rows.
        missing = 0 if len(rows) > self._sizes.largest else self._sizes.of_microbatch(len(rows)) - len(rows)
        filled = torch.cat((rows, rows[:1].expand(missing)))
        found = self._products(parameters, self._rows.features.index_select(0, filled), self._rows.places.index_select(0, filled))
        return _Factors(*(part[: len(rows)] for part in found))

    def _products(self, parameters: Tensor, inputs: Tensor, places: Tensor) -> _Factors:
        found = self._network.forward(parameters, inputs, self._network.masks_of(places))
        slopes = self._slopes_of(found.logits, inputs)
        hidden_slopes = self._network.hidden_slopes(parameters, found, slopes)
        return _Factors(inputs.double(), hidden_slopes.double(), found.hidden.double(), slopes.double())


def _joined(first: Tensor, second: Tensor, order: int) -> Tensor:
    """The norm of a vector in two parts, from the parts' norms."""
    return first + second if order == 1 else torch.hypot(first, second)


def _weights(norms: Tensor, bound: float) -> Tensor:
    """min(1, C (1 - margin) / norm)."""
    return torch.clamp(bound * (1.0 - CLIP_MARGIN) / norms, max=1.0)
