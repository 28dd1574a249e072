r"""Records that stay on disk and are read by number: in memory there are a few bytes for each of them. Without torch."""

from __future__ import annotations

import math
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.splits import Keys

PIECE_BYTES = 2**24
"""What is held at once where all records are gone through, or one record where that is larger."""

UNCHANGED = "unchanged as long as it is read"

Pair = tuple[NDArray[Any], NDArray[Any]]


class StoredRecords(ABC):
    """Features and targets of records on disk."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of the features, (records, ...)."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Of the features."""

    @property
    def labels(self) -> NDArray[Any] | None:
        """Every record's label, int64 (records,); None where targets are of the features' shape and type."""
        return None

    @abstractmethod
    def read(self, numbers: NDArray[np.intp]) -> Pair:
        r"""Features and targets of these records, in this order, in newly allocated memory.

        Raises:
          InvalidParameter: a file has changed since it was opened, and which one.
        """

    @final
    def __len__(self) -> int:
        return self.shape[0]

    @final
    def pieces(self) -> Iterator[Pair]:
        """All records in their order, some at a time."""
        some = max(1, PIECE_BYTES // max(1, self.dtype.itemsize * math.prod(self.shape[1:])))
        for first in range(0, len(self), some):
            yield self.read(np.arange(first, min(first + some, len(self))))

    @final
    def whole(self) -> Pair:
        """All of them in memory."""
        features = np.empty(self.shape, self.dtype)
        labels = self.labels
        targets = np.empty(self.shape, self.dtype) if labels is None else labels
        done = 0
        for some, wanted in self.pieces():
            features[done : done + len(some)], targets[done : done + len(some)] = some, wanted
            done += len(some)
        return features, targets


@final
@dataclass(frozen=True)
class DataSetOnDisk:
    r"""As ``DataSet``, with its records on disk.

    Attributes:
      check: reads all files, some bytes at a time; raises InvalidParameter if they aren't what the data set's known facts are about. None
        where facts are found by reading.
    """

    training: StoredRecords
    test: StoredRecords
    classes: int | None
    training_users: Keys | None = None
    check: Callable[[], None] | None = None

    @property
    def bytes(self) -> int:
        """The size of the features in memory."""
        return sum(math.prod(side.shape) * side.dtype.itemsize for side in (self.training, self.test))


@final
class ArrayFile:
    r"""A ``.npy`` file, opened once. Its rows are copied by ordinary reads: under a memory map a file that is cut off kills the process.

    Shape and type come from the header, without a look at the contents.

    Raises:
      InvalidParameter: it isn't one in C order, or is longer or shorter than its header says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidParameter(path.name, "a file that can be read", error.strerror) from error
        weakref.finalize(self, os.close, self._file)
        self.shape, self.dtype = self._header()
        self._row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        self._stamp = self._now()
        if self._stamp[0] != self._start + self._row_bytes * self.shape[0]:
            raise self._refused("as long as its header says", f"{self._stamp[0]} bytes")

    def read(self, numbers: NDArray[np.intp]) -> NDArray[Any]:
        """These rows, in newly allocated memory. Raises InvalidParameter if the file has changed since it was opened."""
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        # Neighbours are read together.
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1).tolist() if self._row_bytes else []
        for first, last in zip(starts, [*starts[1:], len(numbers)], strict=True):
            self._fill(rows[first:last], int(numbers[first]))
        if self._now() != self._stamp:
            raise self._refused(UNCHANGED, "a file that changed")
        return rows

    def whole(self) -> NDArray[Any]:
        """All rows in memory."""
        return self.read(np.arange(self.shape[0]))

    def pieces(self) -> Iterator[NDArray[Any]]:
        """All rows in their order, some at a time."""
        some = max(1, PIECE_BYTES // max(1, self._row_bytes))
        for first in range(0, self.shape[0], some):
            yield self.read(np.arange(first, min(first + some, self.shape[0])))

    def _fill(self, rows: NDArray[Any], first: int) -> None:
        left, place = rows.reshape(-1).view(np.uint8).data, self._start + first * self._row_bytes
        while left:
            try:
                count = os.preadv(self._file, [left], place)
            except OSError as error:
                raise self._refused("a file that can be read", error.strerror) from error
            if not count:
                raise self._refused(UNCHANGED, "a file that was cut off")
            left, place = left[count:], place + count

    def _header(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        try:
            with open(self._file, "rb", closefd=False) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, is_fortran, dtype = read(file)
                self._start = file.tell()
        except (OSError, ValueError, EOFError) as error:
            raise self._refused("a whole NumPy array (.npy)", type(error).__name__) from error
        if is_fortran or dtype.hasobject or not shape:
            raise self._refused("an array of numbers with rows, in C order", f"{dtype.str}, {shape}")
        return shape, dtype

    def _now(self) -> tuple[int, int]:
        state = os.fstat(self._file)
        return state.st_size, state.st_mtime_ns

    def _refused(self, expected: str, got: object) -> InvalidParameter:
        return InvalidParameter(self.path.name, expected, got)


@final
class ArrayRecords(StoredRecords):
    """Records in two array files; ``targets`` is None where a record is to be reconstructed from itself."""

    def __init__(self, features: ArrayFile, targets: ArrayFile | None) -> None:
        self._features, self._targets = features, targets

    @property
    def shape(self) -> tuple[int, ...]:
        return self._features.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._features.dtype

    @cached_property
    def _labels(self) -> NDArray[Any] | None:
        return self._targets.whole() if self._targets is not None and self._targets.dtype == np.int64 else None

    @property
    def labels(self) -> NDArray[Any] | None:
        return self._labels

    def read(self, numbers: NDArray[np.intp]) -> Pair:
        features = self._features.read(numbers)
        if self._labels is not None:
            return features, self._labels[numbers]
        return features, features if self._targets is None else self._targets.read(numbers)


@final
class SomeRecords(StoredRecords):
    """Those of other records that have these numbers."""

    def __init__(self, of: StoredRecords, numbers: NDArray[np.intp]) -> None:
        self._of, self._numbers = of, numbers

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._numbers), *self._of.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._of.dtype

    @property
    def labels(self) -> NDArray[Any] | None:
        return None if self._of.labels is None else self._of.labels[self._numbers]

    def read(self, numbers: NDArray[np.intp]) -> Pair:
        return self._of.read(self._numbers[numbers])
