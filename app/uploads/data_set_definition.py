r"""What a data set is made from: arrays of uploads, and constants that the caller states. Nothing is ever taken from the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, final

from pydantic import ConfigDict, Field, Strict, StringConstraints, model_validator

from zetadp.mechanisms.base import Count, Number, Positive, PrivacyUnit, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.columns import Columns, Outside
from zetadp.trainer.data.formats.base import ArrayName
from zetadp.trainer.data.table import HeldOutFraction

MOST_SOURCES = 4096
PRINTABLE = "of printable characters"

UploadId = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]
Axis = Annotated[int, Strict(), Field(ge=0, le=15)]


@final
class ArraySource(Value):
    r"""An array of an upload, with its records along one axis.

    Attributes:
      array: its name there; ``array`` for formats that hold only one, ``volume`` for NIfTI, a column's name for CSV.
      imaginary: another array of the same upload and shape with the imaginary parts; null if the array is complex or real.
      records_axis: the axis that counts records.
    """

    kind: Literal["array"] = "array"
    upload: UploadId
    array: ArrayName
    imaginary: ArrayName | None = None
    records_axis: Axis = 0


@final
class ColumnsSource(Value):
    r"""Columns of a table, or of a two-dimensional NumPy array (by their numbers), each scaled to [0, 1] by public bounds.

    Attributes:
      columns: in this order.
      outside: what happens to a value outside its bounds.
    """

    kind: Literal["columns"] = "columns"
    upload: UploadId
    columns: Columns
    outside: Outside


Source = Annotated[ArraySource | ColumnsSource, Field(discriminator="kind")]
Sources = Annotated[tuple[Source, ...], Field(min_length=1, max_length=MOST_SOURCES)]
ArraySources = Annotated[tuple[ArraySource, ...], Field(min_length=1, max_length=MOST_SOURCES)]


@final
class Unscaled(Value):
    """Values as they are."""

    kind: Literal["none"] = "none"


@final
class Affine(Value):
    """(x - offset) / scale. Constants known without the data; of complex values the offset is 0."""

    kind: Literal["affine"] = "affine"
    offset: Number
    scale: Positive


@final
class Range(Value):
    """(x - lower) / (upper - lower), in [0, 1]: of real values. ``outside``: what happens to values beyond."""

    kind: Literal["range"] = "range"
    lower: Number
    upper: Number
    outside: Outside

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.lower < self.upper:
            raise InvalidParameter("upper", "above lower", self.upper)
        return self


@final
class UsersFromArray(Value):
    """The user of each record, as numbers or words: records with the same value belong to one user."""

    kind: Literal["array"] = "array"
    unit: PrivacyUnit
    sources: ArraySources


@final
class UsersFromUploads(Value):
    """Each upload that features come from belongs, with all of its records, to one user."""

    kind: Literal["upload"] = "upload"
    unit: PrivacyUnit


@final
class HeldOutArrays(Value):
    """Other arrays are held out. ``targets`` is null if and only if the training targets are."""

    kind: Literal["arrays"] = "arrays"
    features: Sources
    targets: Sources | None = None


@final
class DataSetDefinition(Value):
    r"""A data set of your own. Everything here is taken as public, and you answer for that.

    Attributes:
      name: a label.
      description: what the data are, in your words. Certificates quote it as words that nobody checked.
      task: classification of labels, or reconstruction of arrays.
      numbers: the features are stored as complex64 or float32.
      unit: what one record is.
      features: arrays with a record on each line of their first axis, one below another.
      targets: labels 0 .. classes - 1, or arrays of the features' shape; null if a reconstruction's targets are the features.
      classes: of a classification; a public number, not counted in the data.
      record_shape: of one record, if it isn't the arrays': (features,), (channels, length) or (channels, height, width).
      scaling: of features, and of targets of a reconstruction, by public constants.
      users: whose records they are; null if unknown. A guarantee for users needs it.
      held_out: the records that aren't trained on: a share drawn from a public seed (of users if known), or other arrays.
    Raises:
      ValidationError: parts disagree.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "beats of ward 3",
                    "description": "Spectra of heartbeats, ward 3, 2024, consented",
                    "task": "classification",
                    "numbers": "complex",
                    "unit": "beat",
                    "features": [{"kind": "array", "upload": "0" * 32, "array": "x"}],
                    "targets": [{"kind": "array", "upload": "0" * 32, "array": "y"}],
                    "classes": 2,
                    "scaling": {"kind": "affine", "offset": 0.0, "scale": 10.0},
                    "users": {"kind": "array", "unit": "patient", "sources": [{"kind": "array", "upload": "0" * 32, "array": "patient"}]},
                    "held_out": {"kind": "fraction", "fraction": 0.2, "split_seed": 0},
                }
            ]
        }
    )

    name: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
    description: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]
    task: Literal["classification", "reconstruction"]
    numbers: Literal["complex", "real"]
    unit: PrivacyUnit
    features: Sources
    targets: Sources | None = None
    classes: Annotated[int, Strict(), Field(ge=2, le=10_000)] | None = None
    record_shape: Annotated[tuple[Count, ...], Field(min_length=1, max_length=3)] | None = None
    scaling: Annotated[Unscaled | Affine | Range, Field(discriminator="kind")] = Unscaled()
    users: Annotated[UsersFromArray | UsersFromUploads, Field(discriminator="kind")] | None = None
    held_out: Annotated[HeldOutFraction | HeldOutArrays, Field(discriminator="kind")]

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        # Sources of the usual kind needn't say so.
        return _with_kinds(given)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for field in ("name", "description"):
            if not getattr(self, field).isprintable():
                raise InvalidParameter(field, PRINTABLE, "others")
        if (self.task == "classification") != (self.classes is not None):
            raise InvalidParameter("classes", "given if and only if the task is classification", self.classes)
        if self.task == "classification" and self.targets is None:
            raise InvalidParameter("targets", "given for a classification", None)
        if isinstance(self.held_out, HeldOutArrays) and (self.held_out.targets is None) != (self.targets is None):
            raise InvalidParameter("held_out.targets", "given if and only if targets are given", self.held_out.targets)
        if self.users is not None and self.users.unit == self.unit:
            raise InvalidParameter("users.unit", f"a name other than that of one record ({self.unit!r})", self.users.unit)
        if self.numbers == "complex":
            self._check_complex()
        return self

    def _check_complex(self) -> None:
        if isinstance(self.scaling, Range) or (isinstance(self.scaling, Affine) and self.scaling.offset != 0.0):
            raise InvalidParameter("scaling", "none, or affine with offset 0, for complex numbers", self.scaling.kind)
        for place, source in self.sources():
            if isinstance(source, ColumnsSource):
                raise InvalidParameter(place, "arrays, for complex numbers", source.kind)

    def sources(self) -> Iterator[tuple[str, ArraySource | ColumnsSource]]:
        """All arrays to read, with their place in the request."""
        held_out = self.held_out if isinstance(self.held_out, HeldOutArrays) else None
        users = self.users.sources if isinstance(self.users, UsersFromArray) else ()
        of_test = () if held_out is None else (("held_out.features", held_out.features), ("held_out.targets", held_out.targets or ()))
        named = (("features", self.features), ("targets", self.targets or ()), *of_test, ("users.sources", users))
        for name, sources in named:
            for number, source in enumerate(sources):
                yield f"{name}[{number}]", source


def _with_kinds(given: Any) -> Any:
    if isinstance(given, dict):
        read = {str(key): _with_kinds(value) for key, value in given.items()}
        return {"kind": "array", **read} if "upload" in read and "array" in read else read
    return [_with_kinds(one) for one in given] if isinstance(given, list | tuple) else given
