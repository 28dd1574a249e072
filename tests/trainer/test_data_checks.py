r"""Arrays that would spoil a run or its guarantee are refused before it starts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSet, check


def _good() -> DataSet:
    features = np.ones((4, 3), dtype=np.complex64)
    labels = np.array([0, 1, 0, 1])
    return DataSet(features, labels, features[:2], labels[:2], 2, np.array([0, 0, 1, 1]))


def _with(value: complex) -> np.ndarray:
    features = np.ones((4, 3), dtype=np.complex64)
    features[2, 1] = value
    return features


def test_good_arrays_pass() -> None:
    check(_good())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training_features": _with(complex(float("nan"), 0.0))}, "NaN or infinity in record 2"),
        ({"training_features": _with(complex(0.0, float("inf")))}, "NaN or infinity in record 2"),
        ({"test_features": _with(complex(0.0, float("nan")))[:3], "test_targets": np.array([0, 1, 1])}, "test features must be finite"),
        ({"training_features": np.ones((4, 3), dtype=np.complex128)}, "complex64 or float32"),
        ({"training_features": np.ones((4, 0), dtype=np.complex64)}, "at least one record of at least one number"),
        ({"test_features": np.ones((2, 4), dtype=np.complex64)}, "of the same shape and type as the training features"),
        ({"test_features": np.ones((2, 3), dtype=np.float32)}, "of the same shape and type as the training features"),
        ({"training_targets": np.array([0, 1, 0])}, "as many as the 4 features"),
        ({"training_targets": np.array([0, 1, 2, 1])}, r"in 0 \.\. 1"),
        ({"training_targets": np.array([0, 1, -1, 1])}, r"in 0 \.\. 1"),
        ({"training_targets": np.array([0.0, 1.0, 0.0, 1.0])}, "int64 of shape"),
        ({"training_targets": np.array([0, 0, 0, 0]), "test_targets": np.array([0, 0])}, r"none for classes \[1\]"),
        ({"training_users": np.array([0.0, 0.0, 1.0, 1.0])}, "training users must be int64"),
        ({"training_users": np.array([0, 0, 1])}, "training users must be int64"),
        ({"classes": None}, "complex64 of the features' shape"),
    ],
)
def test_bad_arrays_are_refused_with_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        check(dataclasses.replace(_good(), **change))


def test_images_to_reconstruct_must_be_finite() -> None:
    features = np.ones((4, 3), dtype=np.complex64)
    with pytest.raises(InvalidParameter, match="training images must be finite"):
        check(DataSet(features, _with(complex(float("nan"), 0.0)), features, features, None))
