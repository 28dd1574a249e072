r"""A recipe: a spec that is ready to send, together with what the paper did, what it printed and how this differs."""

from __future__ import annotations

import re
from typing import Annotated, final

from pydantic import Field, StringConstraints

from zetadp.accountants.events import Event, PoissonSampled, Release, Repeated
from zetadp.mechanisms import ComplexGaussian, Sensitivity
from zetadp.mechanisms.base import Adjacency, Count, OpenProbability, Positive, PrivacyUnit, Probability, Value
from zetadp.mechanisms.errata import Paper
from zetadp.trainer import AnyTrainingSpec
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.specs.plans import AnyPlan
from zetadp.trainer.specs.report import MetricName

RecipeName = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Words = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]


@final
class PrintedEpsilon(Value):
    """A guarantee as the paper prints it, correct or not; the proven one is given next to it."""

    epsilon: Positive
    delta: OpenProbability
    method: Words
    where: Words


@final
class PrintedResult(Value):
    r"""What the paper prints about one model: fractions for rates, decibels for ``psnr``.

    Attributes:
      of: which model, trained how.
      epsilon: the epsilon among several of its table, as printed; None where there is one for all, or none.
    """

    of: Words
    figures: Annotated[dict[MetricName, float], Field(min_length=1)]
    where: Words
    epsilon: Positive | None = None

    @property
    def is_without_privacy(self) -> bool:
        """Whether the paper prints it as its result without any privacy."""
        return "without privacy" in self.of

    @property
    def is_baseline(self) -> bool:
        """Whether it is of plain DP-SGD, which the papers compare their own methods with."""
        return re.search(r"(^|, )DP-SGD\b", self.of) is not None


def printed_accuracy(of: str, accuracy: float, where: str, epsilon: float | None = None) -> PrintedResult:
    """An accuracy in [0, 1] that a paper prints; the other arguments as in ``PrintedResult``."""
    return PrintedResult(of=of, figures={"accuracy": accuracy}, where=where, epsilon=epsilon)


@final
class MeasuredResult(Value):
    r"""What this recipe reached here, calibrated to an epsilon, on the held-out records of its own public data (``benchmarks.recipes``).

    Attributes:
      epsilon: the proven one.
      metric: what was measured.
      mean, deviation: of that over so many ``runs``, each with noise of its own.
    """

    epsilon: Positive
    metric: MetricName
    mean: float
    deviation: Annotated[float, Field(ge=0.0)]
    runs: Count


@final
class PrintedRun(Value):
    r"""The paper's own sampling, noise and steps, in the reading that is sound: Poisson samples, noise per real component, add or remove.

    Attributes:
      sampling_probability: of one unit in one step.
      noise_multiplier: std per real component / clipping bound.
      steps: epochs / sampling_probability, rounded to the nearest.
    """

    sampling_probability: Probability
    noise_multiplier: Positive
    steps: Count
    delta: OpenProbability
    unit: PrivacyUnit

    @property
    def event(self) -> Event:
        """What accountants read of it."""
        sensitivity = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit=self.unit)
        release = Release(mechanism=ComplexGaussian(std=self.noise_multiplier, sensitivity=sensitivity))
        return Repeated(count=self.steps, event=PoissonSampled(probability=self.sampling_probability, event=release))


@final
class DeclaredData(Value):
    r"""Sizes of the data set that the recipe is made for, so that its guarantee is known before the data are there.

    Attributes:
      training_records, test_records: rows.
      shape: of one record.
      classes: None for a reconstruction.
      unit, user_unit: what one row is, and whose rows they are.
      users, largest_user: the number of users in the training rows, and the most rows of one user; None without users.
    """

    training_records: Count
    test_records: Count
    shape: tuple[Count, ...]
    is_complex: bool
    classes: Count | None
    unit: PrivacyUnit
    user_unit: PrivacyUnit | None = None
    users: Count | None = None
    largest_user: Count | None = None

    @property
    def facts(self) -> DataSetFacts:
        """The same as facts of a data set that wasn't read: their digest is of nothing."""
        return DataSetFacts(
            **dict(self), task="reconstruction" if self.classes is None else "classification", sha256="0" * 64, description="declared"
        )


@final
class Recipe(Value):
    r"""One experiment, ready to run.

    Attributes:
      name: its name in requests.
      paper: the paper of the experiment; None for ours.
      reference: section, table and appendix of the paper.
      spec: the body of a job; complete, every choice in it.
      hyper_parameters: the paper's, in words.
      printed_results, printed_epsilons: what the paper states; empty if it has no such experiment.
      measured: what the recipe reached here, by epsilon from the smallest on; empty where nobody measured it.
      printed_run: the paper's run as an event, if its numbers allow one; it doesn't need the data set.
      declared: sizes of the data set that ``spec`` names.
      differences: what is done differently here, and why.
      errata: the errata rows about the paper's statement.
      original_data: the data set that the paper used, and the name under which it is available.
    """

    name: RecipeName
    title: Words
    paper: Paper | None
    reference: Words
    spec: AnyTrainingSpec
    hyper_parameters: Words
    printed_results: tuple[PrintedResult, ...] = ()
    printed_epsilons: tuple[PrintedEpsilon, ...] = ()
    measured: tuple[MeasuredResult, ...] = ()
    printed_run: PrintedRun | None = None
    declared: DeclaredData
    differences: Annotated[tuple[Words, ...], Field(min_length=1)]
    errata: tuple[str, ...] = ()
    original_data: Words

    def declared_plan(self) -> AnyPlan:
        """The plan for a data set of the declared sizes: what ``spec.plan`` gives where the data are as declared."""
        return self.spec.plan_for(self.declared.facts)

    @property
    def compared_result(self) -> PrintedResult | None:
        """The printed result that a run of this recipe can be held against: not one without privacy, at the same epsilon where the paper
        prints several, and of the paper's own method where it has one. None where there is none."""
        privacy = getattr(self.spec, "privacy", None) or getattr(getattr(self.spec, "method", None), "privacy", None)
        target = getattr(privacy, "epsilon", None)
        alike = [one for one in self.printed_results if not one.is_without_privacy and one.epsilon in {None, target}]
        return next((one for one in alike if not one.is_baseline), alike[0] if alike else None)

    @property
    def folder(self) -> str | None:
        """Where the spec's data set lies, relative to the folder of all data sets."""
        found = getattr(self.spec.data, "folder", None)
        return found if isinstance(found, str) else None
