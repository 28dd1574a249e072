r"""What a user requests: the parts that all training specs share, and the runtime settings that cannot change a guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Adjacency, OpenProbability, Positive, PrivacyUnit, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts, DataSpec, data_set_facts
from zetadp.trainer.specs.findings.runs import AnyAudit
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.plans import AnyPlan
from zetadp.trainer.specs.report import HeldOut

PositiveInt = Annotated[int, Strict(), Field(ge=1, le=10**9)]
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**53)]


class CalibratedPrivacy(Value, ABC):
    r"""A noise multiplier, or the epsilon to calibrate it to, at a stated delta: the common part of every requested guarantee.

    Attributes:
      unit: the unit of privacy, one of which the guarantee protects: what one row of the data is, or the user whose rows they are.
      delta: in (0, 1).
      noise_multiplier: the noise's scale (std per real component, Laplace's b) divided by how far one unit moves what is released (the
        clipping bound where gradients are clipped); either this or epsilon.
      epsilon: the noise is calibrated so that the whole run stays at or below it.
    """

    unit: PrivacyUnit
    delta: OpenProbability
    noise_multiplier: Positive | None = None
    epsilon: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            got = "neither" if self.noise_multiplier is None else "both"
            raise InvalidParameter("privacy", "given with exactly one of noise_multiplier and epsilon", got)
        return self


@final
class PrivacyTarget(CalibratedPrivacy):
    r"""The guarantee requested for a network's training.

    Attributes:
      adjacency: which data sets are neighbours. Poisson sampling is accounted under add_remove or zero_out.
      (others): as in ``CalibratedPrivacy``.
    """

    adjacency: Literal[Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT]


@final
class RuntimeSpec(Value):
    """Settings of speed and memory. None of them can change what is released or its guarantee.

    Attributes:
      device: where the tensors are stored; ``auto`` is the accelerator if there is one.
      microbatch_size: how many records are differentiated at once; memory grows with it, the result doesn't change.
      checkpoint_seconds: the longest work a killed worker loses.
      threads: CPU threads of each process; 0 leaves torch's default.
      processes: how many processes share each sample; their sums are added, and the first adds the noise.
      when_probe_fails: what happens if a record's gradient depends, to the bit, on the records computed with it on this machine: records
        are computed one by one, slowly, or the run is refused before anything is released.
      precision: of the network's own arithmetic; norms, sums and noise are never narrower than float32. ``bfloat16`` is for networks
        without native complex layers, which have no half precision.
      records: where they are between steps: in memory, or on disk, from which a step reads those in its sample. ``auto`` leaves on disk
        what can be and is larger than 1 GiB in memory. The result is the same.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    microbatch_size: PositiveInt = 128
    checkpoint_seconds: Annotated[float, Strict(), Field(ge=0.0, le=3600.0, allow_inf_nan=False)] = 5.0
    threads: Annotated[int, Strict(), Field(ge=0, le=1024)] = 0
    processes: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    when_probe_fails: Literal["one_by_one", "refuse"] = "one_by_one"
    precision: Literal["float32", "bfloat16"] = "float32"
    records: Literal["auto", "memory", "disk"] = "auto"

    def check_probe(self, *, keeps_its_bits: bool) -> None:
        """Raises InvalidParameter if the probe failed and the run is to be refused in that case."""
        if not keeps_its_bits and self.when_probe_fails == "refuse":
            expected = "'one_by_one' for this network on this machine: a record's gradient depends on the records computed with it"
            raise InvalidParameter("runtime.when_probe_fails", expected, self.when_probe_fails)


class TrainingSpec(Value, ABC):
    r"""One training job, as the user sends it and as the certificate's digest covers it.

    Attributes:
      data: which data set, and its public train/test split.
      reproducible: the run's randomness comes from ``seed``: not private against someone who knows the seed.
      seed: required when reproducible, refused otherwise.
    """

    SUMMARY: ClassVar[str]
    SOURCES: ClassVar[tuple[str, ...]]
    ERRATA: ClassVar[tuple[str, ...]]
    TRUST: ClassVar[str]
    """Who is trusted with what while training runs, in a certificate's words."""
    ASSUMPTIONS: ClassVar[tuple[str, ...]] = ()
    """What its guarantee rests on besides what every run's does."""
    READS_SAMPLES: ClassVar[bool] = False
    """Whether its records can stay on disk, from which each step reads the sampled ones."""
    MAY_STOP_EARLY: ClassVar[bool] = False
    """Whether a run may release fewer steps than planned; its guarantee is that of all planned ones."""
    PLANS: ClassVar[tuple[str, ...]]
    """The kinds of plan that this spec can give."""

    data: DataSpec
    reproducible: Annotated[bool, Strict()] = False
    seed: Seed | None = None

    @model_validator(mode="after")
    def _check_seed(self) -> Self:
        if self.reproducible and self.seed is None:
            raise InvalidParameter("seed", "given when reproducible is true", None)
        if not self.reproducible and self.seed is not None:
            raise InvalidParameter("seed", "absent unless reproducible is true (private noise never comes from a user's seed)", self.seed)
        return self

    @classmethod
    def algorithm_name(cls) -> str:
        """The value of ``algorithm`` that distinguishes this class from the others in JSON."""
        return str(cls.model_fields["algorithm"].default)

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """A spec that runs in about a minute: the service shows it, and the contract tests run it."""

    def check_request(self) -> None:
        """Raises InvalidParameter if the spec fits no data set of its kind, or its data aren't here. Reads no data, calibrates nothing."""
        self.data.check_folder()

    def check_fits(self, facts: DataSetFacts) -> None:
        """Raises InvalidParameter as ``plan_for`` does, and calibrates nothing: whether any noise meets the target isn't known after it."""
        _ = self.plan_for(facts)

    def plan(self) -> AnyPlan:
        """``plan_for`` with this data set's facts. Doesn't load torch. Raises as ``plan_for``, and if the data can't be read."""
        return self.plan_for(data_set_facts(self.data))

    @abstractmethod
    def plan_for(self, facts: DataSetFacts) -> AnyPlan:
        """The calibrated plan of what is released, for a data set of these sizes. Doesn't load torch.

        Raises:
          InvalidParameter: the spec doesn't fit the data set (for example an expected batch larger than the data set).
          CalibrationFailed: no noise in the searched range is proved to meet the target.
        """

    def replanned(self, facts: DataSetFacts, plan: Plan) -> AnyPlan:
        """The spec's plan, with the noise of ``plan`` if that was calibrated, so that it isn't calibrated twice."""
        del plan
        return self.plan_for(facts)

    def check_plan(self, plan: Plan, facts: DataSetFacts) -> None:
        """Raises InvalidParameter if the plan isn't the spec's, since its event would be that of another run."""
        if plan != (expected := self.replanned(facts, plan)):
            raise InvalidParameter("plan", f"the one that follows from the spec, {expected.model_dump_json()}", plan.model_dump_json())

    @property
    def audited_by(self) -> AnyAudit | None:
        """Made-up units that audit the run; None for no audit."""
        return None

    @property
    def runs_attacks(self) -> bool:
        """Whether the run attacks what it sends, and reports the findings."""
        return False

    @property
    def runs_alone(self) -> str | None:
        """What the training is called in a refusal, if several processes can't share it; None if they can."""
        return None

    @property
    def runs_in_float32(self) -> str | None:
        """What the training is called in a refusal, if it has no half precision; None if that depends on the network."""
        return None

    def check_runtime(self, runtime: RuntimeSpec) -> None:
        """Raises InvalidParameter if several processes or half precision were requested and the training doesn't support them."""
        if runtime.processes != 1 and self.runs_alone is not None:
            raise InvalidParameter("runtime.processes", f"1 for {self.runs_alone}", runtime.processes)
        if runtime.precision != "float32" and self.runs_in_float32 is not None:
            raise InvalidParameter("runtime.precision", f"'float32' for {self.runs_in_float32}", runtime.precision)
        if runtime.records == "disk" and not self.READS_SAMPLES:
            raise InvalidParameter("runtime.records", f"'auto' or 'memory' for {self.algorithm_name()}", runtime.records)

    @property
    def given_weights(self) -> tuple[str, ...]:
        """SHA-256 of the weights that training starts from instead of drawing its own, each once, sorted."""
        return ()

    @property
    def averages(self) -> bool:
        """Whether the model is a running mean of the parameters over the steps, or one of several models is."""
        return False

    @property
    @abstractmethod
    def held_out(self) -> HeldOut:
        """How the held-out records are used."""

    @property
    @abstractmethod
    def records_per_unit(self) -> int | None:
        """The most records of one unit of privacy that are used; None if a unit is one row of the data."""
