r"""Shows what one update of a printed algorithm gives away, on a synthetic record drawn here: no row of a job's data is touched.

The weights' gradients are h g^T and x v^T (errata S14, S31). Only g and v are noisy, so at every epsilon the directions are those of the
code and the record; ``mechanisms.analysis.record_recovery`` computes the record from both and the public weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.analysis.record_recovery import distance_from_rank_one, dominant_column, recovered
from zetadp.mechanisms.base import Count, Number, Positive, Value
from zetadp.mechanisms.sampling.source import NoiseSource, RandomStream
from zetadp.trainer.engine.autoencoders.network import DECODER, ENCODERS, Autoencoder
from zetadp.trainer.engine.autoencoders.printed import PrintedSlopes, printed_gradient, sensed
from zetadp.trainer.specs.autoencoder import AutoencoderShape

EPSILONS = (1.0, 0.01, 1e-6)
TRIALS = 200
MOVE = 0.01
"""How much the other record of the membership game differs in its first feature."""

SEED = 14
"""The seed of the synthetic record and the weights: public."""


@final
class RecoveredRecord(Value):
    r"""What an attacker who sees one update and knows the weights gets.

    Attributes:
      epsilon: the epsilon that the algorithm was given.
      relative_error: l2 distance of the recovered record from the true one, over the true one's norm.
      cosine: between the encoder gradient's largest column and the record; 1 where that column has the record's direction.
      rank_one: relative distance of the encoder's gradient from rank one.
      told_apart, trials: ``trials`` updates were made by one of two records that differ by ``MOVE`` in one feature; ``told_apart`` of them
        were attributed correctly from the decoder's gradient alone. By chance it would be half.
    """

    epsilon: Positive
    relative_error: Number
    cosine: Number
    rank_one: Number
    told_apart: int
    trials: Count


@final
class Demonstration(Value):
    """One algorithm at several epsilons; ``record`` is the synthetic record, ``found`` what was recovered at the smallest epsilon."""

    algorithm: str
    shape: AutoencoderShape
    errata: tuple[str, ...]
    recovered: tuple[RecoveredRecord, ...]
    record: tuple[Number, ...]
    found: tuple[Number, ...]


def demonstrated(
    algorithm: str,
    errata: tuple[str, ...],
    slopes_at: Callable[[float], PrintedSlopes],
    shape: AutoencoderShape,
    stabilisation: float,
    source: NoiseSource[Tensor],
) -> Demonstration:
    r"""The attack on one update at each of ``EPSILONS``, without environmental noise.

    Args:
      slopes_at: the algorithm's noisy derivatives at an epsilon.
      stabilisation: the constant that the decoder's weights include.
      source: the source of the algorithm's own noise, float64.
    """
    update = _Update(shape, stabilisation, source)
    attacks = [_attacked(update, epsilon, slopes_at(epsilon)) for epsilon in EPSILONS]
    record = update.record.numpy()
    return Demonstration(
        algorithm=algorithm,
        shape=shape,
        errata=errata,
        recovered=tuple(seen for seen, _ in attacks),
        record=tuple(record.tolist()),
        found=tuple(attacks[-1][1].tolist()),
    )


@final
class _Update:
    """One update by one row of the first encoder, in float64, from public weights."""

    def __init__(self, shape: AutoencoderShape, stabilisation: float, source: NoiseSource[Tensor]) -> None:
        stream = RandomStream.from_seed(SEED, "demonstration")
        self.record = torch.from_numpy(stream.uniform(shape.features))
        weights = torch.from_numpy(stream.normal(shape.coordinates))
        encoders, decoder = weights.split(shape.weights)
        encoders /= math.sqrt(shape.features)
        decoder /= math.sqrt(shape.hidden)
        decoder += stabilisation
        self._parameters = weights
        self._network = Autoencoder.of(shape, torch.device("cpu"))
        self._masks = self._network.masks_of(torch.zeros(1, dtype=torch.int64)).double()
        self._source = source

    @property
    def decoder(self) -> np.ndarray:
        """The weights (l, n) that the row's code is multiplied by."""
        return self._network.split(self._parameters)[DECODER][0].numpy()

    def code(self, record: Tensor) -> np.ndarray:
        """A record's code h, (l,)."""
        encoder = self._network.split(self._parameters)[ENCODERS][0]
        return torch.sigmoid(record @ encoder).numpy()

    def gradients(self, record: Tensor, slopes_of: PrintedSlopes) -> tuple[np.ndarray, np.ndarray]:
        """The gradients of the encoder (n, l) and the decoder (l, n), with fresh noise."""
        row = record[None]
        seen = sensed(self._network, self._parameters, row, self._masks, 0.0, self._source)
        found = self._network.split(printed_gradient(self._network, self._parameters, seen, slopes_of(seen, row, self._source)))
        return found[ENCODERS][0].numpy(), found[DECODER][0].numpy()


def _attacked(update: _Update, epsilon: float, slopes_of: PrintedSlopes) -> tuple[RecoveredRecord, np.ndarray]:
    by_encoder, by_decoder = update.gradients(update.record, slopes_of)
    found, _ = recovered(by_encoder, by_decoder, update.decoder)
    record = update.record.numpy()
    length = float(np.linalg.norm(record))
    seen = RecoveredRecord(
        epsilon=epsilon,
        relative_error=float(np.linalg.norm(found - record)) / length,
        # Rounding may take it past 1 by a unit in the last place.
        cosine=min(1.0, abs(float(dominant_column(by_encoder) @ record)) / length),
        rank_one=distance_from_rank_one(by_encoder),
        told_apart=_told_apart(update, slopes_of),
        trials=TRIALS,
    )
    return seen, found


def _told_apart(update: _Update, slopes_of: PrintedSlopes) -> int:
    other = update.record.clone()
    other[0] += MOVE if other[0] < 0.5 else -MOVE
    pair = (update.record, other)
    codes = [code / np.linalg.norm(code) for code in map(update.code, pair)]
    right = 0
    for trial in range(TRIALS):
        _, by_decoder = update.gradients(pair[trial % 2], slopes_of)
        direction = dominant_column(by_decoder)
        # 1 - cos^2 cancels for directions this close; the distance to the nearer of the two signs doesn't.
        distances = [min(float(np.linalg.norm(direction - sign * code)) for sign in (1.0, -1.0)) for code in codes]
        right += int(np.argmin(distances)) == trial % 2
    return right
