r"""What a paper prints about an experiment (typed in), and what the accountants say about it (computed)."""

from __future__ import annotations

from typing import Literal, final

from zetadp.accountants import Bound, Event
from zetadp.app.calculators.compare.finding import Direction
from zetadp.mechanisms.base import Extended, Value
from zetadp.mechanisms.errata import Paper

Method = Literal["gdp", "rdp", "target", "pure"]
"""How the paper says it obtained an epsilon. target: noise was chosen to reach it."""


@final
class Printed(Value):
    """An epsilon that a paper prints, and where it does."""

    epsilon: float
    method: Method
    where: str


@final
class Experiment(Value):
    r"""The privacy settings of one experiment as its paper gives them; null if the paper doesn't say.

    Attributes:
      task: what was trained, or released.
      unit: what one record is.
      sample_size, population_size: their quotient is the sampling rate; as given, or as the rate's fraction.
      noise_multiplier: the paper's sigma, whatever it refers to.
      steps: T.
      delta: null for pure differential privacy.
      printed: every epsilon printed for it.
      note: what else the paper says about it that matters here.
    """

    task: str
    unit: str
    sample_size: int | None = None
    population_size: int | None = None
    noise_multiplier: float | None = None
    steps: int | None = None
    delta: float | None = None
    printed: tuple[Printed, ...] = ()
    note: str = ""


@final
class Verdict(Value):
    """A printed epsilon against the proven one: ``ratio`` is printed / proven, ``proven`` the upper end of the bracket."""

    printed: float
    method: Method
    where: str
    proven: Extended
    ratio: Extended
    direction: Direction


@final
class Reading(Value):
    r"""One way to read an experiment, and what then holds.

    Attributes:
      name: A to D for the four conventions of errata Z14; a word for other readings.
      meaning: what is assumed to have been done.
      errata: the errata rows that say why.
      noise_multiplier: deviation of one real component over the clipping bound; null if there is none.
      event: what was accounted for; send it to POST /v1/profiles for more.
      epsilon: an interval that contains the smallest epsilon at the experiment's delta; ``upper`` is what may be claimed.
      rdp_epsilon: what Renyi accounting gives, also an upper bound; null if it wasn't computed.
      verdicts: each printed epsilon next to it.
    """

    name: str
    meaning: str
    errata: tuple[str, ...]
    noise_multiplier: float | None
    event: Event
    epsilon: Bound
    rdp_epsilon: Extended | None = None
    verdicts: tuple[Verdict, ...]


@final
class Approximation(Value):
    """An epsilon from a limit theorem, as the printed values were computed. NOT A BOUND: never rely on it."""

    name: Literal["gdp_clt_uniform", "gdp_clt_poisson"]
    is_bound: Literal[False] = False
    formula: str
    gdp_mu: Extended
    epsilon: Extended
    erratum: str


@final
class ExperimentReport(Value):
    """One experiment, read in every way that its paper leaves open."""

    experiment: Experiment
    readings: tuple[Reading, ...]
    approximations: tuple[Approximation, ...] = ()


class PaperSummary(Value):
    r"""One paper in brief: nothing of it takes computing.

    Attributes:
      holds: in brief, which of its privacy claims hold.
    """

    paper: Paper
    title: str
    authors: str
    proposes: str
    holds: str

    def with_experiments(self, experiments: tuple[ExperimentReport, ...]) -> PaperReport:
        """The paper and its experiments, recomputed."""
        return PaperReport.model_validate({**self.model_dump(), "experiments": experiments})


@final
class PaperReport(PaperSummary):
    r"""One paper and its experiments.

    Attributes:
      holds: in brief, which of its privacy claims hold.
    """

    experiments: tuple[ExperimentReport, ...]
