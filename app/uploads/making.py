r"""From uploaded files to the arrays of a data set. It runs in a separate process (``app/uploads/parser.py``): the files aren't trusted.

Everything that depends on the data is a record's own: constants, classes, bounds and the split are named by the caller or drawn from a
public seed, so that nothing of several records shows in what isn't accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from zetadp.app.uploads.data_set_definition import (
    Affine,
    ArraySource,
    ColumnsSource,
    DataSetDefinition,
    HeldOutArrays,
    Range,
    UsersFromArray,
)
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSet, DataSetFacts, SplitRule, check, facts_with
from zetadp.trainer.data.files.columns import Column, scaled
from zetadp.trainer.data.formats import FORMATS, FormatName
from zetadp.trainer.data.splits import Keys, by_record, name_keys, record_keys, sides


@final
@dataclass(frozen=True)
class Readable:
    """An upload and its path."""

    path: Path
    format: FormatName


Uploads = Mapping[str, Readable]


def made(definition: DataSetDefinition, uploads: Uploads) -> tuple[DataSet, DataSetFacts]:
    r"""The data set and what is known about it.

    Raises:
      InvalidParameter: arrays are missing, don't fit each other, or can't be trained on. No value is quoted.
    """
    features = _features(definition, "features", definition.features, uploads)
    targets = features if definition.targets is None else _targets(definition, "targets", definition.targets, uploads, features)
    users = _users(definition, uploads, len(features))
    held_out = definition.held_out
    if isinstance(held_out, HeldOutArrays):
        test = _features(definition, "held_out.features", held_out.features, uploads)
        test_targets = test if held_out.targets is None else _targets(definition, "held_out.targets", held_out.targets, uploads, test)
        if np.array_equal(test, features):
            raise InvalidParameter("held_out.features", "records other than those trained on", "the same")
        data = DataSet(features, targets, test, test_targets, definition.classes, users)
    else:
        seed, share = held_out.split_seed, held_out.fraction
        if users is None:
            kept, held = by_record(held_out.split_by, record_keys(features, targets), seed, share)
        else:
            kept, held = sides(users, seed, share)
        data = _split(features, targets, users, kept, held, definition.classes)
    check(data)
    user_unit = None if definition.users is None else definition.users.unit
    return data, facts_with(data, definition.unit, user_unit, _split_rule(definition), described(definition))


def _split_rule(definition: DataSetDefinition) -> SplitRule:
    if isinstance(definition.held_out, HeldOutArrays):
        return "given"
    return definition.held_out.split_by if definition.users is None else "users"


def described(definition: DataSetDefinition) -> str:
    """What was done to the data, for a certificate; next to it are the owner's own words about what the data are."""
    scaling = definition.scaling
    if isinstance(scaling, Affine):
        scaled_by = f"(x - {scaling.offset:g}) / {scaling.scale:g}, constants that the maker named"
    elif isinstance(scaling, Range):
        scaled_by = f"moved to [0, 1] by bounds that the maker named ({_beyond(scaling.outside)})"
    else:
        scaled_by = "as they are in the files"
    columns = [source.outside for _, source in definition.sources() if isinstance(source, ColumnsSource)]
    if columns:
        clipped = "clip" if "clip" in columns else "refuse"
        scaled_by += f"; each column of a table moved to [0, 1] by bounds that the maker named ({_beyond(clipped)})"
    if isinstance(definition.held_out, HeldOutArrays):
        split = "The held-out records are other arrays; whether they are of the same people isn't known."
    elif definition.users is None:
        split = "The held-out records are drawn from a public seed; whether they are of the same people isn't known."
    else:
        split = f"The held-out records are those of units {definition.users.unit!r} drawn from a public seed, who have no training records."
    return f"A data set that was uploaded to the service, {definition.numbers} values, {scaled_by}. {split}"


def _beyond(outside: str) -> str:
    return "values beyond them are clipped to them" if outside == "clip" else "no value lies beyond them"


def _split(
    features: NDArray[Any], targets: NDArray[Any], users: Keys | None, kept: NDArray[Any], held: NDArray[Any], classes: int | None
) -> DataSet:
    training, test = features[kept], features[held]
    itself = targets is features
    of_users = None if users is None else users[kept]
    return DataSet(training, training if itself else targets[kept], test, test if itself else targets[held], classes, of_users)


def _features(
    definition: DataSetDefinition, field: str, sources: Sequence[ArraySource | ColumnsSource], uploads: Uploads
) -> NDArray[np.complex64] | NDArray[np.float32]:
    """(records, *shape), complex64 or float32, scaled."""
    parts = [_numbers(definition, f"{field}[{number}]", source, uploads) for number, source in enumerate(sources)]
    joined = _joined(field, parts)
    del parts
    if definition.record_shape is None:
        return joined[:, np.newaxis] if joined.ndim == 1 else joined
    try:
        return joined.reshape(len(joined), *definition.record_shape)
    except ValueError:
        pass  # whose words are NumPy's own
    raise InvalidParameter("record_shape", f"of as many numbers as a record's {joined.shape[1:]}", definition.record_shape)


def _numbers(definition: DataSetDefinition, field: str, source: ArraySource | ColumnsSource, uploads: Uploads) -> NDArray[Any]:
    if isinstance(source, ColumnsSource):
        return _columns(field, source, uploads)
    values = _array(field, source, uploads)
    if values.dtype.kind not in "biufc":
        raise InvalidParameter(field, "an array of numbers", "text")
    if definition.numbers == "real" and values.dtype.kind == "c":
        raise InvalidParameter(field, "real numbers (for complex ones, set numbers to complex)", values.dtype.name)
    if definition.numbers == "complex" and values.dtype.kind != "c":
        raise InvalidParameter(field, "complex numbers, or the name of the array of their imaginary parts", values.dtype.name)
    scaling = definition.scaling
    with np.errstate(over="ignore", invalid="ignore"):  # what isn't finite afterwards is refused
        if isinstance(scaling, Range):
            bounds = Column(name="values", lower=scaling.lower, upper=scaling.upper)
            wide = values.astype(np.float64)
            return scaled(wide.reshape(-1, 1), (bounds,), scaling.outside).reshape(wide.shape)
        if isinstance(scaling, Affine):
            wide = values.astype(np.complex128 if definition.numbers == "complex" else np.float64)
            wide -= scaling.offset
            wide /= scaling.scale
            values = wide
        return values.astype(np.complex64 if definition.numbers == "complex" else np.float32)


def _targets(
    definition: DataSetDefinition, field: str, sources: Sequence[ArraySource | ColumnsSource], uploads: Uploads, features: NDArray[Any]
) -> NDArray[Any]:
    if definition.classes is None:
        return _features(definition, field, sources, uploads)
    labels: list[NDArray[Any]] = []
    for number, source in enumerate(sources):
        if isinstance(source, ColumnsSource) or source.imaginary is not None:
            raise InvalidParameter(f"{field}[{number}]", "an array of labels", "columns, or complex numbers")
        labels.append(_labels(f"{field}[{number}]", _array(f"{field}[{number}]", source, uploads)))
    joined = _joined(field, labels)
    if len(joined) != len(features):
        raise InvalidParameter(field, f"as many labels as the {len(features)} records", len(joined))
    return joined


def _labels(field: str, values: NDArray[Any]) -> NDArray[np.int64]:
    flat = _flat(field, values)
    if flat.dtype.kind not in "biuf":
        raise InvalidParameter(field, "labels as whole numbers from 0", flat.dtype.name)
    if flat.dtype.kind == "f" and not (np.isfinite(flat).all() and (flat == np.round(flat)).all() and (np.abs(flat) < 2**31).all()):
        raise InvalidParameter(field, "labels as whole numbers from 0", "others")
    return flat.astype(np.int64)


def _users(definition: DataSetDefinition, uploads: Uploads, records: int) -> Keys | None:
    """Their keys, (records,)."""
    users = definition.users
    if users is None:
        return None
    if isinstance(users, UsersFromArray):
        found = [
            _flat(f"users.sources[{number}]", _array(f"users.sources[{number}]", source, uploads))
            for number, source in enumerate(users.sources)
        ]
        if any(part.dtype.kind not in "biufUS" for part in found) or len({part.dtype.kind in "US" for part in found}) != 1:
            raise InvalidParameter("users.sources", "numbers in all of them, or words in all of them", "others")
        if any(part.dtype.kind == "f" and not np.isfinite(part).all() for part in found):
            raise InvalidParameter("users.sources", "finite numbers", "NaN or infinity")
        names = np.concatenate(found)
    else:
        lengths: list[int] = []
        parts: list[NDArray[Any]] = []
        for number, source in enumerate(definition.features):
            lengths.append(len(_array(f"features[{number}]", source, uploads)) if isinstance(source, ArraySource) else 0)
            if isinstance(source, ColumnsSource):
                lengths[-1] = len(_columns(f"features[{number}]", source, uploads))
            parts.append(np.full(lengths[-1], source.upload))
        names = np.concatenate(parts)
    if len(names) != records:
        raise InvalidParameter("users", f"as many as there are records ({records})", len(names))
    return name_keys(names)


def _array(field: str, source: ArraySource, uploads: Uploads) -> NDArray[Any]:
    """The array with its records along the first axis."""
    upload = uploads[source.upload]
    names = [source.array] if source.imaginary is None else [source.array, source.imaginary]
    try:
        found = FORMATS[upload.format].arrays(upload.path, names)
    except InvalidParameter as refused:
        raise InvalidParameter(f"{field}.{refused.field}", refused.expected, refused.got) from refused
    values = found[source.array]
    if source.imaginary is not None:
        values = _complex(field, values, found[source.imaginary])
    if source.records_axis >= values.ndim:
        raise InvalidParameter(f"{field}.records_axis", f"one of the array's {values.ndim} axes", source.records_axis)
    return np.moveaxis(values, source.records_axis, 0)


def _complex(field: str, real: NDArray[Any], imaginary: NDArray[Any]) -> NDArray[Any]:
    if real.shape != imaginary.shape or real.dtype.kind not in "biuf" or imaginary.dtype.kind not in "biuf":
        raise InvalidParameter(f"{field}.imaginary", "real numbers of the same shape", (imaginary.shape, imaginary.dtype.name))
    joined = np.empty(real.shape, np.complex128)
    joined.real, joined.imag = real, imaginary
    return joined


def _columns(field: str, source: ColumnsSource, uploads: Uploads) -> NDArray[np.float32]:
    upload, wanted = uploads[source.upload], [column.name for column in source.columns]
    if upload.format == "csv":
        found = FORMATS["csv"].arrays(upload.path, wanted)
        table = np.column_stack([found[name] for name in wanted])
    elif upload.format == "npy":
        whole = FORMATS["npy"].arrays(upload.path, ["array"])["array"]
        width = whole.shape[1] if whole.ndim == 2 else 0
        if not all(name.isascii() and name.isdecimal() and int(name) < width for name in wanted):
            raise InvalidParameter(f"{field}.columns", f"numbers of the table's {width} columns", wanted[:5])
        table = whole[:, [int(name) for name in wanted]]
    else:
        raise InvalidParameter(f"{field}.upload", "a CSV table or a two-dimensional NumPy array, for columns", upload.format)
    if table.dtype.kind not in "biuf":
        raise InvalidParameter(f"{field}.columns", "columns of real numbers", "text, or complex numbers")
    return scaled(table.astype(np.float64), source.columns, source.outside)


def _flat(field: str, values: NDArray[Any]) -> NDArray[Any]:
    """One number or word per record; MATLAB has no vectors, only matrices of one row or column."""
    if values.ndim > 1 and max(values.shape) == values.size:
        values = values.reshape(-1)
    if values.ndim != 1:
        raise InvalidParameter(field, "one value for each record", values.shape)
    return values


def _joined(field: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    if any(part.shape[1:] != parts[0].shape[1:] for part in parts):
        raise InvalidParameter(field, "of records of one shape", [part.shape[1:] for part in parts][:5])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
