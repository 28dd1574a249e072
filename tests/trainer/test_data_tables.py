r"""Tables of real rows: every column is moved to [0, 1] by public bounds, whatever the table holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from tests.data_sets import data_sets
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import ROOT_VARIABLE, DataSpec, DigitsImages, Fitbit, Table, data_set_facts
from zetadp.trainer.data.base import DataSet, check
from zetadp.trainer.data.files.columns import Column
from zetadp.trainer.data.fitbit import FEATURES, HELD_OUT_FILE, TRAINING_FILE

COLUMNS = [{"name": "minutes", "lower": 0.0, "upper": 1440.0}, {"name": "balance", "lower": -10.0, "upper": 10.0}]
CSV = "person,minutes,balance\nann,720,0\nbob,1440,-10\nann,0,10\nbob,360,5\ncleo,144,-5\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    place = tmp_path / "set"
    place.mkdir()
    (place / "rows.csv").write_text(CSV, encoding="utf-8")
    (place / "more.csv").write_text("balance,minutes\n2.5,10\n", encoding="utf-8")
    return place


def _table(**changes: Any) -> Table:
    document = {
        "kind": "table",
        "folder": "set",
        "file": "rows.csv",
        "columns": COLUMNS,
        "outside": "refuse",
        "held_out": {"kind": "file", "file": "more.csv"},
    }
    return Table.model_validate(document | changes)


def test_columns_are_moved_to_the_unit_interval_by_their_bounds(folder: Path) -> None:
    data = _table(user_column="person").read()
    expected = [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0], [0.25, 0.75], [0.1, 0.25]]
    assert data.training_features.tolist() == np.array(expected, dtype=np.float32).tolist()
    assert data.training_users is not None
    users = data.training_users.tolist()
    assert [users.index(user) for user in users] == [0, 1, 0, 1, 4]
    assert data.test_features.tolist() == np.array([[10 / 1440, 0.625]], dtype=np.float32).tolist()
    assert data.training_targets is data.training_features


def test_another_row_changes_no_other(folder: Path) -> None:
    before = _table().read().training_features
    (folder / "rows.csv").write_text(CSV + "dan,1,-10\n", encoding="utf-8")
    assert np.array_equal(_table().read().training_features[:-1], before)


def test_facts_say_real_reconstruction(folder: Path) -> None:
    facts = data_set_facts(_table(user_column="person"))
    assert (facts.task, facts.is_complex, facts.shape, facts.unit, facts.user_unit) == ("reconstruction", False, (2,), "record", "user")
    assert (facts.training_records, facts.users, facts.largest_user) == (5, 3, 2)
    assert data_set_facts(_table()).user_unit is None


@pytest.mark.parametrize("missing", ["lower", "upper"])
def test_column_without_public_bounds_is_refused(missing: str) -> None:
    column = {name: value for name, value in COLUMNS[0].items() if name != missing}
    with pytest.raises(ValidationError, match=rf"columns\.minutes\.{missing} must be given: a public bound, known without the data"):
        _table(columns=[column])


def test_bounds_that_bound_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"columns\.x\.upper must be at least 1e-30 above lower"):
        Column(name="x", lower=1.0, upper=1.0)


def test_what_becomes_of_values_outside_must_be_said() -> None:
    document = _table().model_dump()
    del document["outside"]
    with pytest.raises(ValidationError, match="outside"):
        Table.model_validate(document)


def test_values_outside_are_refused_without_being_quoted(folder: Path) -> None:
    (folder / "rows.csv").write_text("minutes,balance\n1441.7,0\n1,2\n", encoding="utf-8")
    with pytest.raises(InvalidParameter, match="within their public bounds") as refused:
        _table().read()
    assert "minutes" in str(refused.value)
    assert "balance" not in str(refused.value)
    assert "1441" not in str(refused.value)


def test_values_outside_are_clipped_at_the_public_bounds(folder: Path) -> None:
    (folder / "rows.csv").write_text("minutes,balance\n99999,-99\n1,2\n", encoding="utf-8")
    data = _table(outside="clip").read()
    assert data.training_features[0].tolist() == [1.0, 0.0]
    assert "clipped to them" in _table(outside="clip").describe()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minutes,balance\n1,Jane\n", "a number in every row"),
        ("minutes,balance\n1,\n", "a number in every row"),
        ("minutes,balance\n1,nan\n", "finite"),
        ("minutes,other\n1,2\n", "a table with one column 'balance'"),
        ("minutes,balance,balance\n1,2,3\n", "a table with one column 'balance'"),
        ("minutes,balance\n1\n", "rows of 2 cells each"),
        ("minutes,balance\n", "rows of 2 cells each"),
        ("", "a table with one column 'minutes'"),
    ],
)
def test_tables_that_are_none_are_refused_without_being_quoted(folder: Path, text: str, message: str) -> None:
    (folder / "rows.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameter, match=message) as refused:
        _table().read()
    assert "Jane" not in str(refused.value)


def test_a_numpy_table_names_its_columns_by_number(folder: Path) -> None:
    np.save(folder / "rows.npy", np.array([[7.0, 0.0, 1.0], [7.0, 2.0, 3.0], [9.0, 4.0, 4.0]]))
    columns = [{"name": "2", "lower": 0.0, "upper": 4.0}, {"name": "1", "lower": 0.0, "upper": 4.0}]
    held_out = {"kind": "fraction", "fraction": 0.34, "split_seed": 0}
    data = _table(file="rows.npy", columns=columns, user_column="0", held_out=held_out).read()
    rows = sorted([*data.training_features.tolist(), *data.test_features.tolist()])
    assert rows == [[0.25, 0.0], [0.75, 0.5], [1.0, 1.0]]
    # Two users: one is held out, with all of their rows.
    assert {len(data.training_features), len(data.test_features)} == {1, 2}
    with pytest.raises(InvalidParameter, match="a number from 0 to 2"):
        _table(file="rows.npy", columns=[{"name": "3", "lower": 0.0, "upper": 4.0}], held_out=held_out).read()


def test_pickled_numpy_files_are_never_opened(folder: Path) -> None:
    np.save(folder / "rows.npy", np.array([["a", object()]], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidParameter, match=r"a NumPy file \(\.npy\) of real numbers"):
        _table(file="rows.npy", held_out={"kind": "fraction", "fraction": 0.5, "split_seed": 0}).read()


def test_the_training_rows_are_never_held_out_too(folder: Path) -> None:
    expected = r"held_out.file must be a file with rows other than the training rows \(measurements .* without noise\), got 'rows.csv'"
    with pytest.raises(ValidationError, match=expected):
        _table(held_out={"kind": "file", "file": "rows.csv"})
    (folder / "linked.csv").symlink_to(folder / "rows.csv")
    (folder / "copy.csv").write_text(CSV.replace("720", "720.0"), encoding="utf-8")
    for name in ("linked.csv", "copy.csv"):
        with pytest.raises(InvalidParameter, match="a file with rows other than the training rows"):
            _table(held_out={"kind": "file", "file": name}).read()


def test_a_public_fraction_is_held_out_by_rows_without_users(folder: Path) -> None:
    held_out = {"kind": "fraction", "fraction": 0.4, "split_seed": 1}
    data = _table(held_out=held_out).read()
    assert (len(data.training_features), len(data.test_features)) == (3, 2)
    assert data.training_users is None
    assert "drawn at random" in _table(held_out=held_out).describe()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training_features": np.full((4, 3), 1.5, dtype=np.float32)}, "training rows must be in"),
        ({"training_targets": np.full((4, 3), -0.5, dtype=np.float32)}, "training rows must be in"),
        ({"training_targets": np.full((4, 3), 0.5, dtype=np.complex64)}, "float32 of the features' shape"),
        ({"training_targets": np.full((4, 2), 0.5, dtype=np.float32)}, "float32 of the features' shape"),
        ({"training_targets": np.full((4, 3), np.nan, dtype=np.float32)}, "training rows must be finite"),
    ],
)
def test_rows_to_reconstruct_must_lie_in_the_unit_box(change: dict[str, Any], message: str) -> None:
    rows = np.full((4, 3), 0.5, dtype=np.float32)
    arrays = {"training_features": rows, "training_targets": rows, "test_features": rows, "test_targets": rows}
    check(DataSet(**arrays, classes=None))
    with pytest.raises(InvalidParameter, match=message):
        check(DataSet(**(arrays | change), classes=None))


def test_digits_are_there_without_any_file() -> None:
    facts = data_set_facts(DigitsImages(split_seed=0, test_fraction=0.2))
    assert (facts.shape, facts.training_records, facts.test_records, facts.unit) == ((64,), 1427, 370, "record")


@pytest.fixture
def fitbit(monkeypatch: pytest.MonkeyPatch) -> Fitbit:
    data_sets(monkeypatch, "fitbit")
    return Fitbit(folder="fitbit")


def test_fitbit_has_its_published_counts(fitbit: Fitbit) -> None:
    data = fitbit.read()
    assert data.training_features.shape == (457, 14)
    # 940 days less the 33 of 12 April, which the first file has in part.
    assert data.test_features.shape == (907, 14)
    facts = data_set_facts(fitbit)
    assert (facts.users, facts.largest_user, facts.unit, facts.user_unit) == (35, 32, "day", "user")
    # Energy is given twice, as in the paper.
    assert np.array_equal(data.training_features[:, 12], data.training_features[:, 13])
    # The first line of the file: 11004 steps, 7.11 km, 804 sedentary minutes, 1819 kcal.
    first = data.training_features[0]
    assert first[[0, 1, 11, 12]] == pytest.approx([11004 / 30000, 7.1100001335144 / 25, 804 / 1440, 1819 / 5000], rel=1e-6)


def test_fitbit_holds_out_other_days_of_mostly_the_same_people(fitbit: Fitbit) -> None:
    place = Path(os.environ[ROOT_VARIABLE]) / "fitbit"
    lines = {name: (place / name).read_text(encoding="utf-8").splitlines()[1:] for name in (TRAINING_FILE, HELD_OUT_FILE)}
    trained = {tuple(line.split(",")[:2]) for line in lines[TRAINING_FILE]}
    held_out = [tuple(line.split(",")[:2]) for line in lines[HELD_OUT_FILE]]
    later = [pair for pair in held_out if pair[1] != "4/12/2016"]
    assert len(later) == fitbit.read().test_features.shape[0]
    assert not trained & set(later)
    assert trained & set(held_out)
    assert len({user for user, _ in later} & {user for user, _ in trained}) == 33
    assert "mostly from the same people" in fitbit.describe()


def test_fitbits_bounds_are_fields_that_can_be_changed(fitbit: Fitbit) -> None:
    wider = tuple(Column(name=column.name, lower=column.bounds[0], upper=2.0 * column.bounds[1]) for column in FEATURES)
    rows = Fitbit(folder="fitbit", columns=wider).read().training_features
    inside = fitbit.read().training_features
    assert rows[inside < 1.0] == pytest.approx(inside[inside < 1.0] / 2.0, rel=1e-6)


def test_new_kinds_come_back_from_json() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(DataSpec)
    for spec in (Fitbit(folder="fitbit"), _table(), DigitsImages(split_seed=1, test_fraction=0.5)):
        assert adapter.validate_json(spec.model_dump_json()) == spec
