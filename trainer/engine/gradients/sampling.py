r"""Decides who is in a step's sample, as the plan's sampling says.

Uniform choices are exact: random words that would favour anybody are drawn again.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine.noise.randomness import Randomness
from zetadp.trainer.engine.team.distributed import rows
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.specs.sampling import (
    FederatedSampling,
    FixedSizeSampling,
    InEpochs,
    InTurns,
    PoissonSampling,
    Sampling,
    TruncatedPoissonSampling,
)

KEY_BYTES = 32
"""Of a stream's key."""


def poisson_sample(units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
    r"""The numbers of the units in a Poisson sample, ascending; often empty if few are expected.

    A unit joins with probability floor(2^53 q) / 2^53, at most q: where 53 bits of its random word are below floor(2^53 q).

    Args:
      units: the number of units to sample from; >= 0.
      probability: q for each unit, in (0, 1].
    """
    words, joining = _words(units, stream), math.floor(probability * 2.0**53)
    # Compared as they are: the word's other 11 bits decide nothing.
    return np.flatnonzero(words <= np.uint64((joining << 11) - 1)) if joining else np.empty(0, np.intp)


def uniform_integers(count: int, below: int, stream: RandomStream) -> NDArray[np.int64]:
    """``count`` independent integers, each exactly uniform in 0 .. below - 1, for below < 2^53."""
    # The largest multiple of ``below`` that 64 bits hold; a word from there on is drawn again.
    end = np.uint64((2**64 // below) * below - 1)
    words = _words(count, stream)
    while len(refused := np.flatnonzero(words > end)):
        words[refused] = _words(len(refused), stream)
    return (words % np.uint64(below)).astype(np.int64)


def uniform_subset(size: int, of: int, stream: RandomStream) -> NDArray[np.int64]:
    r"""The numbers of a subset of ``size`` out of ``of``, ascending, each subset with the same probability, exactly.

    The first ``size`` different ones of independent uniform numbers: given what was there before, each next one is uniform in the rest.
    """
    if size >= of:
        return np.arange(of)
    if 2 * size > of:
        return np.setdiff1d(np.arange(of), uniform_subset(of - size, of, stream), assume_unique=True)
    drawn = uniform_integers(2 * size, of, stream)
    while len(first := np.unique(drawn, return_index=True)[1]) < size:
        drawn = np.concatenate((drawn, uniform_integers(size, of, stream)))
    return np.sort(drawn[np.sort(first)[:size]])


def _words(count: int, stream: RandomStream) -> NDArray[np.uint64]:
    words = np.empty(count, "<u8")
    stream.fill(words)
    return words


@final
class SiteSampler:
    r"""The samples of one site in one process: its part of the units that take part in a step.

    Args:
      groups: where groups take turns: for each number of a unit its group, (units,), int64, on the units' device.
    """

    def __init__(self, sampling: Sampling, randomness: Randomness, team: Team, groups: Tensor | None = None) -> None:
        self._sampling, self._randomness, self._team, self._groups = sampling, randomness, team, groups
        self._allocated: tuple[int, NDArray[np.int64]] | None = None
        # The last sample that all processes drew together.
        self._together: Tensor | None = None

    def is_lost(self, step: int) -> bool:
        r"""Whether nothing can be released in this step any more: its epoch began in another attempt, whose allocation nobody knows.

        Allocations are secret, and in no checkpoint; with a second one a unit could take part in two steps of one epoch.
        """
        sampling = self._sampling
        if not isinstance(sampling, InEpochs) or self._randomness.repeats:
            return False
        epoch, place = divmod(step - 1, sampling.epoch)
        return place > 0 and (self._allocated is None or self._allocated[0] != epoch)

    def among(self, step: int, units: Tensor) -> Tensor | None:
        """Those of the units whom this process draws its sample from; None where all draw one together, and it isn't the first."""
        sampling = self._sampling
        if isinstance(sampling, TruncatedPoissonSampling | FixedSizeSampling):
            return units if self._team.rank == 0 else None
        mine = rows(units, self._team)
        return mine[self._group_of(mine) == step % sampling.groups] if isinstance(sampling, InTurns) else mine

    def sample(self, step: int, units: Tensor, stream: RandomStream) -> Tensor:
        r"""The numbers of the units in this process's part of the sample, ascending in their places.

        Args:
          units: the numbers of all of the site's units, (units,), int64: the same in all processes, and throughout an epoch.
          stream: for this step.
        """
        sampling = self._sampling
        match sampling:
            case PoissonSampling() | FederatedSampling():
                mine = rows(units, self._team)
                return _taken(mine, poisson_sample(len(mine), sampling.probability, stream))
            case InEpochs():
                mine = rows(units, self._team)
                epoch, turn = sampling.place(step)
                # All groups draw when an epoch begins: what is known of one step is known of all its steps.
                there = self._allocation(len(mine), epoch, sampling.turns) == turn
                if isinstance(sampling, InTurns):
                    there &= (self._group_of(mine) == step % sampling.groups).cpu().numpy()
                return _taken(mine, np.flatnonzero(there))
            case InTurns():
                mine = rows(units, self._team)
                mine = mine[self._group_of(mine) == step % sampling.groups]
                return _taken(mine, poisson_sample(len(mine), sampling.probability, stream))
            case TruncatedPoissonSampling():
                common = self._common(stream, units.device)
                drawn = poisson_sample(len(units), sampling.probability, common)
                kept = drawn[uniform_subset(sampling.largest_batch, len(drawn), common)]
                return self._part(_taken(units, kept))
            case FixedSizeSampling():
                kept = uniform_subset(sampling.expected_batch_size, len(units), self._common(stream, units.device))
                return self._part(_taken(units, kept))

    def whole(self, sample: Tensor) -> Tensor:
        """The sample of which ``sample`` gave this process's part; the part itself where it is a sample of its own."""
        return sample if self._together is None else self._together

    def _part(self, together: Tensor) -> Tensor:
        self._together = together
        return rows(together, self._team)

    def _group_of(self, units: Tensor) -> Tensor:
        assert self._groups is not None  # given for this sampling
        return self._groups.index_select(0, units)

    def _allocation(self, units: int, epoch: int, turns: int) -> NDArray[np.int64]:
        """Which of its turns in the epoch each unit takes part in, by its place among this process's units."""
        if self._allocated is None or self._allocated[0] != epoch:
            self._allocated = epoch, uniform_integers(units, turns, self._randomness.allocation(epoch))
        return self._allocated[1]

    def _common(self, stream: RandomStream, device: torch.device) -> RandomStream:
        """One stream for all processes, which all take the same sample from it: that of the first one."""
        if self._team.size == 1:
            return stream
        key = np.frombuffer(stream.key(), dtype=np.uint8).astype(np.float32)
        told = self._team.sum(torch.from_numpy(key if self._team.rank == 0 else np.zeros(KEY_BYTES, np.float32)).to(device))
        return RandomStream(bytes(told.to(torch.uint8).tolist()), stream.origin)


def _taken(units: Tensor, places: NDArray[np.int64]) -> Tensor:
    here = torch.from_numpy(places)
    if units.device.type == "cpu":
        return units.index_select(0, here)
    # A copy from memory that stays where it is needn't be waited for.
    pinned = here.pin_memory() if units.device.type == "cuda" else here
    return units.index_select(0, pinned.to(units.device, non_blocking=True))
