r"""The parts of every data set: arrays in memory, and the public facts that a spec, a plan and a certificate need. Without torch."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from zetadp.mechanisms.base import Count, OpenProbability, PrivacyUnit, Tally, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.location import ROOT_VARIABLE, folder_of
from zetadp.trainer.data.files.stored import DataSetOnDisk, StoredRecords
from zetadp.trainer.data.splits import Keys, SplitBy, SplitSeed, by_record

SplitRule = Literal["given", "users", "content", "position"]
"""What decides a record's side: the original split; its user's name; its own bytes; its place."""
Part = tuple[np.dtype[Any], tuple[int, ...], Iterable[NDArray[Any]]]
"""An array's type, shape and pieces."""


@final
class DataSetFacts(Value):
    """Facts known about a data set before training, and treated as public.

    Attributes:
      training_records: rows trained on; the privacy guarantee is about these.
      test_records: rows held out; the guarantee doesn't cover them.
      shape: of one record, channels first where there are channels: (features,), (channels, length) or (channels, height, width).
      is_complex: features are complex64; otherwise float32.
      task: classification of labels in 0 .. classes - 1, or reconstruction of an array of the features' shape and type: a complex image
        from a degraded one, or a row of real numbers in [0, 1]; or another, where the caller brings module and loss.
      classes: of a classification; None for a reconstruction.
      unit: what one row is.
      user_unit: who may own several rows, if the data say so; a guarantee may name only ``unit`` or this.
      users: the number of users in the training rows.
      largest_user: the training rows of the user with the most rows.
      split: what decided which records are held out.
      sha256: of the exact training arrays, users included (``array_digest``), 64 hexadecimal digits.
      description: where the data came from and what was done to it.
    """

    training_records: Count
    test_records: Tally
    shape: tuple[Count, ...]
    is_complex: bool
    task: Literal["classification", "reconstruction", "other"]
    classes: Count | None
    unit: PrivacyUnit
    user_unit: PrivacyUnit | None = None
    users: Count | None = None
    largest_user: Count | None = None
    split: SplitRule = "given"
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    description: str


@final
class NamedDataSet(Value):
    r"""How a certificate names a data set that somebody made, to distinguish it from others.

    Attributes:
      id: of the data set.
      manifest_sha256: of its manifest, which its owner can show. The manifest holds the digests of the data and 256 random bits: a bare
        digest would let anyone with a guess of all the data check it.
      words: what its owner says it is; nobody checked that.
    """

    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    manifest_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    words: Annotated[str, Field(min_length=1, max_length=1000)]


@final
@dataclass(frozen=True)
class DataSet:
    r"""Records in memory, split by the public rule.

    Attributes:
      training_features: complex64 or float32, (records, *shape).
      training_targets: int64 (records,) labels, or arrays to reconstruct, of the features' shape and type.
      test_features: as the training features, other records.
      test_targets: as the training targets.
      classes: labels lie in 0 .. classes - 1; None for reconstruction.
      training_users: int64 (records,), the key of whose record each is (``splits.name_keys``); None if unknown.
    """

    training_features: NDArray[Any]
    training_targets: NDArray[Any]
    test_features: NDArray[Any]
    test_targets: NDArray[Any]
    classes: int | None
    training_users: Keys | None = None


class DataRecipe(Value, ABC):
    """How to get a data set: its source, its preprocessing, and its public train/test split.

    Preprocessing uses public constants or one record alone, never a statistic of several records (errata C12): that would be a
    release that no guarantee counts.
    """

    UNIT: ClassVar[str]
    USER_UNIT: ClassVar[str | None] = None
    DESCRIPTION: ClassVar[str]

    @abstractmethod
    def arrays(self) -> DataSet:
        """The arrays as they come out of the source; ``read`` checks them."""

    def sources(self) -> tuple[Path, ...]:
        """Every file that ``arrays`` reads; none for data from a seed or a library."""
        return ()

    def check_folder(self) -> None:
        """Raises InvalidParameter if it is read from a folder that doesn't exist here. Nothing is read.

        A process that wasn't given the root of all folders knows nothing about them, and leaves the check to one that was.
        """
        folder = dict(self).get("folder")
        if isinstance(folder, str) and os.environ.get(ROOT_VARIABLE):
            folder_of(folder)

    def on_disk(self) -> DataSetOnDisk | None:
        r"""The records of ``read``, to the bit, read from their files by number; None where they can't be.

        Sizes come from the files' headers and names; no record is read.

        Raises:
          InvalidParameter: a file is missing or malformed.
        """
        return None

    def errata(self) -> tuple[str, ...]:
        """Errata rows that concern a guarantee for one record of it."""
        return ()

    def describe(self) -> str:
        """Where the data came from and what was done to it, for a certificate."""
        return self.DESCRIPTION

    def known_facts(self) -> DataSetFacts | None:
        """Facts found when the data set was made; None if its files have to be read for them."""
        return None

    def split_rule(self) -> SplitRule:
        """The rule that decides which records are held out."""
        return "given"

    def named(self) -> NamedDataSet | None:
        """The name that a certificate gives it if somebody made it; None if the recipe itself says everything about it."""
        return None

    @final
    def read(self) -> DataSet:
        """The arrays; the same spec and files give the same arrays, to the bit.

        Raises:
          InvalidParameter: a file is missing or malformed, or the arrays can't be trained on.
        """
        data = self.arrays()
        check(data)
        return data


class SplitRecipe(DataRecipe, ABC):
    r"""A data set whose held-out records are chosen by a public seed, each independently.

    Attributes:
      split_seed: public; which side a record is on follows from it and from the record alone.
      test_fraction: expected fraction of the records that are held out; in (0, 1).
      split_by: whether a record's side follows from its bytes, so that one more moves nobody else, or from its place, so that another
        in its place is on the same side. A guarantee under add_remove needs the first, one under replace_one the second.
    """

    split_seed: SplitSeed
    test_fraction: OpenProbability
    split_by: SplitBy = "content"

    def split_rule(self) -> SplitRule:
        return self.split_by

    def sides(self, keys: Keys) -> tuple[NDArray[Any], NDArray[Any]]:
        """Indices of the training records and of the held-out ones, by the records' keys."""
        return by_record(self.split_by, keys, self.split_seed, self.test_fraction)


def check(data: DataSet) -> None:
    """Raises InvalidParameter that names the first thing that would break a training run or its guarantee."""
    sides = (("training", data.training_features, data.training_targets), ("test", data.test_features, data.test_targets))
    for side, features, targets in sides:
        check_features(side, features)
        if features.shape[1:] != data.training_features.shape[1:] or features.dtype != data.training_features.dtype:
            raise InvalidParameter(
                f"{side} features", "of the same shape and type as the training features", (features.dtype.name, features.shape)
            )
        if len(targets) != len(features):
            raise InvalidParameter(f"{side} targets", f"as many as the {len(features)} features", len(targets))
        if data.classes is None:
            check_references(side, features, targets)
        else:
            _check_labels(side, targets, data.classes)
    if data.classes is not None:
        counts = sum(np.bincount(labels, minlength=data.classes) for labels in (data.training_targets, data.test_targets))
        if not np.all(counts):
            raise InvalidParameter(
                "labels", "such that every class has at least one record", f"none for classes {np.flatnonzero(counts == 0).tolist()}"
            )
    if data.training_users is not None:
        _check_users(data.training_users, len(data.training_features))


def check_features(side: str, features: NDArray[Any], first: int = 0) -> None:
    """Raises InvalidParameter if these features, of records from number ``first`` on, can't be trained on."""
    if features.dtype not in (np.complex64, np.float32):
        raise InvalidParameter(f"{side} features", "complex64 or float32", features.dtype.name)
    if features.ndim < 2 or features.size == 0:
        raise InvalidParameter(f"{side} features", "at least one record of at least one number", features.shape)
    for number, record in enumerate(features, start=first):
        # Record by record: a mask of the whole array would be as large as the array.
        if not np.isfinite(record).all():
            raise InvalidParameter(f"{side} features", "finite", f"NaN or infinity in record {number}")


def _check_labels(side: str, labels: NDArray[Any], classes: int) -> None:
    if labels.dtype != np.int64 or labels.ndim != 1:
        raise InvalidParameter(f"{side} labels", "int64 of shape (records,)", (labels.dtype.name, labels.shape))
    if classes < 2 or labels.min() < 0 or labels.max() >= classes:
        raise InvalidParameter(f"{side} labels", f"in 0 .. {classes - 1}, with at least two classes", "labels outside")


def check_references(side: str, features: NDArray[Any], references: NDArray[Any]) -> None:
    """Raises InvalidParameter if these records can't be reconstructed from these features."""
    what = f"{side} {'images' if np.iscomplexobj(features) else 'rows'}"
    if references.dtype != features.dtype or references.shape != features.shape:
        raise InvalidParameter(what, f"{features.dtype.name} of the features' shape", (references.dtype.name, references.shape))
    if not np.isfinite(references).all():
        raise InvalidParameter(what, "finite", "NaN or infinity")
    if not np.iscomplexobj(references):
        for values in (features, references):
            # The losses and the local releases of rows are of this box.
            if values.min() < 0.0 or values.max() > 1.0:
                raise InvalidParameter(what, "in [0, 1], scaled by public bounds", "values outside")


def _check_users(users: NDArray[Any], records: int) -> None:
    if users.dtype != np.int64 or users.shape != (records,):
        raise InvalidParameter("training users", f"int64 of shape ({records},)", (users.dtype.name, users.shape))


def facts_of(recipe: DataRecipe, data: DataSet) -> DataSetFacts:
    """The facts that a plan and a certificate need about arrays that ``recipe`` read."""
    return facts_with(data, recipe.UNIT, recipe.USER_UNIT, recipe.split_rule(), recipe.describe())


def facts_with(data: DataSet, unit: PrivacyUnit, user_unit: PrivacyUnit | None, split: SplitRule, description: str) -> DataSetFacts:
    """Likewise for arrays from anywhere, with these names and words for them."""
    features, targets, users = data.training_features, data.training_targets, data.training_users
    digest = array_digest(features, targets) if users is None else array_digest(features, targets, users)
    return _facts(features, len(data.test_features), data.classes, users, unit, user_unit, split, digest, description)


def facts_on_disk(recipe: DataRecipe, data: DataSetOnDisk) -> DataSetFacts:
    r"""The same facts as those of the arrays, after two passes over the records.

    Raises:
      InvalidParameter: the records can't be trained on, or a file changed meanwhile.
    """
    training, users = data.training, data.training_users
    for _ in _checked("test", data.test, data):
        pass
    parts: list[Part] = [
        (training.dtype, training.shape, _checked("training", training, data)),
        (training.dtype, training.shape, (targets for _, targets in training.pieces())),
    ]
    if users is not None:
        _check_users(users, len(training))
        parts.append((users.dtype, users.shape, (users,)))
    digest, words = piecewise_digest(parts), recipe.describe()
    return _facts(training, len(data.test), data.classes, users, recipe.UNIT, recipe.USER_UNIT, recipe.split_rule(), digest, words)


def _checked(side: str, records: StoredRecords, whole: DataSetOnDisk) -> Iterator[NDArray[Any]]:
    """The features in pieces, as ``check`` checks arrays; images to be reconstructed are checked with them."""
    first, like = 0, whole.training
    for features, references in records.pieces():
        check_features(side, features, first)
        if features.shape[1:] != like.shape[1:] or features.dtype != like.dtype:
            raise InvalidParameter(
                f"{side} features", "of the same shape and type as the training features", (features.dtype.name, features.shape)
            )
        check_references(side, features, references)
        first += len(features)
        yield features


def _facts(
    features: NDArray[Any] | StoredRecords,
    test_records: int,
    classes: int | None,
    users: Keys | None,
    unit: PrivacyUnit,
    user_unit: PrivacyUnit | None,
    split: SplitRule,
    sha256: str,
    description: str,
) -> DataSetFacts:
    rows = None if users is None else np.unique(users, return_counts=True)[1]
    return DataSetFacts(
        training_records=len(features),
        test_records=test_records,
        shape=features.shape[1:],
        is_complex=features.dtype.kind == "c",
        task="reconstruction" if classes is None else "classification",
        classes=classes,
        unit=unit,
        user_unit=None if users is None else user_unit,
        users=None if rows is None else len(rows),
        largest_user=None if rows is None else int(rows.max()),
        split=split,
        sha256=sha256,
        description=description,
    )


def array_digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 over type, shape and little-endian bytes of each array in turn."""
    return piecewise_digest((array.dtype, array.shape, (array,)) for array in arrays)


def piecewise_digest(parts: Iterable[Part]) -> str:
    """``array_digest`` of arrays that are given as type, shape, and pieces that make them up along the first axis."""
    digest = hashlib.sha256()
    for dtype, shape, pieces in parts:
        digest.update(f"{dtype.newbyteorder('<').str} {shape}\n".encode())
        for piece in pieces:
            fixed = piece.astype(dtype.newbyteorder("<"), order="C", copy=False)
            digest.update(fixed.data if fixed.flags.c_contiguous else fixed.tobytes())
    return digest.hexdigest()
