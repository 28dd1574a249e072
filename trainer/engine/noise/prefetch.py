r"""The next step's noise, drawn by a thread beside the step.

Noise doesn't depend on the data, so it can be ready before the clipped sum is. Every step has its own stream, which only one thread at a
time draws from; a number drawn ahead is handed out once or never.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self, final

from torch import Tensor

from zetadp.mechanisms.sampling.source import FAIR, NoiseSource, RandomOrigin, RandomStream
from zetadp.trainer.engine.noise.randomness import Randomness

Make = Callable[[], NoiseSource[Tensor]]
"""Makes the step's source from its beginning: with a seed the same numbers each time, otherwise new ones."""


Request = tuple[int, ...]
"""The shape of the standard normal numbers requested."""


@final
class Drawn:
    """What was drawn ahead, in order, and the source it came from, which continues right after it."""

    def __init__(self, make: Make, requests: tuple[Request, ...]) -> None:
        self.source = make()
        self.values = deque((request, self.source.standard_normal(request)) for request in requests)


@final
class AheadSource:
    r"""The source of one step: the same numbers as ``make()`` gives, some of which may have been drawn already.

    Attributes:
      requests: for normal numbers so far, up to the first draw of another kind; the next step is expected to make the same requests.
    """

    def __init__(self, make: Make, drawn: Drawn | None) -> None:
        self._make = make
        self._drawn = Drawn(make, ()) if drawn is None else drawn
        self._foresees = True
        self.requests: tuple[Request, ...] = ()

    @property
    def origin(self) -> RandomOrigin:
        return self._drawn.source.origin

    def standard_normal(self, shape: tuple[int, ...]) -> Tensor:
        return self._normal(shape)

    def standard_laplace(self, shape: tuple[int, ...]) -> Tensor:
        return self._behind().standard_laplace(shape)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        return self._behind().uniform(shape)

    def signs(self, shape: tuple[int, ...], negative: int = FAIR) -> Tensor:
        return self._behind().signs(shape, negative)

    def is_complex(self, value: Tensor) -> bool:
        return self._drawn.source.is_complex(value)

    def all_finite(self, value: Tensor) -> bool:
        return self._drawn.source.all_finite(value)

    def hides(self, value: Tensor) -> bool:
        return self._drawn.source.hides(value)

    def released(self, value: Tensor, noise: Tensor, factor: float, largest: float, scale: float) -> Tensor:
        return self._drawn.source.released(value, noise, factor, largest, scale)

    def released_normal(self, value: Tensor, factor: float, largest: float, scale: float) -> Tensor:
        # Numbers drawn ahead are already available.
        return self.released(value, self._normal(tuple(value.shape)), factor, largest, scale)

    def shortened(self, first: Tensor, second: Tensor, largest: float) -> tuple[Tensor, Tensor]:
        return self._drawn.source.shortened(first, second, largest)

    def wide(self, value: Tensor) -> Tensor:
        return self._drawn.source.wide(value)

    def pairs(self, value: Tensor) -> Tensor:
        return self._drawn.source.pairs(value)

    def complex(self, pairs: Tensor) -> Tensor:
        return self._drawn.source.complex(pairs)

    def low_pass(self, value: Tensor, kept: tuple[int, ...]) -> Tensor:
        return self._drawn.source.low_pass(value, kept)

    def all_within(self, value: Tensor, lower: float, upper: float) -> bool:
        return self._drawn.source.all_within(value, lower, upper)

    def _normal(self, request: Request) -> Tensor:
        if self._drawn.values and self._drawn.values[0][0] != request:
            self._start_again()
        numbers = self._drawn.values.popleft()[1] if self._drawn.values else self._drawn.source.standard_normal(request)
        if self._foresees:
            self.requests += (request,)
        return numbers

    def _behind(self) -> NoiseSource[Tensor]:
        """The underlying source, positioned after the numbers given so far."""
        if self._drawn.values:
            self._start_again()
        self._foresees = False
        return self._drawn.source

    def _start_again(self) -> None:
        # The request wasn't the expected one: what was drawn ahead is dropped, and what was given is skipped, so that a seed's numbers stay
        # those of a run that draws nothing ahead.
        self._drawn = Drawn(self._make, self.requests)
        self._drawn.values.clear()


@final
class NoiseAhead:
    r"""A run's ``Randomness`` with each step's noise drawn while the step before it ends and its own gradients are computed.

    The next step is expected to make the same requests as the last; if its requests differ, they are drawn on the spot. Use this as a
    context manager, which stops the thread at its end. The numbers are the same as without it.

    Args:
      randomness: the run's, which doesn't bind its noise.
      last_step: nothing is drawn for later steps.
    """

    def __init__(self, randomness: Randomness, last_step: int) -> None:
        assert not randomness.binds_noise
        self._randomness = randomness
        self._last_step = last_step
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="noise")
        self._coming: tuple[int, Future[Drawn]] | None = None
        self._latest: tuple[AheadSource, Tensor] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._coming = None

    @property
    def origin(self) -> RandomOrigin:
        return self._randomness.origin

    def sampling(self, step: int, /) -> RandomStream:
        # A step begins: when the one before it was released, its noise may not have been predictable.
        self._foresee(step)
        return self._randomness.sampling(step)

    @property
    def repeats(self) -> bool:
        return self._randomness.repeats

    def allocation(self, epoch: int, /) -> RandomStream:
        return self._randomness.allocation(epoch)

    @property
    def binds_noise(self) -> bool:
        return False

    def noise(self, step: int, vector: Tensor, /) -> RandomStream:
        return self._randomness.noise(step, vector)

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        drawn = None
        if self._coming is not None and self._coming[0] == step:
            # An error in the thread is raised here, in the step.
            drawn = self._coming[1].result()
        self._coming = None
        # Of the vector nothing but its device counts.
        like = vector.new_empty(0)
        if self._latest is not None and self._latest[1].device != like.device:
            self._latest = drawn = None
        self._foresee(step + 1)
        source = AheadSource(partial(self._randomness.noise_source, step, like), drawn)
        self._latest = (source, like)
        return source

    def _foresee(self, step: int) -> None:
        if self._latest is None or step > self._last_step or (self._coming is not None and self._coming[0] == step):
            return
        source, like = self._latest
        make = partial(self._randomness.noise_source, step, like)
        self._coming = (step, self._thread.submit(Drawn, make, source.requests))
