r"""From uploaded arrays to a data set: what the definition names, scaled by its constants, and refused where it doesn't fit."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from pydantic import ValidationError

from tests.app.uploads_harness import arrays, definition, npz
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.making import Readable, made
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSet, DataSetFacts
from zetadp.trainer.data.formats import FormatName

A, B = "a" * 32, "b" * 32
Make = Callable[..., tuple[DataSet, DataSetFacts]]
ALL = {"kind": "fraction", "fraction": 0.1, "split_seed": 0, "split_by": "position"}


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, FormatName, bytes], Readable]:
    def write(name: str, format_: FormatName, content: bytes) -> Readable:
        (tmp_path / name).write_bytes(content)
        return Readable(tmp_path / name, format_)

    return write


@pytest.fixture
def make(put: Callable[[str, FormatName, bytes], Readable]) -> Make:
    """A data set of the arrays of ``uploads_harness``, or of other ones, by a changed definition."""

    def of(uploads: dict[str, Readable] | None = None, **changes: object) -> tuple[DataSet, DataSetFacts]:
        found = {A: put(A, "npz", npz()), B: put(B, "npz", npz(**arrays(seed=1)))} if uploads is None else uploads
        return made(DataSetDefinition.model_validate(definition(A, **changes)), found)

    return of


def table(**columns: list[Any]) -> bytes:
    rows = zip(*columns.values(), strict=True)
    return (",".join(columns) + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)).encode()


def test_a_classification_has_the_records_of_the_file_split_by_a_public_seed(make: Make) -> None:
    data, facts = make()
    given = arrays()
    both = np.concatenate([data.training_features, data.test_features])
    assert set(map(tuple, both.tolist())) == set(map(tuple, given["x"].tolist()))
    label = {tuple(row): int(one) for row, one in zip(given["x"].tolist(), given["y"], strict=True)}
    assert [label[tuple(row)] for row in data.training_features.tolist()] == data.training_targets.tolist()
    assert np.array_equal(np.sort(np.concatenate([data.training_targets, data.test_targets])), np.sort(given["y"]))
    assert (facts.training_records, facts.test_records, facts.shape, facts.is_complex) == (50, 10, (4,), True)
    assert (facts.unit, facts.user_unit, facts.classes, data.training_users) == ("beat", None, 2, None)
    again, _ = make()
    assert np.array_equal(again.training_features, data.training_features)
    other, _ = make(held_out={"kind": "fraction", "fraction": 0.2, "split_seed": 1})
    assert not np.array_equal(other.training_features, data.training_features)


def test_users_are_never_on_both_sides(make: Make) -> None:
    users = {"kind": "array", "unit": "patient", "sources": [{"upload": A, "array": "patient"}]}
    data, facts = make(users=users)
    given = arrays()
    owner = {tuple(row): int(who) for row, who in zip(given["x"].tolist(), given["patient"], strict=True)}
    training, test = ({owner[tuple(row)] for row in side.tolist()} for side in (data.training_features, data.test_features))
    assert not training & test
    assert (facts.users, facts.largest_user, facts.user_unit) == (14, 3, "patient")
    assert data.training_users is not None
    assert len(np.unique(data.training_users)) == 14


def test_every_upload_may_be_one_users(make: Make) -> None:
    data, facts = make(
        features=[{"upload": A, "array": "x"}, {"upload": B, "array": "x"}],
        targets=[{"upload": A, "array": "y"}, {"upload": B, "array": "y"}],
        users={"kind": "upload", "unit": "patient"},
        held_out={"kind": "fraction", "fraction": 0.5, "split_seed": 0},
    )
    assert (facts.users, facts.training_records, facts.test_records) == (1, 60, 60)
    assert data.training_features.tolist() in (arrays()["x"].tolist(), arrays(seed=1)["x"].tolist())


def test_values_are_scaled_by_the_constants_that_are_named_and_by_nothing_else(make: Make, put: Callable[..., Readable]) -> None:
    by_place = {"kind": "fraction", "fraction": 0.2, "split_seed": 0, "split_by": "position"}
    plain, _ = make(held_out=by_place)
    scaled, _ = make(held_out=by_place, scaling={"kind": "affine", "offset": 0.0, "scale": 4.0})
    assert np.allclose(scaled.training_features * 4.0, plain.training_features)
    values = np.arange(20.0).reshape(10, 2)
    real = {A: put("r", "npz", npz(x=values, y=np.arange(10) % 2))}
    moved, _ = make(real, numbers="real", scaling={"kind": "range", "lower": 0.0, "upper": 20.0, "outside": "refuse"}, held_out=ALL)
    both = np.concatenate([moved.training_features, moved.test_features])
    assert np.allclose(np.sort(both.ravel()), np.arange(20.0) / 20.0)
    with pytest.raises(InvalidParameter, match="within their public bounds"):
        make(real, numbers="real", scaling={"kind": "range", "lower": 0.0, "upper": 10.0, "outside": "refuse"})
    clipped, _ = make(real, numbers="real", scaling={"kind": "range", "lower": 0.0, "upper": 10.0, "outside": "clip"}, held_out=ALL)
    assert clipped.training_features.max() == 1.0


def test_one_record_more_changes_no_other_record(make: Make, put: Callable[..., Readable]) -> None:
    given = arrays()
    longer = {name: np.concatenate([values, 1000 * values[:1]]) for name, values in given.items() if name == "x"}
    longer |= {"y": np.append(given["y"], 0), "patient": np.append(given["patient"], 0)}
    test = put("t", "npz", npz(**arrays(seed=2)))
    held_out = {"kind": "arrays", "features": [{"upload": B, "array": "x"}], "targets": [{"upload": B, "array": "y"}]}
    one, _ = make({A: put("one", "npz", npz()), B: test}, held_out=held_out)
    more, _ = make({A: put("more", "npz", npz(**longer)), B: test}, held_out=held_out)
    assert np.array_equal(more.training_features[:-1], one.training_features)


def test_complex_numbers_may_come_in_two_arrays(make: Make, put: Callable[..., Readable]) -> None:
    given = arrays()
    parts = {A: put("p", "npz", npz(re=given["x"].real, im=given["x"].imag, y=given["y"]))}
    data, _ = make(parts, features=[{"upload": A, "array": "re", "imaginary": "im"}])
    whole, _ = make()
    assert np.array_equal(data.training_features, whole.training_features)


def test_records_may_lie_along_another_axis_and_have_another_shape(make: Make, put: Callable[..., Readable]) -> None:
    given = arrays()
    matrices = put("m", "mat", _mat(x=given["x"].T, y=given["y"]))
    data, facts = make({A: matrices}, features=[{"upload": A, "array": "x", "records_axis": 1}], record_shape=[1, 2, 2])
    whole, _ = make()
    assert facts.shape == (1, 2, 2)
    assert np.array_equal(data.training_features.reshape(-1, 4), whole.training_features)


def _mat(**of: np.ndarray) -> bytes:
    stream = io.BytesIO()
    scipy.io.savemat(stream, of)
    return stream.getvalue()


def test_columns_of_a_table_are_rebuilt_within_public_bounds(make: Make, put: Callable[..., Readable]) -> None:
    rows = {A: put("c", "csv", table(steps=[10, 20, 30, 40], sleep=[1, 2, 3, 4], who=["x", "x", "y", "y"]))}
    columns = [{"name": "sleep", "lower": 0.0, "upper": 8.0}, {"name": "steps", "lower": 0.0, "upper": 40.0}]
    data, facts = make(
        rows,
        task="reconstruction",
        numbers="real",
        classes=None,
        targets=None,
        features=[{"kind": "columns", "upload": A, "columns": columns, "outside": "refuse"}],
        users={"kind": "array", "unit": "user", "sources": [{"upload": A, "array": "who"}]},
        held_out={"kind": "fraction", "fraction": 0.5, "split_seed": 0},
    )
    assert data.training_targets is data.training_features
    both = np.concatenate([data.training_features, data.test_features])
    assert sorted(both.tolist()) == [[0.125, 0.25], [0.25, 0.5], [0.375, 0.75], [0.5, 1.0]]
    assert (facts.task, facts.classes, facts.users) == ("reconstruction", None, 1)


COLUMN = [{"name": "x", "lower": 0.0, "upper": 1.0}]
REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "real for complex": ({"features": [{"upload": A, "array": "y"}]}, r"features\[0\] must be complex numbers"),
    "complex for real": ({"numbers": "real"}, r"features\[0\] must be real numbers"),
    "no labels": ({"targets": [{"upload": A, "array": "x"}]}, r"targets\[0\] must be one value for each record"),
    "too few labels": ({"features": [{"upload": A, "array": "x"}] * 2}, "targets must be as many labels as the 120 records"),
    "labels outside": ({"targets": [{"upload": A, "array": "patient"}]}, "labels must be in 0 .. 1"),
    "no such class": ({"classes": 3}, "every class has at least one record"),
    "other shapes": ({"record_shape": [3]}, r"record_shape must be of as many numbers as a record's \(4,\)"),
    "an axis too many": ({"features": [{"upload": A, "array": "x", "records_axis": 2}]}, "records_axis must be one of the array's 2 axes"),
    "no such array": ({"features": [{"upload": A, "array": "q"}]}, r"features\[0\].array must be one of x, y, patient, got 'q'"),
    "the training records held out": (
        {"held_out": {"kind": "arrays", "features": [{"upload": A, "array": "x"}], "targets": [{"upload": A, "array": "y"}]}},
        "held_out.features must be records other than those trained on",
    ),
    "columns of an archive": (
        {"numbers": "real", "features": [{"kind": "columns", "upload": A, "columns": COLUMN, "outside": "clip"}]},
        "a CSV table or a two-dimensional NumPy array",
    ),
    "users of complex numbers": (
        {"users": {"kind": "array", "unit": "patient", "sources": [{"upload": A, "array": "y"}] * 2}},
        "users must be as many as there are records \\(60\\)",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(make: Make, which: str) -> None:
    changes, told = REFUSED[which]
    with pytest.raises(InvalidParameter, match=told):
        make(**changes)


BOTH = {"kind": "fraction", "fraction": 0.5, "split_seed": 0, "split_by": "position"}
"""One of two records on either side."""


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.array([[np.nan, 1.0], [0.0, 1.0]]), "finite"),
        (np.array([[1e300, 1.0], [0.0, 1.0]]), "finite"),
        (np.array([["secret", "word"], ["a", "b"]]), "an array of numbers"),
    ],
)
def test_what_no_network_can_train_on_is_refused_without_a_value(
    make: Make, put: Callable[..., Readable], values: np.ndarray, told: str
) -> None:
    with pytest.raises(InvalidParameter, match=told) as refused:
        make({A: put("bad", "npz", npz(x=values, y=np.array([0, 1])))}, numbers="real", held_out=BOTH)
    assert "secret" not in str(refused.value)
    assert "e+300" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"classes": None}, "classes must be given if and only if the task is classification"),
        ({"targets": None}, "targets must be given for a classification"),
        ({"task": "reconstruction"}, "classes must be given if and only if"),
        ({"scaling": {"kind": "range", "lower": 0.0, "upper": 1.0, "outside": "clip"}}, "scaling must be none, or affine with offset 0"),
        ({"scaling": {"kind": "affine", "offset": 1.0, "scale": 1.0}}, "scaling must be none, or affine with offset 0"),
        ({"numbers": "real", "scaling": {"kind": "range", "lower": 1.0, "upper": 1.0, "outside": "clip"}}, "upper must be above lower"),
        ({"users": {"kind": "upload", "unit": "beat"}}, "a name other than that of one record"),
        ({"description": "two\nlines"}, "description must be of printable characters"),
        ({"description": "\u202eback to front"}, "description must be of printable characters"),
        ({"held_out": {"kind": "arrays", "features": [{"upload": A, "array": "x"}]}}, "held_out.targets must be given"),
        ({"extra": 1}, "Extra inputs"),
    ],
)
def test_a_definition_whose_parts_disagree_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        DataSetDefinition.model_validate(definition(A, **changes))
