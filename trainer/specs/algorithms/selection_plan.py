r"""The plan of a private selection: a random number of runs, of which the best one's release comes out. Free of torch."""

# pyright: reportIncompatibleVariableOverride=false
# What is a field of one plan is a property of another: see ``Stated``.

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Literal, Self, final

from pydantic import Field, model_validator

from zetadp.accountants.events import Event, RepeatedAndSelected
from zetadp.mechanisms import AnyMechanism, ComplexGaussian, Gaussian
from zetadp.mechanisms.base import Count, PrivacyUnit, Value
from zetadp.mechanisms.declared.runs import AnyRuns, PoissonRuns
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.execution_plan import ExecutionPlan, PrivateEvaluation, clipped_sensitivity
from zetadp.trainer.specs.plan_base import PartName, SingleReleasePlan

LARGEST_MEAN = 1000.0
"""Of the number of runs: each is a training."""

LEAST_GAMMA = 1e-5
"""Of a negative binomial number of runs, which may with some probability be as large as many times 1 / gamma."""

MOST_CANDIDATES = 64


def check_runs(runs: AnyRuns) -> None:
    """Raises InvalidParameter where so many runs are likely that no training would end."""
    if runs.mean > LARGEST_MEAN:
        raise InvalidParameter("runs.mean", f"at most {LARGEST_MEAN:g}, since every run is a training", runs.mean)
    if not isinstance(runs, PoissonRuns) and runs.spread.high > -math.log(LEAST_GAMMA):
        expected = f"a smaller mean, or a larger shape: gamma is below {LEAST_GAMMA:g}, and very many runs would be too likely"
        raise InvalidParameter("runs", expected, runs.mean)


@final
class CandidatePlan(Value):
    """One candidate: what a run with it releases."""

    name: PartName
    plan: ExecutionPlan


@final
class SelectionPlan(SingleReleasePlan):
    r"""K runs, each with a candidate drawn uniformly; the best run's release comes out, and nothing else (proofs/selected.md, section 7).

    All candidates have the same samples, steps, counts and neighbours, and differ in noise at most: the event is that of the candidate with
    the least noise multiplier, of which the others' releases are post-processing.

    Attributes:
      runs: the law of K.
      candidates: under different names.
    Raises:
      ValidationError: candidates that differ in more than that, or whose noise isn't normal and equal in all components.
    """

    kind: Literal["private_selection"] = "private_selection"
    runs: AnyRuns
    candidates: Annotated[tuple[CandidatePlan, ...], Field(min_length=1, max_length=MOST_CANDIDATES)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_runs(self.runs)
        names = [candidate.name for candidate in self.candidates]
        if len(set(names)) != len(names):
            raise InvalidParameter("candidates", "trainings with different names", names)
        first = self.candidates[0].plan
        for candidate in self.candidates:
            _check_noise(candidate)
            for what in ("sampling", "steps", "delta", "evaluation", "strategy", "aggregation"):
                if getattr(candidate.plan, what) != getattr(first, what):
                    raise InvalidParameter(f"candidates.{candidate.name}.{what}", f"that of {names[0]}: one event bounds all runs", what)
            if (kind := candidate.plan.mechanism.kind) != first.mechanism.kind:
                raise InvalidParameter(f"candidates.{candidate.name}.mechanism", f"{first.mechanism.kind} as of {names[0]}", kind)
            if candidate.plan.mechanism.neighbours != first.mechanism.neighbours:
                raise InvalidParameter(f"candidates.{candidate.name}.privacy", f"for the neighbours of {names[0]}", candidate.name)
        _ = self.event
        return self

    @property
    def one_run(self) -> ExecutionPlan:
        """The candidate with the least noise for its sensitivity: its event bounds a run with any of them."""
        return min((candidate.plan for candidate in self.candidates), key=_multiplier)

    @property
    def event(self) -> Event:
        """The best of K runs."""
        return RepeatedAndSelected(runs=self.runs, event=self.one_run.event)

    @property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        """Those of all candidates, each once."""
        return tuple(dict.fromkeys(one for candidate in self.candidates for one in candidate.plan.mechanisms))

    @property
    def noise_std(self) -> float:
        """0: every candidate has its own."""
        return 0.0

    @property
    def steps(self) -> Count:
        """The steps of a run: how many runs there were is secret."""
        return self.one_run.steps

    @property
    def delta(self) -> float:
        """The delta at which epsilon is reported."""
        return self.one_run.delta

    @property
    def unit(self) -> PrivacyUnit:
        """What the guarantee protects one of."""
        return self.one_run.unit

    @property
    def units(self) -> int:
        """Units of privacy in the training data."""
        return self.one_run.units

    @property
    def counts(self) -> PrivateEvaluation | None:
        return self.one_run.evaluation

    @property
    def declared_units(self) -> int | None:
        return self.one_run.declared_units


def _multiplier(plan: ExecutionPlan) -> Fraction:
    return Fraction(plan.noise_std) / Fraction(plan.clipping.sensitivity)


def _check_noise(candidate: CandidatePlan) -> None:
    """Raises InvalidParameter unless more noise is post-processing of less: normal noise, for the bound on the whole norm."""
    plan = candidate.plan
    mechanism, where = plan.mechanism, f"candidates.{candidate.name}.mechanism"
    if not (isinstance(mechanism, Gaussian) or (isinstance(mechanism, ComplexGaussian) and mechanism.is_circular)):
        raise InvalidParameter(where, "gaussian, or circular complex_gaussian", mechanism.kind)
    whole = clipped_sensitivity(plan.clipping, mechanism.sensitivity.adjacency, mechanism.sensitivity.unit)
    if mechanism.sensitivity != whole:
        raise InvalidParameter(f"{where}.sensitivity", repr(whole), mechanism.sensitivity)
