r"""Values, sensitivities and the abstract mechanism that everything else builds on."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.loss import PrivacyLoss
from zetadp.mechanisms.sampling.grid import released_by
from zetadp.mechanisms.sampling.source import Array, NoiseSource

SMALLEST_SCALE = 1e-50
"""Scales and sensitivities are in [1e-50, 1e50], so that their quotients and the quotients' squares stay within float64."""
LARGEST_SCALE = 1e50

Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Positive = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=SMALLEST_SCALE, le=LARGEST_SCALE)]
NonNegative = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=0.0, le=LARGEST_SCALE)]
Probability = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=SMALLEST_SCALE, le=1.0)]
OpenProbability = Annotated[float, Strict(), Field(allow_inf_nan=False, gt=0.0, lt=1.0)]
Correlation = Annotated[float, Strict(), Field(allow_inf_nan=False, gt=-1.0, lt=1.0)]
Count = Annotated[int, Strict(), Field(ge=1, le=10**12)]
Tally = Annotated[int, Strict(), Field(ge=0, le=10**12)]
"""A count that may be 0."""


def _infinity_from_text(value: object) -> object:
    # JSON has no infinity: it is written as text (``ser_json_inf_nan="strings"``) and read back here.
    return {"Infinity": float("inf"), "-Infinity": float("-inf")}.get(value, value) if isinstance(value, str) else value


Extended = Annotated[
    float,
    BeforeValidator(_infinity_from_text, json_schema_input_type=float | Literal["Infinity", "-Infinity"]),
    Strict(),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["Infinity", "-Infinity"], "type": "string"}]}, mode="serialization"),
]
"""A real number or an infinity, written ``"Infinity"`` in JSON."""


DEFERRED = "_ZETADP_DEFER_VALIDATORS" in os.environ
"""Whether a kind of value gets its validator when the first one is made, and not with its class. A command that needs few of several
hundred kinds starts in half of the time; the web framework would build the others again for every route."""


def is_absent(value: object) -> bool:
    """Whether a field is empty (None or an empty tuple) and left out of JSON."""
    return value is None or value == ()


class Value(BaseModel):
    """A frozen value with an exact JSON form: the domain object, the REST schema and the stored form in one."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings", allow_inf_nan=True, defer_build=DEFERRED)

    @classmethod
    def model_rebuild(
        cls,
        *,
        force: bool = False,
        raise_errors: bool = True,
        _parent_namespace_depth: int = 0,
        _types_namespace: Mapping[str, Any] | None = None,
    ) -> bool | None:
        """As Pydantic's, which reads names in annotations as the caller's first: whoever makes the first one may have an ``Event`` too."""
        del _parent_namespace_depth
        return super().model_rebuild(force=force, raise_errors=raise_errors, _parent_namespace_depth=0, _types_namespace=_types_namespace)


class Adjacency(StrEnum):
    """Which data sets are neighbours: the meaning of "one unit more or less"."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"


PrivacyUnit = Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""What a guarantee protects: ``record``, ``user``, ``patient``, ``image``, ..."""


@final
class Sensitivity(Value):
    r"""How far one unit can move the released vector, for a named adjacency and a named unit.

    Attributes:
      l2: bound on the l2 norm of the move, over all real coordinates (a complex coordinate is a pair); units of the query.
      l1: bound on its l1 norm; needed by Laplace noise.
      l2_real: bound on the l2 norm of the real part alone, <= l2. Complex queries only.
      l2_imag: bound on the l2 norm of the imaginary part alone, <= l2. Complex queries only.
      l2_contribution: bound on the l2 norm of what one unit alone adds to the query (for example a clipping bound). Under replace_one l2
        bounds only the difference of two units; Poisson sampling leaves a unit out, and needs this bound too.
      l1_contribution: the same for the l1 norm.
      adjacency: which data sets are neighbours; no default.
      unit: what one unit is; no default.
    Raises:
      ValidationError: neither l1 nor l2 given, a part larger than the whole, both parts zero, or a contribution bound where it says
        nothing (another adjacency, or no bound on the difference).

    >>> Sensitivity(l2=1.0, adjacency="add_remove", unit="record").l2
    1.0
    """

    l2: Positive | None = None
    l1: Positive | None = None
    l2_real: NonNegative | None = None
    l2_imag: NonNegative | None = None
    # Omitted from JSON if absent: most sensitivities have neither.
    l2_contribution: Positive | None = Field(default=None, exclude_if=is_absent)
    l1_contribution: Positive | None = Field(default=None, exclude_if=is_absent)
    adjacency: Adjacency
    unit: PrivacyUnit

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.l1 is None and self.l2 is None:
            raise InvalidParameter("sensitivity", "given as l2 or l1 (or both)", "neither")
        for name, part in (("l2_real", self.l2_real), ("l2_imag", self.l2_imag)):
            if part is None:
                continue
            if self.l2 is None:
                raise InvalidParameter("l2", f"given where {name} is", None)
            if part > self.l2:
                raise InvalidParameter(name, f"<= l2 = {self.l2!r}", part)
            if 0.0 < part < SMALLEST_SCALE:
                raise InvalidParameter(name, f"0 or >= {SMALLEST_SCALE!r}", part)
        if self.l2_real == 0.0 and self.l2_imag == 0.0:
            raise InvalidParameter("l2_real and l2_imag", "not both 0 (the query would not depend on the data)", 0.0)
        for name, move, contribution in (("l2", self.l2, self.l2_contribution), ("l1", self.l1, self.l1_contribution)):
            if contribution is None:
                continue
            if self.adjacency is not Adjacency.REPLACE_ONE:
                # For these the move is what a unit contributes, or what it contributes beyond a null unit.
                raise InvalidParameter(
                    f"{name}_contribution", f"absent under {self.adjacency.value} ({name} already covers it)", contribution
                )
            if move is None:
                raise InvalidParameter(name, f"given where {name}_contribution is", None)
        return self

    @property
    def stated_l2(self) -> float:
        """l2, which Gaussian noise needs. Raises InvalidParameter if it isn't given."""
        if self.l2 is None:
            raise InvalidParameter("sensitivity.l2", "given for Gaussian noise", None)
        return self.l2

    @property
    def stated_l1(self) -> float:
        """l1, which Laplace noise needs. Raises InvalidParameter if it isn't given."""
        if self.l1 is None:
            raise InvalidParameter("sensitivity.l1", "given for Laplace noise", None)
        return self.l1

    def refuse_parts(self) -> None:
        """A check for mechanisms on real values. Raises InvalidParameter if the real or imaginary part has its own bound."""
        if self.l2_real is not None or self.l2_imag is not None:
            raise InvalidParameter("sensitivity.l2_real and l2_imag", "absent for a real mechanism", "a bound on a part")


class Assumption(StrEnum):
    """What a claim assumes; every certificate lists its assumptions."""

    SENSITIVITY_AS_COMPUTED = "sensitivity_as_computed"
    INDEPENDENT_NOISE = "independent_noise"
    AS_DECLARED = "as_declared"


@final
class Facts(Value):
    """Facts about a kind of mechanism as a whole, shown by the service and copied into certificates."""

    summary: str
    assumptions: tuple[Assumption, ...]
    sources: tuple[str, ...]
    errata: tuple[str, ...]
    proof: str


@final
class Step(Value):
    """One line of a derivation: a reader can recompute ``value`` by hand from ``formula``."""

    symbol: str
    value: Extended | str
    formula: str
    source: str

    @field_serializer("value", when_used="json")
    def _infinity_as_text(self, value: float | str) -> float | str:
        # In a union Pydantic loses ``ser_json_inf_nan`` if a web framework annotates the surrounding model, and would write null.
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, value) if isinstance(value, float) else value


class Accounted(Value, ABC):
    """A small frozen value that states its privacy loss: all that accountants need of what was run."""

    FACTS: ClassVar[Facts]
    CAN_BE_SAMPLED: ClassVar[bool] = True
    """Whether its pair on a sample follows from the pair on all of the data."""
    SCALES: ClassVar[tuple[float, float]] = (SMALLEST_SCALE, LARGEST_SCALE)
    """Its smallest and largest noise scale."""

    @classmethod
    def kind_name(cls) -> str:
        """The value of ``kind`` that identifies this class in JSON."""
        return str(cls.model_fields["kind"].default)

    @classmethod
    @abstractmethod
    def example(cls) -> Self:
        """A typical value: the service shows it, and the contract tests run on it."""

    @property
    @abstractmethod
    def neighbours(self) -> tuple[Adjacency, PrivacyUnit]:
        """Whose guarantee it is: the adjacency and the unit."""

    @abstractmethod
    def privacy_loss(self) -> PrivacyLoss:
        """The loss of one release, over the worst pair of neighbours."""

    @abstractmethod
    def scaled(self, factor: float) -> Self:
        """The same with every noise scale multiplied by ``factor`` > 0 and the same sensitivity; unchanged if it has no noise."""

    @property
    @abstractmethod
    def noise_scale(self) -> float | None:
        """The scale that a calibration reports: std per real component (the larger one), Laplace's b; 1 / epsilon without noise.

        None for a bare guarantee, which nothing can make stronger.
        """

    @abstractmethod
    def derivation(self) -> tuple[Step, ...]:
        """From parameters to the privacy loss, line by line."""


class Mechanism(Accounted):
    """What the service itself can release: it draws its noise."""

    sensitivity: Sensitivity

    @property
    @final
    def neighbours(self) -> tuple[Adjacency, PrivacyUnit]:
        return self.sensitivity.adjacency, self.sensitivity.unit

    @property
    @abstractmethod
    def is_complex(self) -> bool:
        """Whether this mechanism is for complex values. Real noise on complex values would protect nothing, so kinds never mix."""

    @abstractmethod
    def example_value(self) -> NDArray[Any]:
        """A small value that this mechanism can release, float64 or complex128; a new array on each call."""

    @abstractmethod
    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        """The privatised value. Raises InvalidParameter if the value's kind or shape doesn't fit or it isn't finite."""

    def check_value(self, value: Array, source: NoiseSource[Array]) -> None:
        """Checks a value before a release. A value that goes to ``NoiseSource.released`` unchanged needs only ``check_kind``.

        Raises:
          InvalidParameter: as ``check_kind``, or the value isn't finite everywhere.
        """
        self.check_kind(value, source)
        if not source.all_finite(value):
            raise InvalidParameter("value", "finite in every coordinate", "a value with NaN or infinity")

    def check_kind(self, value: Array, source: NoiseSource[Array]) -> None:
        """Raises InvalidParameter if the value is real instead of complex or vice versa, masked, or has more digits than float64."""
        if source.is_complex(value) != self.is_complex:
            expected = "complex" if self.is_complex else "real"
            got = "complex" if source.is_complex(value) else "real"
            raise InvalidParameter("value", f"{expected} for this mechanism", got)
        if source.hides(value):
            raise InvalidParameter("value", "numbers of at most float64, none of them masked", f"{type(value).__name__} of {value.dtype}")

    def alone(self) -> Self | None:
        """The same noise for what one unit alone adds to the query; None if no separate bound on that is stated.

        Bounds on the real and imaginary part concern only differences and are dropped.
        """
        given = self.sensitivity
        if given.l1_contribution is None and given.l2_contribution is None:
            return None
        bounds = {"l1": given.l1_contribution or given.l1, "l2": given.l2_contribution or given.l2}
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate(fields | {"sensitivity": Sensitivity(adjacency=given.adjacency, unit=given.unit, **bounds)})

    def least_distance(self) -> float:
        """The smallest distance between neighbours' values that the accounting uses, in units of the noise's scale."""
        return _least_distance(self)  # pyright: ignore[reportArgumentType] (Pydantic gives frozen models their hash at run time)

    @property
    @abstractmethod
    def noise_scale(self) -> float: ...


class AdditiveNoise(Mechanism):
    """A mechanism that adds noise of the value's shape, independent of the value."""

    @abstractmethod
    def noise(self, shape: tuple[int, ...], source: NoiseSource[Array]) -> Array:
        """Noise of this shape; complex if the mechanism is."""

    def example_value(self) -> NDArray[Any]:
        return np.full((2, 3), 0.25 + 0.5j) if self.is_complex else np.full((2, 3), 0.25)


def with_normal_noise(scale: float, kept: float, value: Array, source: NoiseSource[Array]) -> Array:
    """A checked real value plus ``scale`` times standard normal noise, exactly (``grid``), contracted to ``kept`` before."""
    return source.released_normal(value, *released_by(scale, kept, size_of(value)))


def with_laplace_noise(scale: float, kept: float, value: Array, source: NoiseSource[Array]) -> Array:
    """The same with Laplace noise."""
    return source.released(value, source.standard_laplace(tuple(value.shape)), *released_by(scale, kept, size_of(value)))


def size_of(value: Any) -> int:
    """The number of entries of an array; a complex entry counts once."""
    return math.prod(tuple(value.shape))


@lru_cache(maxsize=64)
def _least_distance(mechanism: Mechanism) -> float:
    # Cached because every step of a training needs it.
    alone = mechanism.alone()
    return min(one.privacy_loss().distance for one in (mechanism, alone) if one is not None)
