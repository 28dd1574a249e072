r"""Watches who was sampled: whether sizes, turns of units and overlaps of samples are those of the plan's draws. Only a verdict leaves.

Fixed batches, batches of a shuffled epoch, samples that serve two steps and a wrong probability cost more than what is charged, and look
like training. What each sampling promises, and the bounds: accountants/proofs/audit.md, 5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.trainer.engine.gradients.sample_law import coincidences_log_tail, count_log_tail, squares_log_tail
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.specs.findings.runs import SampleFindings, Status
from zetadp.trainer.specs.sampling import (
    FixedSizeSampling,
    InEpochs,
    InTurns,
    Sampling,
    TruncatedPoissonSampling,
)

ERROR = 1e-20
"""Upper bound on the probability that right samples fail, whatever the data are."""

TAILS = 10
"""At most of one kind of draws: a count, two sums of squares and two counts of overlaps, two-sided."""

BLOCK = 2**16
"""The most trials of one count: units are taken in blocks, and turns are counted up to so many steps."""

TOGETHER = 64
"""Samples that are looked at together: each transfer from an accelerator waits for all that was asked of it before, and on a processor
what is looked at once in many steps finds its code and numbers in a cache for all but the first."""

WAITING = 2**16
"""The most numbers of units that wait on a processor, whose memory they are."""

Units = NDArray[np.int64]


@final
@dataclass
class Draws:
    r"""Samples of the same units with one probability, one after the other.

    Attributes:
      number: of this kind of draws, from 0.
      units: how many there are; ``blocks``: in each block of numbers.
      probability: of a unit in a step.
      is_poisson: whether every unit is drawn by a coin of its own.
    """

    number: int
    units: int
    blocks: tuple[int, ...]
    probability: float
    is_poisson: bool
    samples: int = 0
    drawn: int = 0
    rows: float = 0.0
    turns: int = 0
    coincidences: int = 0
    counted: int = 0
    last: int = 0
    overlaps: list[int] = field(default_factory=lambda: [0, 0])
    before: list[int] = field(default_factory=lambda: [0, 0])

    def see(self, sample: Units, times: NDArray[np.int32], latest: NDArray[np.int64]) -> None:
        """Takes in a sample; ``times``: how often each of its units was drawn before; ``latest``: the number of the last such sample."""
        if self.samples:
            # Pairs of samples that have none in common: the first with the second, the third with the fourth; and those between.
            pair = self.samples % 2
            self.overlaps[pair] += int(np.count_nonzero(latest == self.samples))
            self.before[pair] += self.last
        sizes = (len(sample),) if len(self.blocks) == 1 else np.bincount(sample // BLOCK, minlength=len(self.blocks)).tolist()
        self.rows += sum((size - of * self.probability) ** 2 for size, of in zip(sizes, self.blocks, strict=True))
        if self.samples < BLOCK:
            self.turns += len(sample)
            # c (c - 1) grows by 2 c.
            self.coincidences += 2 * int(times.sum(dtype=np.int64))
            self.counted += 1
        self.samples, self.drawn, self.last = self.samples + 1, self.drawn + len(sample), len(sample)

    def log_tails(self, *, is_cut: bool) -> Iterator[float]:
        """For each test the logarithm of the probability that right samples are as far off; ``is_cut``: of what samples are a part of."""
        counts = list(zip(self.overlaps, self.before, strict=True))
        if is_cut or self.is_poisson:
            counts.append((self.drawn, self.samples * self.units))
        for found, trials in counts:
            # Of a part of a sample there may be any fewer.
            if not is_cut or found > trials * self.probability:
                yield count_log_tail(found, trials, self.probability)
        turns = {self.counted: self.units}
        if not self.is_poisson:
            yield coincidences_log_tail(self.coincidences, turns, self.probability)
            return
        expected = self.counted * self.probability
        squares = self.coincidences + self.turns * (1.0 - 2.0 * expected) + self.units * expected**2
        yield squares_log_tail(squares, turns, self.probability)
        rows = {size: self.samples * many for size, many in Counter(self.blocks).items() if size}
        yield squares_log_tail(self.rows, rows, self.probability)


@final
class SampleWatch:
    r"""What this attempt's samples add up to. Never stored, and none of it may leave but the verdict.

    Args:
      units: as many as there are numbers of units, canaries included.
    """

    def __init__(self, sampling: Sampling, units: int) -> None:
        self._sampling = sampling
        # How often each unit was drawn, and the number of its last sample, from 1: each is in one kind of draws, of this number.
        self._times, self._latest, self._kinds = np.zeros(units, np.int32), np.zeros(units, np.int64), np.full(units, -1, np.int32)
        self._draws: dict[tuple[int, int], Draws] = {}
        # Of allocations: who was there in the epoch that isn't over.
        self._there = np.zeros(units, bool)
        self._epoch: int | None = None
        self._is_impossible = False
        self._samples = 0
        # Kind of draws, step and sample, of the last few.
        self._waiting: list[tuple[tuple[int, int], int, Tensor]] = []
        self._numbers = 0

    def findings(self, team: Team, device: torch.device) -> SampleFindings:
        """The findings of the whole team, each of whose processes draws its own samples."""
        right = self._is_within(ERROR / team.size)
        own = torch.tensor([float(self._samples), 0.0 if right else 1.0], dtype=torch.float64, device=device)
        samples, violations = team.sum(own).tolist()
        status: Status = "violated" if violations else "consistent" if samples else "not run"
        return SampleFindings(status=status, samples=int(samples))

    @property
    def is_as_planned(self) -> bool:
        """Whether the samples may be those of the plan."""
        return self._is_within(ERROR)

    def _is_within(self, error: float) -> bool:
        self._add()
        if self._is_impossible:
            return False
        least = math.log(error / (TAILS * max(1, len(self._draws))))
        is_cut = isinstance(self._sampling, TruncatedPoissonSampling)
        return all(found >= least for draws in self._draws.values() for found in draws.log_tails(is_cut=is_cut))

    def see(self, place: int, step: int, sample: Tensor, among: Callable[[], Tensor | None]) -> None:
        r"""Takes in one sample.

        Args:
          place: of the sample's site.
          step: from 1.
          sample: numbers of units, (sampled,), int64: the whole sample, where several processes have parts of one. It is looked at later.
          among: gives the numbers of those whom it was drawn from; None where another process looks at the sample.
        """
        key = (place, step % self._sampling.groups if isinstance(self._sampling, InTurns) else 0)
        if key not in self._draws:
            if (drawn_from := among()) is None:
                return
            self._draws[key] = self._begun(drawn_from.cpu().numpy())
        self._samples += 1
        self._waiting.append((key, step, sample))
        self._numbers += len(sample)
        if len(self._waiting) == TOGETHER or (sample.device.type == "cpu" and self._numbers > WAITING):
            self._add()

    def _add(self) -> None:
        """What waits, in one transfer from the device."""
        if not self._waiting:
            return
        together = torch.cat([sample for _, _, sample in self._waiting]).cpu().numpy()
        ends = np.cumsum([len(sample) for _, _, sample in self._waiting])
        for (key, step, _), found in zip(self._waiting, np.split(together, ends[:-1]), strict=True):
            self._added(self._draws[key], step, found)
        self._waiting.clear()
        self._numbers = 0

    def _added(self, draws: Draws, step: int, found: Units) -> None:
        sampling = self._sampling
        if (found[1:] <= found[:-1]).any():
            # In their order, each once.
            self._is_impossible = True
            return
        # Nobody of another group or site.
        self._is_impossible |= bool((self._kinds[found] != draws.number).any())
        match sampling:
            case InEpochs():
                self._allocated(step, found)
                if sampling.place(step)[1]:
                    return  # turns of one epoch depend on each other: the first ones of all epochs are as coins draw them
            case FixedSizeSampling():
                self._is_impossible |= len(found) != min(sampling.expected_batch_size, draws.units)
            case TruncatedPoissonSampling():
                self._is_impossible |= len(found) > sampling.largest_batch
            case _:
                pass
        draws.see(found, self._times[found], self._latest[found])
        self._times[found] += 1
        self._latest[found] = draws.samples

    def _begun(self, among: Units) -> Draws:
        sampling = self._sampling
        is_fixed = isinstance(sampling, FixedSizeSampling)
        probability = min(1.0, sampling.expected_batch_size / max(1, len(among))) if is_fixed else sampling.probability
        is_poisson = not (is_fixed or isinstance(sampling, TruncatedPoissonSampling))
        self._is_impossible |= bool((self._kinds[among] >= 0).any())
        self._kinds[among] = number = len(self._draws)
        return Draws(number, len(among), tuple(np.bincount(among // BLOCK).tolist()), probability, is_poisson)

    def _allocated(self, step: int, found: Units) -> None:
        """Whether everybody is in one step of each epoch."""
        assert isinstance(self._sampling, InEpochs)
        epoch, place = divmod(step - 1, self._sampling.epoch)
        if place == 0:
            self._epoch, self._there[:] = epoch, False
        if self._epoch != epoch:
            return  # an attempt that began in the middle doesn't know who was there before
        self._is_impossible |= bool(self._there[found].any())
        self._there[found] = True
        if place == self._sampling.epoch - 1:
            # Every group had a turn in it.
            self._is_impossible |= int(self._there.sum()) != sum(draws.units for draws in self._draws.values())
