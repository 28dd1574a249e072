"""Broken noise of every kind that the run's own test has to find, and what it sees of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.made_up import all_steps
from zetadp.mechanisms import (
    Adjacency,
    ComplexGaussian,
    Gaussian,
    Laplace,
    NoiseSource,
    RandomOrigin,
    RandomStream,
    Sensitivity,
)
from zetadp.trainer import ExecutionPlan
from zetadp.trainer.engine import (
    Alone,
    ClippedGradients,
    NoiseWatch,
    ParameterLayout,
    PrivateLoop,
    Problem,
    Site,
    TorchSource,
    TrainingState,
)
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.noise.randomness import Randomness
from zetadp.trainer.specs.execution_plan import FlatClipping
from zetadp.trainer.specs.sampling import FederatedSampling, PoissonSampling

Noise = ComplexGaussian | Gaussian | Laplace
Adversary = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""Right noise of a release, and what the adversary added before -> what it adds now."""

L2 = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
L1 = Sensitivity(l1=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
GAUSSIAN, CIRCULAR = Gaussian(std=3.0, sensitivity=L2), ComplexGaussian(std=3.0, sensitivity=L2)
ROUND = ComplexGaussian(std_real=2.0, std_imag=1.5, sensitivity=L2)
UNEVEN = ComplexGaussian(std_real=2.0, std_imag=0.5, correlation=-0.6, sensitivity=L2)
LAPLACE = Laplace(scale=3.0, sensitivity=L1)
MECHANISMS: list[Noise] = [GAUSSIAN, CIRCULAR, UNEVEN, LAPLACE]
NAMES = ["real", "circular", "uneven", "laplace"]

SHAPES = [(40, 60), (100, 24)]
"""Steps, and numbers of one step: 2400 together."""
SHAPED = [pytest.param(shape, id=str(shape)) for shape in SHAPES]
LOOPS = [
    pytest.param(kind, shape, id=f"{name}-{shape}") for name, kind in (("real", Gaussian), ("complex", ComplexGaussian)) for shape in SHAPES
]

UNITS, LOT, DELTA = 30, 5, 1e-5
MULTIPLIERS = {40: 1.5, 100: 2.25}
"""Noise multipliers for epsilon 4, by steps."""


def halves(sign: float) -> Adversary:
    def broken(noise: Tensor, _before: Sequence[Tensor]) -> Tensor:
        half = len(noise) // 2
        return torch.cat((noise[: len(noise) - half], sign * noise[:half]))

    return broken


def steps(sign: float, *, always: bool) -> Adversary:
    """Every step, or every other one, adds its predecessor's noise."""

    def broken(noise: Tensor, before: Sequence[Tensor]) -> Tensor:
        return sign * before[-1] if before and (always or len(before) % 2 == 1) else noise

    return broken


def mixed(share: float) -> Adversary:
    """Every step's noise is in part its predecessor's, and of the right scale."""
    return lambda noise, before: share * before[-1] + (1.0 - share**2) ** 0.5 * noise if before else noise


def scaled(factor: float) -> Adversary:
    return lambda noise, _before: factor * noise


def cycle(signs: Sequence[float]) -> Adversary:
    """As many noises as there are signs, over and over, in each round times their signs."""
    return lambda noise, before: signs[len(before) % len(signs)] * before[-len(signs)] if len(before) >= len(signs) else noise


def runs(numbers: int, sign: float) -> Adversary:
    """Every release repeats its first numbers, each time with the sign turned over where ``sign`` is -1."""

    def broken(noise: Tensor, _before: Sequence[Tensor]) -> Tensor:
        several = -(-len(noise) // numbers)
        return torch.cat([sign**number * noise[:numbers] for number in range(several)])[: len(noise)]

    return broken


REPEATING = {
    "equal halves": halves(1.0),
    "opposite halves": halves(-1.0),
    "equal in twos": steps(1.0, always=False),
    "opposite in twos": steps(-1.0, always=False),
    "slowly changing": mixed(0.8),
    "swinging": mixed(-0.8),
}
FAR = {
    "every third noise": cycle((1.0, 1.0, 1.0)),
    "every fifth noise": cycle((1.0,) * 5),
    "runs of four": runs(4, 1.0),
}
"""Repetitions at other distances than those of the last release and of half a release."""
CANCELLING = {"every third noise": cycle((-1.0,) * 3), "runs of four": runs(4, -1.0)}
"""Sums of which are too small: it takes more numbers to see that."""
FIXED = {"one noise": steps(1.0, always=True), "one noise with turning sign": steps(-1.0, always=True)}
"""So few different numbers may have a wrong scale too, by chance: only over several seeds do they show that repetitions are seen."""

RESCALED = {"0.7": scaled(0.7), "1.3": scaled(1.3)}
BROKEN = {**REPEATING, **FAR, **RESCALED}
RELEASE = releasing.release


@dataclass
class Release:
    """In the place of ``releasing.release``."""

    adversary: Adversary
    before: list[Tensor] = field(default_factory=list)

    def __call__(self, mechanism: Noise, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        self.before.append(self.adversary(RELEASE(mechanism, torch.zeros_like(vector), source), self.before))
        return vector + self.before[-1]


@dataclass(frozen=True)
class Stuck:
    """Draws the noise of a step from the stream of another one."""

    honest: Randomness
    drawn_as: Callable[[int], int]

    @property
    def origin(self) -> RandomOrigin:
        return self.honest.origin

    def sampling(self, step: int, /) -> RandomStream:
        return self.honest.sampling(step)

    @property
    def binds_noise(self) -> bool:
        return False

    def noise(self, step: int, vector: Tensor, /) -> RandomStream:
        return self.honest.noise(self.drawn_as(step), vector)

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        return self.honest.noise_source(self.drawn_as(step), vector)


def watched(
    mechanism: Noise, adversary: Adversary, shape: tuple[int, int], seed: int = 0, dtype: torch.dtype = torch.float32
) -> NoiseWatch:
    """What a run sees of such releases of sums that are larger than their noise."""
    source = TorchSource(RandomStream.from_seed(seed, "noise"), torch.device("cpu"))
    sums = torch.Generator().manual_seed(seed)
    watch, release = NoiseWatch(mechanism), Release(adversary)
    for _ in range(shape[0]):
        vector = 10.0 * torch.randn(shape[1], generator=sums)
        watch.see(vector, release(mechanism, vector, source))
    return watch


def honest(noise: Tensor, _before: Sequence[Tensor]) -> Tensor:
    return noise


def looped(
    mechanism: type[Gaussian | ComplexGaussian], shape: tuple[int, int], sites: Sequence[Randomness]
) -> tuple[NoiseWatch, ExecutionPlan]:
    """A whole training of a network with so many coordinates, at the claimed epsilon, and what its watch has seen."""
    inputs, outputs = {60: (9, 6), 24: (5, 4)}[shape[1]]
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(UNITS, inputs, generator=generator)
    targets = torch.randint(outputs, (UNITS,), generator=generator)
    network = nn.Linear(inputs, outputs)
    problem = Problem(
        network, lambda scores, labels: nn.functional.cross_entropy(scores, labels, reduction="none"), features, targets, None
    )
    clipping, each = FlatClipping(bound=1.0), UNITS // len(sites)
    plan = ExecutionPlan(
        sampling=PoissonSampling(records=UNITS, expected_batch_size=LOT)
        if len(sites) == 1
        else FederatedSampling(nodes=len(sites), records=UNITS, expected_batch_size=LOT // len(sites)),
        clipping=clipping,
        mechanism=mechanism(std=MULTIPLIERS[shape[0]], sensitivity=L2),
        steps=shape[0],
        delta=DELTA,
    )
    layout, watch = ParameterLayout.of(network), NoiseWatch(plan.mechanism)
    assert layout.coordinates == shape[1]
    places = [Site(torch.arange(number * each, (number + 1) * each), randomness) for number, randomness in enumerate(sites)]

    def descend(state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, _step: int) -> tuple[Tensor, dict[str, Tensor]]:
        return parameters - 0.1 * gradient, state

    loop = PrivateLoop(ClippedGradients(problem, clipping, 16), layout, plan, places, descend, Alone(), watch=watch)
    all_steps(loop, TrainingState(0, torch.zeros(layout.coordinates), {}, clipping.bound))
    assert watch.numbers == shape[0] * shape[1] * len(sites)
    return watch, plan
