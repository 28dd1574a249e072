r"""The spec of a comparison: several algorithms on one data set, at one budget or at several, and what all of them cost together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, cast, final

from pydantic import Field, Strict, TypeAdapter, ValidationError, model_validator

from zetadp.mechanisms.base import Adjacency, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts, DigitsPhasePairs
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import PrivacyTarget, TrainingSpec
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.models.model_spec import ComplexMlp
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.plans import AnyPlan, ComparedPlan, ComparisonPlan, PartName, PartPlan
from zetadp.trainer.specs.registry import AnyPartSpec
from zetadp.trainer.specs.report import HeldOut

MOST_RUNS = 256


@cache
def _part() -> TypeAdapter[AnyPartSpec]:
    return TypeAdapter(AnyPartSpec)


@cache
def _name() -> TypeAdapter[str]:
    return TypeAdapter(PartName)


@final
class ComparedTraining(Value):
    """One training of a comparison, under its own name."""

    name: PartName
    spec: AnyPartSpec


@final
@dataclass(frozen=True)
class PlannedRun:
    """One single training: its part, its budget (None: the part's own), and the number of its repetition."""

    name: str
    part: str
    epsilon: float | None
    repetition: int
    spec: AnyPartSpec


@final
class Comparison(TrainingSpec):
    r"""Runs every part on the same data, one after the other, and puts their results side by side.

    All runs together leave the service, so the guarantee is for their composition: a comparison costs more than its best
    part. Choosing that part by its result is then free, since every run is counted. If one part has no guarantee, the whole has none.

    Attributes:
      data: the data set of all parts.
      parts: trainings with different names; each with this ``data``, one unit of privacy, and the same ``evaluation``.
      epsilons: every part whose noise is calibrated to an epsilon runs at each of these instead of its own; None: at its own.
      repetitions: repetitions of every run, each with different randomness, and each counted.
      (others): as in ``TrainingSpec``; parts leave ``reproducible`` and ``seed`` to the comparison.
    Raises:
      ValidationError: parts that differ in data or held-out records, two with one name, names that become too long, or more than 256 runs.
    """

    SUMMARY: ClassVar[str] = "Several algorithms on one data set: a table and plots of their results, and the cost of all of them together."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Papernot and Steinke 2022, arXiv:2110.03620 (choosing among private trainings costs privacy; here every run is counted)",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("P14", "S33")
    TRUST: ClassVar[str] = "The party that runs the trainings is trusted with the data; everyone else sees only what is released."
    PLANS: ClassVar[tuple[str, ...]] = ("comparison",)

    algorithm: Literal["comparison"] = "comparison"
    parts: Annotated[tuple[ComparedTraining, ...], Field(min_length=1, max_length=64)]
    epsilons: Annotated[tuple[Positive, ...] | None, Field(min_length=1, max_length=64)] = None
    repetitions: Annotated[int, Strict(), Field(ge=1, le=100)] = 1

    @classmethod
    def example(cls) -> Self:
        data, model = DigitsPhasePairs(split_seed=0, test_fraction=0.2), ComplexMlp(hidden=(32,), activation="cardioid", head="real_part")
        private = ZetaDpSgd(
            data=data,
            model=model,
            optimizer=Adam(learning_rate=0.01),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=4.0),
            clipping_bound=1.0,
            expected_batch_size=200,
            steps=100,
            evaluation=PublicHeldOut(),
        )
        smaller = ZetaDpSgd.model_validate({**dict(private), "clipping_bound": 0.3})
        return cls(
            data=data,
            parts=(ComparedTraining(name="bound-1", spec=private), ComparedTraining(name="bound-0.3", spec=smaller)),
            epsilons=(1.0, 4.0),
        )

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        names = [part.name for part in self.parts]
        if len(set(names)) != len(names):
            raise InvalidParameter("parts", "trainings with different names", names)
        if self.epsilons is not None and len(set(self.epsilons)) != len(self.epsilons):
            raise InvalidParameter("epsilons", "distinct", list(self.epsilons))
        for place, part in enumerate(self.parts):
            where = f"parts[{place}].spec"
            if part.spec.data != self.data:
                raise InvalidParameter(f"{where}.data", "the comparison's own data set", part.spec.data.kind)
            if part.spec.reproducible:
                raise InvalidParameter(f"{where}.reproducible", "false (the comparison's own seed is used for all parts)", True)
            if part.spec.audited_by is not None:
                raise InvalidParameter(f"{where}.audit", "absent (canaries audit a single training)", "canaries")
            if part.spec.held_out == "encoded":
                # Its guarantee is for held-out records and assumes public training records, which other parts may protect.
                raise InvalidParameter(
                    f"{where}.method", "other than noisy_rotation, which protects different records than the other parts", "noisy_rotation"
                )
            if part.spec.held_out != self.parts[0].spec.held_out:
                raise InvalidParameter(f"{where}.evaluation", f"{self.parts[0].spec.held_out!r} as in the first part", part.spec.held_out)
            if part.spec.records_per_unit != self.parts[0].spec.records_per_unit:
                limits = self.parts[0].spec.records_per_unit, part.spec.records_per_unit
                raise InvalidParameter(f"{where}.records_per_user", f"{limits[0]!r} as in the first part", limits[1])
        if (runs := self.repetitions * sum(1 for part in self.parts for _ in self._at_budgets(part.spec))) > MOST_RUNS:
            raise InvalidParameter("parts, epsilons and repetitions", f"at most {MOST_RUNS} runs in total", runs)
        _check_names([run.name for run in self.runs()])
        return self

    def runs(self) -> tuple[PlannedRun, ...]:
        """Every single training: each part, at each of the epsilons, ``repetitions`` times."""
        return tuple(self._runs())

    def _runs(self) -> Iterator[PlannedRun]:
        for part in self.parts:
            for spec, epsilon in self._at_budgets(part.spec):
                for repetition in range(1, self.repetitions + 1):
                    name = part.name + ("" if epsilon is None else f"_epsilon-{epsilon:g}".replace("+", ""))
                    name += f"_run-{repetition}" if self.repetitions > 1 else ""
                    yield PlannedRun(name, part.name, epsilon, repetition, self._seeded(spec, name))

    def _at_budgets(self, spec: AnyPartSpec) -> Iterator[tuple[AnyPartSpec, float | None]]:
        document = spec.model_dump(mode="json")
        if self.epsilons is None or _with_epsilon(document, 1.0) is None:
            yield spec, None
            return
        for epsilon in self.epsilons:
            yield _part().validate_python(_with_epsilon(document, epsilon)), epsilon

    def _seeded(self, spec: AnyPartSpec, name: str) -> AnyPartSpec:
        if self.seed is None:
            return spec
        digest = hashlib.sha256(f"zetadp comparison {name} {self.seed}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big") >> 11  # as large as a seed may be
        return _part().validate_python(spec.model_dump(mode="json") | {"reproducible": True, "seed": seed})

    def check_request(self) -> None:
        for part in self.parts:
            part.spec.check_request()

    def check_fits(self, facts: DataSetFacts) -> None:
        for part in self.parts:
            part.spec.check_fits(facts)

    def plan_for(self, facts: DataSetFacts) -> ComparisonPlan:
        planned: dict[str, PartPlan] = {}
        parts: list[ComparedPlan] = []
        for run in self.runs():
            # Calibration takes a while, and repetitions differ in their seeds at most.
            key = run.spec.model_dump_json(exclude={"seed"})
            if key not in planned:
                planned[key] = cast("PartPlan", run.spec.plan_for(facts))  # a part is no comparison
            parts.append(ComparedPlan(name=run.name, plan=planned[key]))
        return ComparisonPlan(parts=tuple(parts))

    def replanned(self, facts: DataSetFacts, plan: Plan) -> AnyPlan:
        runs = list(self.runs())
        if [run.name for run in runs] != [part.name for part in plan.compared]:
            return self.plan_for(facts)
        found = ((run.name, run.spec.replanned(facts, part.plan)) for run, part in zip(runs, plan.compared, strict=True))
        return ComparisonPlan(parts=tuple(ComparedPlan(name=name, plan=cast("PartPlan", one)) for name, one in found))

    @property
    def given_weights(self) -> tuple[str, ...]:
        return tuple(sorted({digest for part in self.parts for digest in part.spec.given_weights}))

    @property
    def averages(self) -> bool:
        return any(part.spec.averages for part in self.parts)

    @property
    def held_out(self) -> HeldOut:
        return self.parts[0].spec.held_out

    @property
    def records_per_unit(self) -> int | None:
        return self.parts[0].spec.records_per_unit


def _check_names(names: Sequence[str]) -> None:
    """Checks the names of all runs, which are also file names. Raises InvalidParameter."""
    for name in names:
        try:
            _name().validate_python(name)
        except ValidationError:
            raise InvalidParameter(
                "parts", "given short names (at most 64 characters including the suffixes for budget and repetition)", name
            ) from None
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InvalidParameter("parts and epsilons", "such that all runs have different names", twice[0])


def _with_epsilon(document: dict[str, Any], epsilon: float) -> dict[str, Any] | None:
    """A spec's JSON with another target epsilon, in itself or its method; None if its noise isn't calibrated to one."""
    privacy = cast("dict[str, Any] | None", document.get("privacy"))
    if privacy is not None:
        return None if privacy.get("epsilon") is None else document | {"privacy": privacy | {"epsilon": epsilon}}
    method = cast("dict[str, Any] | None", document.get("method"))
    changed = None if method is None else _with_epsilon(method, epsilon)
    return None if changed is None else document | {"method": changed}
