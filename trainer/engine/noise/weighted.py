r"""A vector and weighted earlier ones added up in float64: in one pass of a loop in C on a processor, as torch operations elsewhere.

Both give the same bits: every operation is one of float64 that IEEE 754 rounds, and none is fused with another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.sampling import kernel


def _compiled() -> Any:
    try:
        return import_module("zetadp.trainer.engine.noise._weighted")
    except ImportError:
        return None


COMPILED: Any = _compiled()
"""The C module; None if there was no compiler."""

_NOTHING = np.empty(0)


@final
@dataclass(frozen=True)
class WeightedSum:
    r"""s = ``own`` v + c_1 e_1 + c_2 e_2 + ..., held within +-``bound``.

    v is ``factor`` x, held within +-``largest`` and rounded to multiples of ``unit``.

    Attributes:
      coefficients: c_1, c_2, ..., at most 64; of fewer earlier vectors the first ones.
      unit: a power of two; 0 for no rounding.
      weight: what comes out is ``weight`` s.
      keeps_sum: whether s is kept, or else v.
    """

    coefficients: tuple[float, ...]
    factor: float = 1.0
    largest: float = math.inf
    unit: float = 0.0
    own: float = 1.0
    bound: float = math.inf
    weight: float = 1.0
    keeps_sum: bool = False

    def over(self, given: Tensor, earlier: Sequence[Tensor], kept: Tensor | None, out: Tensor) -> Tensor:
        r"""``out``, overwritten.

        Args:
          given: x, (numbers,), float32 or float64, contiguous as all are.
          earlier: e_1, e_2, ..., each (numbers,), all of one of these types.
          kept: overwritten with what is kept, (numbers,), float64; it may be one of the earlier ones.
          out: (numbers,), float32 or float64; it may be ``given``, or one of the earlier ones that isn't ``kept``.
        """
        if COMPILED is None or given.device.type != "cpu":
            return self._by_torch(given, earlier, kept, out)
        recursion = self.recursion(earlier, kept)
        COMPILED.weighted(given.detach().numpy(), given.dtype == torch.float32, recursion, out.numpy(), out.dtype == torch.float32)
        return out

    def recursion(self, earlier: Sequence[Tensor], kept: Tensor | None) -> kernel.Recursion:
        """The same for a loop in C, of vectors on a processor."""
        vectors = tuple(one.numpy() for one in earlier)
        return (
            *(self.factor, self.largest, self.unit, self.own, np.array(self.coefficients[: len(vectors)]), vectors),
            bool(vectors) and earlier[0].dtype == torch.float32,
            *(self.bound, self.weight, self.keeps_sum, _NOTHING if kept is None else kept.numpy()),
        )

    def _by_torch(self, given: Tensor, earlier: Sequence[Tensor], kept: Tensor | None, out: Tensor) -> Tensor:
        number = given.to(torch.float64, copy=True).mul_(self.factor).clamp_(-self.largest, self.largest)
        if self.unit:
            number.mul_(1.0 / self.unit).round_().mul_(self.unit)
        found = number * self.own
        for coefficient, one in zip(self.coefficients, earlier, strict=False):
            # Not add_ with a factor, which rounds once or twice as the processor has it.
            found.add_(one.double() * coefficient)
        found.clamp_(-self.bound, self.bound)
        if kept is not None:
            kept.copy_(found if self.keeps_sum else number)
        return out.copy_(found.mul_(self.weight))


@final
@dataclass(frozen=True)
class Encoding:
    """What is released of a step's sum: ``rule`` over it and the ``earlier`` vectors; ``kept`` is written then, once."""

    rule: WeightedSum
    earlier: Sequence[Tensor]
    kept: Tensor

    def over(self, total: Tensor) -> Tensor:
        """(numbers,), float64, in new memory."""
        return self.rule.over(total, self.earlier, self.kept, torch.empty_like(total, dtype=torch.float64))

    def behind(self, first: int) -> Encoding:
        """Of the numbers from this one on."""
        return Encoding(self.rule, [one[first:] for one in self.earlier], self.kept[first:])

    @property
    def recursion(self) -> kernel.Recursion:
        return self.rule.recursion(self.earlier, self.kept)


@final
class LastVectors:
    """The last vectors of a recursion, the newest first, each (numbers,); the memory of the oldest one is written over."""

    def __init__(self, most: int) -> None:
        self._vectors: deque[Tensor] = deque(maxlen=most)

    @property
    def all(self) -> Sequence[Tensor]:
        return self._vectors

    def room(self, like: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """Memory of this type for what comes next: the oldest one's, which is still among all, if it has to go then; or new one."""
        is_full = len(self._vectors) == self._vectors.maxlen
        return self._vectors[-1] if is_full and self._vectors[-1].dtype == dtype else torch.empty_like(like, dtype=dtype)

    def add(self, vector: Tensor) -> None:
        """Takes a vector in, which nobody else may change; the oldest one goes for it."""
        self._vectors.appendleft(vector)

    def clear(self) -> None:
        self._vectors.clear()


class CorrelatedSums(ABC):
    r"""A site's last sums in one attempt, secret, and what followed from its last releases.

    Neither is ever written: an attempt that resumes a run begins with none. That is as private (mechanisms/proofs/banded_sums.md, 4 to 6),
    but less of its first gradients' noise is cancelled. What is encoded stays within what a release adds noise to as it is.
    """

    def __init__(self) -> None:
        self._step: int | None = None

    @contextmanager
    def encoding(self, step: int, total: Tensor) -> Iterator[Encoding]:
        r"""What noise is added to in a step, which whoever asks for it computes; it counts as released.

        Args:
          step: a step that doesn't follow the last one begins anew, and so does one after a step that failed.
          total: the step's clipped sum, (coordinates,), real, finite.
        """
        if self._step is not None and step != self._step + 1:
            self._begin_anew()
        self._step = step
        encoding = self._encoding(total)
        try:
            yield encoding
        except BaseException:
            self._begin_anew()  # what is kept may be half written
            raise
        self._keep(encoding.kept)

    @abstractmethod
    def decoded(self, released: Tensor, dtype: torch.dtype) -> Tensor:
        r"""The step's noisy sum, from its release and the ones before: post-processing.

        Args:
          released: (coordinates,), always of one type; it may be kept, and written over later.
          dtype: of the sum, (coordinates,).
        """

    @abstractmethod
    def _begin_anew(self) -> None: ...

    @abstractmethod
    def _encoding(self, total: Tensor) -> Encoding: ...

    @abstractmethod
    def _keep(self, kept: Tensor) -> None: ...
