r"""Records of a caller's data set, or of one on disk, read when they are needed: memory doesn't grow with their number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Protocol, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.stored import StoredRecords
from zetadp.trainer.engine.gradients.inputs import Features, add_to_digest, features_of, inputs_and_target, kinds_of, parts_of
from zetadp.trainer.layers.flat_parameters import as_real

AT_ONCE = 256
"""Records read together where all are gone through."""


class Records(Protocol):
    """A map-style data set: item ``i`` is what ``inputs_and_target`` takes, of record i."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@final
class MappedRecords:
    r"""Records of arrays of which some are memory maps (``np.load(path, mmap_mode="r")``): each is copied when it is asked for.

    Raises:
      InvalidParameter: they aren't of as many records each.
    """

    def __init__(self, inputs: Mapping[int | str, Any], target: Any) -> None:
        counts = {len(one) for one in (*inputs.values(), target)}
        if len(counts) != 1:
            raise InvalidParameter("data", "inputs and targets of as many records each", sorted(counts))
        self._inputs, self._target, self._count = inputs, target, counts.pop()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> object:
        found = {name: np.array(one[index]) for name, one in self._inputs.items()}, np.array(self._target[index])
        return found if all(isinstance(name, str) for name in self._inputs) else (*found[0].values(), found[1])


@final
class Loader:
    """Items as stacked tensors, the last ones asked for kept: features and targets are asked for one after the other."""

    def __init__(self, records: Records, device: torch.device) -> None:
        self._records, self._device = records, device
        self._last: tuple[tuple[int, ...], tuple[Features, Tensor]] = ((), self._stacked((0,)))

    def __len__(self) -> int:
        return len(self._records)

    def rows(self, numbers: tuple[int, ...]) -> tuple[Features, Tensor]:
        """Features and targets of these records, on the device."""
        if numbers != self._last[0]:
            self._last = (numbers, self._stacked(numbers))
        return self._last[1]

    def _stacked(self, numbers: tuple[int, ...]) -> tuple[Features, Tensor]:
        items = [inputs_and_target(self._records[number]) for number in numbers]
        names = list(items[0][0])
        if other := next((list(inputs) for inputs, _ in items if list(inputs) != names), None):
            raise InvalidParameter("data", f"records with the inputs {names}", other)
        try:
            parts = {name: _stack([inputs[name] for inputs, _ in items]).to(self._device) for name in names}
            return features_of(parts), _stack([target for _, target in items]).to(self._device)
        except RuntimeError as error:
            raise InvalidParameter("data", "records of one shape and type", str(error).splitlines()[0]) from error


def _stack(values: Sequence[Any]) -> Tensor:
    return torch.stack([value if isinstance(value, Tensor) else torch.as_tensor(value) for value in values])


def passed_alone(front: nn.Sequential, features: Tensor) -> Tensor:
    """(records, ...) behind the front, one record at a time: what it becomes doesn't depend on the records beside it, in no bit."""
    if not len(front):
        return features
    with torch.no_grad():
        return torch.cat([front(record) for record in features.split(1)])


@final
class StoredLoader:
    r"""Records of a data set on disk as tensors, the last ones asked for kept.

    Args:
      front: public functions of one record that the network begins with. They are computed again in each step.
    """

    def __init__(self, records: StoredRecords, front: nn.Sequential, device: torch.device) -> None:
        self._records, self._front, self._device = records, front, device
        self._last: tuple[tuple[int, ...], tuple[Tensor, Tensor]] = ((), self._read((0,)))

    def __len__(self) -> int:
        return len(self._records)

    def rows(self, numbers: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Features and targets of these records, on the device. Raises InvalidParameter if a file changed."""
        if numbers != self._last[0]:
            self._last = ((), self._last[1])
            self._last = (numbers, self._read(numbers))
        return self._last[1]

    def _read(self, numbers: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        features, targets = (torch.from_numpy(values).to(self._device) for values in self._records.read(np.array(numbers, dtype=np.intp)))
        return passed_alone(self._front, features), targets


class Rows(Protocol):
    """``Loader`` and ``StoredLoader``."""

    def __len__(self) -> int: ...

    def rows(self, numbers: tuple[int, ...], /) -> tuple[Features, Tensor]:
        """Features and targets of these records."""
        ...


@final
class LazyRows:
    r"""Features (``part`` 0) or targets (1) of a data set, as far as the engine asks a tensor (records, ...) for them.

    Attributes:
      one: the first record, (1, ...).
      behind: made-up records after those of the data set, (records, ...), which are in memory and may be changed; None for none.
      least, largest: of labels; 0 for other targets.
      kinds: some of the different labels.
    """

    def __init__(self, loader: Rows, part: int) -> None:
        self._loader, self._part = loader, part
        self.one = loader.rows((0,))[part]
        self.least = self.largest = 0
        self.kinds = self.one
        self.behind: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self._tensor.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        return self._tensor.dtype

    @property
    def device(self) -> torch.device:
        return self.one.device

    @property
    def _tensor(self) -> Tensor:
        """Where it is one: nothing that has shapes and types is asked of several."""
        return cast("Tensor", self.one)

    def dim(self) -> int:
        return self._tensor.dim()

    def is_complex(self) -> bool:
        return self._tensor.is_complex()

    def is_floating_point(self) -> bool:
        return self._tensor.is_floating_point()

    def unique(self) -> Tensor:
        return cast("Tensor", self.kinds)

    def followed_by(self, behind: Tensor) -> LazyRows:
        """The same rows with these after them."""
        found = copy(self)
        found.behind = behind
        return found

    def __len__(self) -> int:
        return len(self._loader) + (0 if self.behind is None else len(self.behind))

    def __getitem__(self, rows: Tensor | slice) -> Features:
        numbers = torch.arange(len(self))[rows] if isinstance(rows, slice) else rows
        return self.index_select(0, numbers)

    def __setitem__(self, rows: slice, values: Tensor) -> None:
        """Of rows behind the data set's own."""
        assert self.behind is not None  # nothing else is written
        places = torch.arange(len(self))[rows] - len(self._loader)
        assert bool((places >= 0).all())
        self.behind[places.to(self.behind.device)] = values

    def index_select(self, _axis: int, rows: Tensor) -> Features:
        """A new tensor, as ``Tensor.index_select`` gives it."""
        numbers = rows.tolist()
        own = tuple(number for number in numbers if number < len(self._loader))
        read = self._loader.rows(own)[self._part] if own else self.one[:0]
        if len(own) == len(numbers):
            return read.clone()
        assert isinstance(read, Tensor)
        assert self.behind is not None
        is_own = rows < len(self._loader)
        found = read.new_empty((len(numbers), *read.shape[1:]))
        found[is_own] = read
        found[~is_own] = self.behind[rows[~is_own] - len(self._loader)]
        return found


def lazy(records: Records, device: torch.device) -> tuple[LazyRows, LazyRows, str]:
    r"""Features, targets and the digest of all of them, after one look at every record.

    Raises:
      InvalidParameter: there are none, they differ in shape or type, or one holds NaN or infinity.
    """
    if not len(records):
        raise InvalidParameter("data", "at least one record", "none")
    loader = Loader(records, device)
    features, targets = LazyRows(loader, 0), LazyRows(loader, 1)
    expected = kinds_of(features.one, cast("Tensor", targets.one))
    digest = hashlib.sha256(f"{len(loader)} {expected}".encode())
    for first, chunk in _chunks(loader):
        if (found := kinds_of(*chunk)) != expected:
            raise InvalidParameter("data", f"records of {expected}", found)
        if not all(bool(as_real(values).isfinite().all()) for values in (*parts_of(chunk[0]).values(), chunk[1])):
            raise InvalidParameter("data", "finite everywhere", f"NaN or infinity in records {first} to {first + len(chunk[1]) - 1}")
        add_to_digest(digest, *chunk)
        if targets.dtype == torch.int64 and targets.dim() == 1:
            labels = chunk[1]
            targets.least, targets.largest = min(targets.least, int(labels.min())), max(targets.largest, int(labels.max()))
            targets.kinds = torch.cat((targets.unique(), labels)).unique()[:AT_ONCE]
    return features, targets, digest.hexdigest()


def _chunks(loader: Loader) -> Iterator[tuple[int, tuple[Features, Tensor]]]:
    for first in range(0, len(loader), AT_ONCE):
        yield first, loader.rows(tuple(range(first, min(first + AT_ONCE, len(loader)))))
