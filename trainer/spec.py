r"""What a user asks for: the parts every training spec shares, and the runtime settings that cannot change a guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict, model_validator

from mechanisms.base import Adjacency, OpenProbability, Positive, PrivacyUnit, Value
from mechanisms.errors import InvalidParameter
from trainer.plan import ExecutionPlan

PositiveInt = Annotated[int, Strict(), Field(ge=1, le=10**9)]


@final
class PrivacyTarget(Value):
    r"""The guarantee asked for: a noise multiplier, or the epsilon to calibrate it to, at a stated delta.

    Attributes:
      adjacency: which data sets are neighbours. Poisson sampling is accounted under add_remove or zero_out.
      unit: what the guarantee protects one of: what one row of the data is, or the user whose rows they are.
      delta: in (0, 1).
      noise_multiplier: std per real component / clipping bound; this or epsilon.
      epsilon: the noise is calibrated so that the whole run stays at or below it.
    """

    adjacency: Literal[Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT]
    unit: PrivacyUnit
    delta: OpenProbability
    noise_multiplier: Positive | None = None
    epsilon: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            got = "neither" if self.noise_multiplier is None else "both"
            raise InvalidParameter("privacy", "given exactly one of noise_multiplier and epsilon", got)
        return self


@final
class RuntimeSpec(Value):
    """Settings of speed and memory. None of them can change what is released or its guarantee.

    Attributes:
      device: where the tensors live; ``auto`` is the accelerator where there is one.
      microbatch_size: how many records are differentiated at once; memory grows with it, the result doesn't change.
      checkpoint_seconds: the longest work a killed worker loses.
      threads: CPU threads of each process; 0 leaves torch's default.
      processes: that share each sample between them; each adds its share of the noise.
      precision: of the network's own arithmetic; norms, sums and noise are never narrower than float32. ``bfloat16`` for networks without
        native complex layers, which have no half precision.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    microbatch_size: PositiveInt = 128
    checkpoint_seconds: Annotated[float, Strict(), Field(ge=0.0, le=3600.0, allow_inf_nan=False)] = 5.0
    threads: Annotated[int, Strict(), Field(ge=0, le=1024)] = 0
    processes: Annotated[int, Strict(), Field(ge=1, le=64)] = 1
    precision: Literal["float32", "bfloat16"] = "float32"


class TrainingSpec(Value, ABC):
    """One training job, as the user sends it and as the certificate's digest covers it."""

    SUMMARY: ClassVar[str]
    SOURCES: ClassVar[tuple[str, ...]]
    ERRATA: ClassVar[tuple[str, ...]]
    TRUST: ClassVar[str]
    """Who is trusted with what while training runs, in a certificate's words."""

    @classmethod
    def algorithm_name(cls) -> str:
        """The value of ``algorithm`` that tells this class from the others in JSON."""
        return str(cls.model_fields["algorithm"].default)

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """A spec that runs in about a minute: shown by the service, and what the contract tests run on."""

    @abstractmethod
    def plan(self) -> ExecutionPlan:
        """Sampling, clipping, mechanism and steps, calibrated. Doesn't load torch.

        Raises:
          InvalidParameter: the spec doesn't fit the data set (an expected batch beyond its records, say).
          CalibrationFailed: no noise in the searched range is proved to meet the target.
        """
