r"""Where one run's private randomness comes from: fresh from the operating system, or reproducible from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, final

from torch import Tensor

from zetadp.mechanisms.sampling.source import NoiseSource, RandomOrigin, RandomStream
from zetadp.trainer.engine.membership import seed_of
from zetadp.trainer.engine.noise.run_key import RunKey, run_key
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.engine.team.interface import Team
from zetadp.trainer.specs.base import TrainingSpec


class Streams(Protocol):
    """``stream_of`` a run: fresh streams for purposes."""

    def __call__(self, purpose: str, /, *vectors: Tensor) -> RandomStream:
        """The stream for this purpose; of noise, with what it is added to."""
        ...


class Randomness(Protocol):
    """The streams of each step; sampling and noise never share one."""

    @property
    def origin(self) -> RandomOrigin: ...

    def sampling(self, step: int, /) -> RandomStream:
        """The stream that decides who is in the sample of ``step`` (counted from 1)."""
        ...

    @property
    def repeats(self) -> bool:
        """Whether another attempt draws the same numbers."""
        ...

    def allocation(self, epoch: int, /) -> RandomStream:
        """The stream that decides in which step of ``epoch`` (counted from 0) each unit takes part."""
        ...

    @property
    def binds_noise(self) -> bool:
        """Whether noise follows from the numbers that it is added to, so that none can be drawn before they are there."""
        ...

    def noise(self, step: int, vector: Tensor, /) -> RandomStream:
        """A new stream for the noise of ``step``, which is added to this vector."""
        ...

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        """The noise of ``step`` as tensors on the vector's device; called once per step."""
        ...


def noise_over(stream: RandomStream, vector: Tensor) -> TorchSource:
    """A run's noise for a vector; of one that isn't finite an accelerator makes parameters that aren't, which end the run."""
    return TorchSource(stream, vector.device, refuses=False)


@final
class FreshRandomness:
    """Keys from the operating system, new in every process: a step that is run again gets different noise and a different sample."""

    def __init__(self) -> None:
        self._sampling = RandomStream.from_operating_system()

    @property
    def origin(self) -> RandomOrigin:
        return RandomOrigin.OPERATING_SYSTEM

    @property
    def repeats(self) -> bool:
        return False

    def sampling(self, _step: int, /) -> RandomStream:
        return self._sampling

    def allocation(self, _epoch: int, /) -> RandomStream:
        return self._sampling

    @property
    def binds_noise(self) -> bool:
        return False

    def noise(self, _step: int, _vector: Tensor, /) -> RandomStream:
        return RandomStream.from_operating_system()

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        return noise_over(self.noise(step, vector), vector)


@final
class CommittedRandomness:
    """One stream per step and purpose, all from a key that the run's plan was committed to; private as long as that key is."""

    def __init__(self, key: RunKey, site: int) -> None:
        self._key, self._site = key, site

    @property
    def origin(self) -> RandomOrigin:
        return RandomOrigin.OPERATING_SYSTEM

    @property
    def repeats(self) -> bool:
        # The number of the attempt is in every stream's key.
        return False

    @property
    def binds_noise(self) -> bool:
        return True

    def sampling(self, step: int, /) -> RandomStream:
        return self._key.stream(f"sampling {self._site} {step}")

    def allocation(self, epoch: int, /) -> RandomStream:
        return self._key.stream(f"allocation {self._site} {epoch}")

    def noise(self, step: int, vector: Tensor, /) -> RandomStream:
        return self._key.noise(self._site, step, _bytes(vector))

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        return noise_over(self.noise(step, vector), vector)


@final
class SeededRandomness:
    """One stream per step and purpose, all from a seed: a resumed run equals an uninterrupted one. Not private if the seed is known."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    @property
    def origin(self) -> RandomOrigin:
        return RandomOrigin.USER_SEED

    @property
    def repeats(self) -> bool:
        return True

    def sampling(self, step: int, /) -> RandomStream:
        return RandomStream.from_seed(self._seed, f"sampling step {step}")

    def allocation(self, epoch: int, /) -> RandomStream:
        return RandomStream.from_seed(self._seed, f"allocation in epoch {epoch}")

    @property
    def binds_noise(self) -> bool:
        return False

    def noise(self, step: int, _vector: Tensor, /) -> RandomStream:
        return RandomStream.from_seed(self._seed, f"noise step {step}")

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        return noise_over(self.noise(step, vector), vector)


def randomness_of(seed: int | None, site: int, team: Team) -> Randomness:
    """The randomness of one site in one process: no two of them share a stream. ``seed`` is None if the run isn't reproducible."""
    if seed is None:
        key = run_key()
        return FreshRandomness() if key is None else CommittedRandomness(key, site)
    return SeededRandomness(seed if (site, team.rank) == (0, 0) else seed_of(seed, f"site {site} process {team.rank}"))


def stream_of(spec: TrainingSpec, purpose: str, *vectors: Tensor) -> RandomStream:
    r"""A stream for one purpose: from the seed if the run is reproducible, from the run's key if it has one, else fresh from the system.

    Args:
      vectors: of noise, what it is added to: see ``run_key``.
    """
    if spec.seed is not None:
        return RandomStream.from_seed(spec.seed, purpose)
    key = run_key()
    if key is None:
        return RandomStream.from_operating_system()
    return key.stream(purpose, b"".join(map(_bytes, vectors)) if vectors else None)


def origin_of(spec: TrainingSpec) -> RandomOrigin:
    """The origin of ``stream_of``'s streams."""
    return RandomOrigin.OPERATING_SYSTEM if spec.seed is None else RandomOrigin.USER_SEED


def write_down(step: int, released: Sequence[Tensor]) -> None:
    """What was released beside the loop's noisy sums, for an auditor who repeats the run; does nothing where the run has no key.

    A release that is drawn once for all attempts has the step ``ONCE``, and is written down before the file that holds it is made.
    """
    if (key := run_key()) is not None:
        key.release(step, list(map(_bytes, released)))


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()
