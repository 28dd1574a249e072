r"""POST /v1/compare/complex_gaussian: one release of complex Gaussian noise, as two papers state it and as it really is."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, Self, final

from fastapi import APIRouter
from pydantic import Field, Strict, model_validator

from zetadp.accountants import Grouped, Release
from zetadp.accountants.events import LARGEST_GROUP
from zetadp.app.calculators.compare.complex_gaussian import federated as complex_gaussian_federated
from zetadp.app.calculators.compare.complex_gaussian import neighbours as complex_gaussian_neighbours
from zetadp.app.calculators.compare.complex_gaussian import zeta as complex_gaussian_zeta
from zetadp.app.calculators.compare.complex_gaussian.neighbours import replacing, with_sensitivity
from zetadp.app.calculators.compare.finding import Finding
from zetadp.app.calculators.compare.point_comparisons import Points
from zetadp.app.calculators.points import LONGEST_LIST
from zetadp.app.calculators.profiles import compute_profile
from zetadp.app.calculators.schemas import Profile, ProfileRequest, example
from zetadp.mechanisms import ComplexGaussian, Sensitivity, Step
from zetadp.mechanisms.base import NonNegative, Number, OpenProbability, Positive, Value
from zetadp.mechanisms.conventions import NoiseStatement, complex_gaussian
from zetadp.mechanisms.errors import InvalidParameter

MOST_FINDINGS = 50

_SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}


@final
class ComplexGaussianComparison(Value):
    r"""Noise, either as this service writes it (``mechanism``) or as a paper does (``noise`` and ``sensitivity``), and where to compare it.

    Attributes:
      mechanism: the noise with deviations per real component; or
      noise: under a paper's convention, which must be named, with
      sensitivity: of the query.
      epsilons: where delta is compared; deltas: where epsilon is.
      orders: where the Renyi divergence is compared; 2 if none is given. At most 50.
      mus: for which the needed noise is compared; the mechanism's own if none is given. At most 50.
      group: the largest number of the sensitivity's units that one person holds.
      reading: "replace_one" to read a sensitivity for adding or removing a unit as one for replacing it, which doubles it.
    """

    model_config = example(
        {
            "noise": {"convention": "total", "sigma": 1.0},
            "sensitivity": _SENSITIVITY,
            "epsilons": [1.0, 8.0],
            "deltas": [1e-5],
            "orders": [2.0],
            "mus": [1.0],
            "group": 2,
        }
    )

    mechanism: ComplexGaussian | None = None
    noise: NoiseStatement | None = None
    sensitivity: Sensitivity | None = None
    epsilons: Annotated[tuple[NonNegative, ...], Field(max_length=LONGEST_LIST)] = ()
    deltas: Annotated[tuple[OpenProbability, ...], Field(max_length=LONGEST_LIST)] = ()
    orders: Annotated[tuple[Annotated[Number, Field(gt=1.0, le=1e6)], ...], Field(max_length=MOST_FINDINGS)] = ()
    mus: Annotated[tuple[Positive, ...], Field(max_length=MOST_FINDINGS)] = ()
    group: Annotated[int, Strict(), Field(ge=1, le=LARGEST_GROUP)] = 1
    reading: Literal["replace_one"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.mechanism is None) == (self.noise is None):
            raise InvalidParameter("mechanism", "given, or noise and sensitivity without it", "neither" if self.noise is None else "both")
        if (self.noise is None) != (self.sensitivity is None):
            raise InvalidParameter("sensitivity", "given together with noise, and not with mechanism", "only one of the two")
        if self.reading is not None:
            replacing(self.stated.sensitivity)
        elif self.noise is not None:
            complex_gaussian(self.noise, self._sensitivity)
        return self

    @property
    def _sensitivity(self) -> Sensitivity:
        assert self.sensitivity is not None  # checked at construction
        return self.sensitivity

    @cached_property
    def stated(self) -> ComplexGaussian:
        """The mechanism, for the neighbours for which its sensitivity is stated."""
        if self.mechanism is not None:
            return self.mechanism
        assert self.noise is not None  # checked at construction
        return complex_gaussian(self.noise, self._sensitivity)

    @cached_property
    def read(self) -> ComplexGaussian:
        """The mechanism, for the requested neighbours."""
        return self.stated if self.reading is None else with_sensitivity(self.stated, replacing(self.stated.sensitivity))


@final
class ComparedRelease(Value):
    """The mechanism with its proven profile, and each printed statement next to what is proven.

    Attributes:
      mechanism: deviations per real component, for the requested neighbours.
      conversion: from the paper's symbol to those deviations; empty if they were given.
      proven: the profile of one release, for the requested group and neighbours.
      published: the findings. All but C9 and C10 are about the noise as stated, for one unit.
    """

    mechanism: ComplexGaussian
    conversion: tuple[Step, ...]
    proven: Profile
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/complex_gaussian", summary="Compare the papers' printed theorems with what is proved")
def compare_complex_gaussian(request: ComplexGaussianComparison) -> ComparedRelease:
    """The printed theorems of both papers next to the proven profile of one release."""
    points = Points(request.epsilons, request.deltas, request.orders, request.mus)
    return ComparedRelease(
        mechanism=request.read,
        conversion=() if request.noise is None else request.noise.components().steps,
        proven=_profile(request),
        published=(
            *complex_gaussian_zeta.findings(request.stated, points),
            *complex_gaussian_federated.findings(request.stated, points),
            *complex_gaussian_neighbours.findings(request.stated, request.read, request.group, points),
        ),
    )


def _profile(request: ComplexGaussianComparison) -> Profile:
    one = Release(mechanism=request.read)
    unit = request.read.sensitivity.unit
    named = f"group_of_{request.group}_{unit}"[:64]
    # If it were cut off, the name could equal the unit's.
    larger = named if named != unit else f"group_of_{request.group}"
    event = one if request.group == 1 else Grouped(size=request.group, unit=larger, event=one)
    return compute_profile(ProfileRequest(event=event, epsilons=request.epsilons, deltas=request.deltas, orders=request.orders))
