r"""What the comparison asks (docs/comparison.md): seven rows, fifty random ones, the corner list, and random points with extremes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from zetadp.accountants import Event, FixedSizeSampled, Grouped, PoissonSampled, Release, Repeated
from zetadp.mechanisms import Adjacency, Gaussian, Laplace, Sensitivity

RANDOM_SEED, EXTREME_SEED = 22, 2200
RANDOM_COUNT, EXTREME_COUNT = 50, 1000


@dataclass(frozen=True)
class Question:
    """``count`` samples with noise of this multiplier: epsilon at ``delta``, or delta at ``epsilon``, the one that is given.

    Attributes:
      probability: of a Poisson sample; 1 is no sampling.
      sizes: of a sample of a fixed size and the population, instead of ``probability``.
      multiplier: standard deviation, or scale of Laplace noise, of which one record moves the query by at most 1 (under replace_one
        one record alone contributes at most 1, and replacing it moves the query by at most 2).
    """

    probability: float
    multiplier: float
    count: int
    delta: float | None = None
    epsilon: float | None = None
    sizes: tuple[int, int] | None = None
    group: int = 1
    noise: str = "gaussian"
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    @property
    def is_plain(self) -> bool:
        """Whether the peers can be asked: one record, Poisson samples, Gaussian noise, add_remove, epsilon at a delta."""
        kind = (self.sizes, self.group, self.noise, self.adjacency)
        return kind == (None, 1, "gaussian", Adjacency.ADD_REMOVE) and self.delta is not None

    def text(self) -> str:
        """In a line."""
        sample = f"q {self.probability:.4g}" if self.sizes is None else f"{self.sizes[0]} of {self.sizes[1]}"
        asked = f"delta {self.delta:.3g}" if self.delta is not None else f"epsilon {self.epsilon:.4g}"
        group = f", group {self.group}" if self.group > 1 else ""
        kind = "" if self.noise == "gaussian" else f", {self.noise}"
        other = "" if self.adjacency is Adjacency.ADD_REMOVE else f", {self.adjacency.value}"
        return f"{sample}, noise {self.multiplier:.4g}, T {self.count}, {asked}{group}{kind}{other}"

    def event(self) -> Event:
        """As zetadp is asked."""
        replaced = self.adjacency is Adjacency.REPLACE_ONE
        norm = {"l2": 2.0, "l2_contribution": 1.0} if self.noise == "gaussian" else {"l1": 2.0, "l1_contribution": 1.0}
        bounds = norm if replaced else {"l2": 1.0, "l1": 1.0}
        sensitivity = Sensitivity.model_validate({**bounds, "adjacency": self.adjacency, "unit": "record"})
        mechanism = (
            Gaussian(std=self.multiplier, sensitivity=sensitivity)
            if self.noise == "gaussian"
            else Laplace(scale=self.multiplier, sensitivity=sensitivity)
        )
        one: Event = Release(mechanism=mechanism)
        if self.sizes is not None:
            one = FixedSizeSampled(sample_size=self.sizes[0], population_size=self.sizes[1], event=one)
        elif self.probability < 1.0:
            one = PoissonSampled(probability=self.probability, event=one)
        every: Event = Repeated(count=self.count, event=one) if self.count > 1 else one
        return Grouped(size=self.group, unit="user", event=every) if self.group > 1 else every


SEVEN = [
    Question(0.005, 0.61, 4000, 1e-5),
    Question(0.063, 5.0, 1588, 5e-4),
    Question(0.009, 1.0, 556, 1e-5),
    Question(3e-5, 1.0, 1_000_000, 1e-5),
    Question(0.001, 1.1, 10_000, 1e-5),
    Question(0.01, 1.0, 10_000, 1e-6),
    Question(0.256, 4.0, 2000, 1e-5),
]

CORNERS = [
    Question(1.63e-5, 0.0537, 7183, 0.1457),
    Question(1e-5, 0.8, 100, 1e-12),
    Question(1.0, 0.2, 12, epsilon=109.0, sizes=(18466, 201895)),
    Question(1.2e-4, 2.2, 815, 2e-73, group=8),
    Question(1.2e-4, 4.1, 2, 1.8e-10, group=9),
    # The classes that the list names: sparse samples, small noise, tiny delta with few releases, groups, deltas near 1.
    Question(1e-6, 1.0, 1000, 1e-9),
    Question(1e-4, 0.3, 10, 1e-8),
    Question(0.01, 0.3, 1000, 1e-5),
    Question(0.05, 1.0, 5, 1e-80),
    Question(0.01, 2.0, 1000, 1e-8, group=4),
    Question(0.02, 0.7, 2000, 0.9),
]


def random_rows() -> list[Question]:
    """Fifty trainings as people run them: q in 1e-4..0.3, multiplier in 0.6..6, 1 to 300 epochs, delta in 1e-10..1e-3, in logarithms."""
    generator = random.Random(RANDOM_SEED)  # noqa: S311 - no secret

    def between(low: float, high: float) -> float:
        return math.exp(generator.uniform(math.log(low), math.log(high)))

    found: list[Question] = []
    for _ in range(RANDOM_COUNT):
        probability, epochs = between(1e-4, 0.3), between(1.0, 300.0)
        found.append(Question(probability, between(0.6, 6.0), max(20, round(epochs / probability)), between(1e-10, 1e-3)))
    return found


def extreme_points(count: int = EXTREME_COUNT) -> Iterator[Question]:
    """Points anywhere, in logarithms: q in 1e-7..1, multiplier in .05..100, T in 1..10^6, delta in 1e-300..0.5, groups up to 8.

    Of ten points six are Poisson samples with Gaussian noise, two with Laplace noise, and two are samples of a fixed size; half of the
    Poisson samples with Gaussian noise are under replace_one, and a third of all are groups. Half of the deltas are above 1e-15.
    """
    generator = random.Random(EXTREME_SEED)  # noqa: S311 - no secret
    for _ in range(count):
        least = -15.0 if generator.random() < 0.5 else -300.0
        question = Question(
            probability=10.0 ** generator.uniform(-7.0, 0.0),
            multiplier=10.0 ** generator.uniform(math.log10(0.05), 2.0),
            count=round(10.0 ** generator.uniform(0.0, 6.0)),
            delta=10.0 ** generator.uniform(least, math.log10(0.5)),
            group=generator.randint(2, 8) if generator.random() < 1.0 / 3.0 else 1,
        )
        kind = generator.randrange(10)
        if kind < 3:
            question = replace(question, adjacency=Adjacency.REPLACE_ONE)
        elif kind in (6, 7):
            question = replace(question, noise="laplace")
        elif kind in (8, 9):
            population = round(10.0 ** generator.uniform(2.0, 7.0))
            question = replace(question, sizes=(max(1, round(question.probability * population)), population), probability=1.0)
        yield question
