r"""An uploaded data set: arrays that were made once from somebody's files and never change.

This module doesn't know what it was made from or who may use it. A folder holds the arrays and a description of them; the caller of a plan
says where the folder of an id is (``found_by``), and a training process gets the folder of all of them in its environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, ClassVar, Literal, final

import numpy as np
from pydantic import Strict, StringConstraints, ValidationError

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet, DataSetFacts, NamedDataSet, array_digest, piecewise_digest
from zetadp.trainer.data.files.stored import ArrayFile, ArrayRecords, DataSetOnDisk

UPLOADED_VARIABLE = "ZETADP_UPLOADED_DIR"
"""The folder of the data sets' folders, in a training process."""
DESCRIPTION_FILE = "description.json"
TRAINING_FEATURES, TRAINING_TARGETS, TRAINING_USERS = "training_features.npy", "training_targets.npy", "training_users.npy"
TEST_FEATURES, TEST_TARGETS = "test_features.npy", "test_targets.npy"

DataSetId = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
Finder = Callable[[str], Path]
"""From an id to its folder. Raises InvalidParameter (``unknown``) if the caller has none with this id."""

_finder: ContextVar[Finder | None] = ContextVar("finder", default=None)


@final
class StoredDataSet(Value):
    r"""The description stored next to a data set's arrays.

    Attributes:
      named: its name in certificates.
      facts: the facts that a plan needs.
      arrays_sha256: of all arrays, held-out ones included (``array_digest``).
      rebuilds_itself: the targets are the features, and aren't stored twice.
    """

    named: NamedDataSet
    facts: DataSetFacts
    arrays_sha256: Sha256
    rebuilds_itself: Annotated[bool, Strict()]


@final
class Uploaded(DataRecipe):
    r"""Your own data set, made from uploaded files (``POST /v1/data-sets``).

    Attributes:
      data_set: its id.
    """

    UNIT: ClassVar[str] = "record"
    USER_UNIT: ClassVar[str | None] = "user"
    DESCRIPTION: ClassVar[str] = "An uploaded data set"

    kind: Literal["uploaded"] = "uploaded"
    data_set: DataSetId

    def describe(self) -> str:
        return self.stored().facts.description

    def named(self) -> NamedDataSet:
        return self.stored().named

    def known_facts(self) -> DataSetFacts:
        return self.stored().facts

    def sources(self) -> tuple[Path, ...]:
        folder = _folder(self.data_set)
        return tuple(folder / name for name in (DESCRIPTION_FILE, *_files(self.stored())))

    def stored(self) -> StoredDataSet:
        """What is known about it. Raises InvalidParameter if the caller has no such data set."""
        try:
            return StoredDataSet.model_validate_json((_folder(self.data_set) / DESCRIPTION_FILE).read_bytes())
        except (OSError, ValidationError):
            raise unknown(self.data_set) from None

    def arrays(self) -> DataSet:
        stored, files = self._opened()
        arrays = {name: file.whole() for name, file in files.items()}
        self._check_digest(stored, array_digest(*arrays.values()))
        return DataSet(
            training_features=arrays[TRAINING_FEATURES],
            training_targets=arrays[TRAINING_FEATURES if stored.rebuilds_itself else TRAINING_TARGETS],
            test_features=arrays[TEST_FEATURES],
            test_targets=arrays[TEST_FEATURES if stored.rebuilds_itself else TEST_TARGETS],
            classes=stored.facts.classes,
            training_users=arrays.get(TRAINING_USERS),
        )

    def on_disk(self) -> DataSetOnDisk:
        stored, files = self._opened()
        training, test = files[TRAINING_FEATURES], files[TEST_FEATURES]
        facts = stored.facts
        if training.shape != (facts.training_records, *facts.shape) or test.shape != (facts.test_records, *facts.shape):
            raise InvalidParameter("data.data_set", "stored with arrays of the sizes in its description", (training.shape, test.shape))
        return DataSetOnDisk(
            training=ArrayRecords(training, files.get(TRAINING_TARGETS)),
            test=ArrayRecords(test, files.get(TEST_TARGETS)),
            classes=facts.classes,
            training_users=files[TRAINING_USERS].whole() if TRAINING_USERS in files else None,
            check=lambda: self._check_digest(stored, piecewise_digest((file.dtype, file.shape, file.pieces()) for file in files.values())),
        )

    def _opened(self) -> tuple[StoredDataSet, dict[str, ArrayFile]]:
        """Its description and its files, in the order in which they are digested."""
        stored, folder = self.stored(), _folder(self.data_set)
        return stored, {name: ArrayFile(folder / name) for name in _files(stored)}

    def _check_digest(self, stored: StoredDataSet, found: str) -> None:
        if found != stored.arrays_sha256:
            raise InvalidParameter("data.data_set", "unchanged since it was made (its description has another digest)", self.data_set)


def unknown(data_set: str) -> InvalidParameter:
    """The error for an id that doesn't exist, the same as for somebody else's id."""
    return InvalidParameter("data.data_set", "the id of one of your data sets", data_set)


@contextmanager
def found_by(finder: Finder) -> Generator[None]:
    """Inside this context, in this thread, ``finder`` locates all uploaded data sets."""
    before = _finder.set(finder)
    try:
        yield
    finally:
        _finder.reset(before)


def found_in(folder: Path) -> Finder:
    """A finder of all data sets below a folder, for callers that have checked that the id may be used."""

    def find(data_set: str) -> Path:
        place = folder / data_set
        if not place.is_dir():
            raise unknown(data_set)
        return place

    return find


def store(folder: Path, data: DataSet) -> tuple[str, bool]:
    """Writes the arrays of a data set into an empty folder, and returns their part of ``StoredDataSet``: digest, and whether it rebuilds
    itself."""
    itself = data.training_targets is data.training_features
    given = {
        TRAINING_FEATURES: data.training_features,
        TEST_FEATURES: data.test_features,
        TRAINING_TARGETS: None if itself else data.training_targets,
        TEST_TARGETS: None if itself else data.test_targets,
        TRAINING_USERS: data.training_users,
    }
    arrays = {name: np.ascontiguousarray(values) for name, values in given.items() if values is not None}
    for name, values in arrays.items():
        with (folder / name).open("xb") as file:
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(values))
            # Not np.save: the last bytes it writes go through a buffer of C's, and where the disk is full no error is reported.
            file.write(values.reshape(-1).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())
    return array_digest(*arrays.values()), itself


def _files(stored: StoredDataSet) -> tuple[str, ...]:
    """The files, in the order in which they are digested."""
    targets = () if stored.rebuilds_itself else (TRAINING_TARGETS, TEST_TARGETS)
    users = () if stored.facts.users is None else (TRAINING_USERS,)
    return (TRAINING_FEATURES, TEST_FEATURES, *targets, *users)


def _folder(data_set: str) -> Path:
    if (finder := _finder.get()) is not None:
        return finder(data_set)
    if not (named := os.environ.get(UPLOADED_VARIABLE, "")):
        raise unknown(data_set)
    return found_in(Path(named))(data_set)
