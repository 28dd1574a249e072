r"""The spec of a private selection: a random number of runs with candidates for the hyper-parameters, of which the best one's comes out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, TypeAdapter, model_validator

from zetadp.accountants import AutoAccountant
from zetadp.accountants.calibration import NoiseScale, Target, solve
from zetadp.mechanisms.base import Adjacency, Value
from zetadp.mechanisms.declared.runs import AnyRuns, PoissonRuns
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts, DigitsPhasePairs
from zetadp.trainer.specs.algorithms.selection_plan import MOST_CANDIDATES, CandidatePlan, SelectionPlan, check_runs
from zetadp.trainer.specs.algorithms.spectral_dp import SpectralDp
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import PrivacyTarget, TrainingSpec
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.models.model_spec import ComplexMlp
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.plan_base import PartName, Plan
from zetadp.trainer.specs.report import HeldOut

AnyCandidateSpec = Annotated[ZetaDpSgd | SpectralDp, Field(discriminator="algorithm")]


@cache
def _candidate() -> TypeAdapter[AnyCandidateSpec]:
    return TypeAdapter(AnyCandidateSpec)


@final
class Candidate(Value):
    """One choice of hyper-parameters, under its own name."""

    name: PartName
    spec: AnyCandidateSpec


@final
class PrivateSelection(TrainingSpec):
    r"""Trains a random number of times, each time with a candidate drawn at random, and keeps the model with the highest accuracy alone.

    The other runs, their accuracies, and how many there were are never shown: so the best model costs little more than a single run,
    whatever the number of candidates. What comes out is the best model with its candidate's name, or that there is none.

    Attributes:
      data: the data set of all candidates.
      candidates: trainings with different names, each with this ``data`` and the same ``evaluation``, samples, steps and neighbours. Where
        they ask for an epsilon, it is the same, and that of the whole selection: their noise is calibrated to it together. Where they give
        noise multipliers the guarantee is for the least one.
      runs: the law of the number of runs.
      (others): as in ``TrainingSpec``; candidates leave ``reproducible`` and ``seed`` to the selection.
    Raises:
      ValidationError: candidates that differ in data, epsilon, held-out records or records of a user, or that nothing scores; two with
        one name.
    """

    SUMMARY: ClassVar[str] = (
        "Private selection of hyper-parameters: the best of a secret number of runs, at little more than the cost of one."
    )
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Liu and Talwar 2019, arXiv:1811.07971",
        "Papernot and Steinke 2022, arXiv:2110.03620",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ()
    TRUST: ClassVar[str] = (
        "The party that runs the trainings is trusted with the data, and with all runs but the best one, which it deletes; everyone else "
        "sees only what is released."
    )
    ASSUMPTIONS: ClassVar[tuple[str, ...]] = (
        "nobody but the party that runs the trainings learns how many runs there were: how long the whole took isn't hidden from whoever "
        "watches the machine or the job, and no guarantee covers it",
    )
    PLANS: ClassVar[tuple[str, ...]] = ("private_selection",)

    algorithm: Literal["private_selection"] = "private_selection"
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=MOST_CANDIDATES)]
    runs: AnyRuns

    @classmethod
    def example(cls) -> Self:
        data, model = DigitsPhasePairs(split_seed=0, test_fraction=0.2), ComplexMlp(hidden=(32,), activation="cardioid", head="real_part")
        slow = ZetaDpSgd(
            data=data,
            model=model,
            optimizer=Adam(learning_rate=0.005),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=2.0),
            clipping_bound=1.0,
            expected_batch_size=200,
            steps=100,
            evaluation=PublicHeldOut(),
        )
        fast = ZetaDpSgd.model_validate({**dict(slow), "optimizer": Adam(learning_rate=0.02)})
        candidates = (Candidate(name="rate-0.005", spec=slow), Candidate(name="rate-0.02", spec=fast))
        return cls(data=data, candidates=candidates, runs=PoissonRuns(mean=2.0))

    @model_validator(mode="after")
    def _check_candidates(self) -> Self:
        names = [candidate.name for candidate in self.candidates]
        if len(set(names)) != len(names):
            raise InvalidParameter("candidates", "trainings with different names", names)
        check_runs(self.runs)
        first = self.candidates[0].spec
        for place, candidate in enumerate(self.candidates):
            spec, where = candidate.spec, f"candidates[{place}].spec"
            if spec.data != self.data:
                raise InvalidParameter(f"{where}.data", "the selection's own data set", spec.data.kind)
            if spec.reproducible:
                raise InvalidParameter(f"{where}.reproducible", "false (the selection's own seed is used for all runs)", True)
            if spec.audit is not None:
                raise InvalidParameter(f"{where}.audit", "absent (canaries audit a single training)", spec.audit.kind)
            if spec.evaluation.kind == "none":
                raise InvalidParameter(
                    f"{where}.evaluation", "private_accuracy, or public_held_out (the best run is the most accurate one)", "none"
                )
            if spec.evaluation != first.evaluation:
                raise InvalidParameter(f"{where}.evaluation", "that of the first candidate", spec.evaluation.kind)
            if spec.privacy.epsilon != first.privacy.epsilon:
                asked = "no epsilon" if first.privacy.epsilon is None else f"epsilon {first.privacy.epsilon:g}"
                raise InvalidParameter(
                    f"{where}.privacy", f"{asked} as in the first candidate (it is the whole selection's)", spec.privacy.epsilon
                )
            if spec.records_per_unit != first.records_per_unit:
                expected = f"{first.records_per_unit!r} as in the first candidate"
                raise InvalidParameter(f"{where}.records_per_user", expected, spec.records_per_unit)
        return self

    def seeded(self, candidate: int, run: int) -> AnyCandidateSpec:
        """The training of one run, from 1 on: the candidate's, with randomness of its own where the selection has a seed."""
        spec = self.candidates[candidate].spec
        if self.seed is None:
            return spec
        digest = hashlib.sha256(f"zetadp private selection run {run} {self.seed}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big") >> 11  # as large as a seed may be
        return _candidate().validate_python(spec.model_dump(mode="json") | {"reproducible": True, "seed": seed})

    def check_request(self) -> None:
        for candidate in self.candidates:
            candidate.spec.check_request()

    def check_fits(self, facts: DataSetFacts) -> None:
        _check_task(facts)
        for candidate in self.candidates:
            candidate.spec.check_fits(facts)

    def plan_for(self, facts: DataSetFacts) -> SelectionPlan:
        _check_task(facts)
        epsilon = self.candidates[0].spec.privacy.epsilon
        if epsilon is None:
            return self._plan({candidate.name: candidate.spec.plan_for(facts) for candidate in self.candidates})
        draft = self._plan(self._with_noise(facts, 1.0))
        # What a run's private evaluations add stays as it was asked for.
        noise = NoiseScale() if draft.counts is None else NoiseScale(at="/event/events/0")
        target = Target(epsilon=epsilon, delta=draft.delta)
        return self._plan(self._with_noise(facts, solve(draft.event, noise, target, AutoAccountant()).value))

    def _with_noise(self, facts: DataSetFacts, multiplier: float) -> dict[str, ExecutionPlan]:
        specs = {candidate.name: candidate.spec for candidate in self.candidates}
        return {name: spec.plan_with(facts, multiplier * spec.planned_clipping(facts).sensitivity) for name, spec in specs.items()}

    def _plan(self, plans: Mapping[str, ExecutionPlan]) -> SelectionPlan:
        return SelectionPlan(runs=self.runs, candidates=tuple(CandidatePlan(name=name, plan=plan) for name, plan in plans.items()))

    def replanned(self, facts: DataSetFacts, plan: Plan) -> SelectionPlan:
        if not isinstance(plan, SelectionPlan) or len(plan.candidates) != len(self.candidates):
            return self.plan_for(facts)
        found: dict[str, ExecutionPlan] = {}
        for candidate, planned in zip(self.candidates, plan.candidates, strict=True):
            again = candidate.spec.replanned(facts, planned.plan)
            assert isinstance(again, ExecutionPlan)  # of every candidate
            found[candidate.name] = again
        return self._plan(found)

    @property
    def runs_alone(self) -> str | None:
        return "a private selection"

    @property
    def given_weights(self) -> tuple[str, ...]:
        return tuple(sorted({digest for candidate in self.candidates for digest in candidate.spec.given_weights}))

    @property
    def averages(self) -> bool:
        return any(candidate.spec.averages for candidate in self.candidates)

    @property
    def held_out(self) -> HeldOut:
        return self.candidates[0].spec.held_out

    @property
    def records_per_unit(self) -> int | None:
        return self.candidates[0].spec.records_per_unit


def _check_task(facts: DataSetFacts) -> None:
    """Raises InvalidParameter where there is no accuracy."""
    if facts.task != "classification":
        raise InvalidParameter("data", "of a classification (the best run is the most accurate one)", facts.task)
