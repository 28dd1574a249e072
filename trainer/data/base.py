r"""What every data set is: arrays in memory, and the public facts that a spec, a plan and a certificate need. Free of torch."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, final

from numpy.typing import NDArray
from pydantic import Field

from mechanisms.base import Count, PrivacyUnit, Value


@final
class DataSetFacts(Value):
    """What is known of a data set before training, and treated as public.

    Attributes:
      training_records: rows trained on; the privacy guarantee is about these.
      test_records: rows held out; the guarantee doesn't cover them.
      features: complex numbers a record has.
      classes: labels lie in 0 .. classes - 1.
      unit: what one row is; a guarantee may name no other unit.
      sha256: of the exact training arrays (``array_digest``), 64 hexadecimal digits.
      description: where the data came from and what was done to it.
    """

    training_records: Count
    test_records: Count
    features: Count
    classes: Count
    unit: PrivacyUnit
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    description: str


@final
@dataclass(frozen=True)
class DataSet:
    """Features complex64 of shape (records, features), labels int64 of shape (records,)."""

    training_features: NDArray[Any]
    training_labels: NDArray[Any]
    test_features: NDArray[Any]
    test_labels: NDArray[Any]
    classes: int


class DataRecipe(Value, ABC):
    """How to get a data set: its source, what is done to it, and its public train/test split."""

    UNIT: ClassVar[str]
    DESCRIPTION: ClassVar[str]

    @abstractmethod
    def read(self) -> DataSet:
        """The arrays; the same spec gives the same arrays, to the bit."""


def array_digest(*arrays: NDArray[Any]) -> str:
    """SHA-256 over type, shape and little-endian bytes of each array in turn."""
    digest = hashlib.sha256()
    for array in arrays:
        fixed = array.astype(array.dtype.newbyteorder("<"), order="C")
        digest.update(f"{fixed.dtype.str} {fixed.shape}\n".encode())
        digest.update(fixed.tobytes())
    return digest.hexdigest()
