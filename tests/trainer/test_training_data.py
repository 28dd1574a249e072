r"""Digits as phase pairs: disjoint, complementary, public in scale and split."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.datasets import load_digits

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DigitsPhasePairs, array_digest, data_set_facts


@pytest.fixture(scope="module")
def pairs() -> tuple[np.ndarray, np.ndarray]:
    data = DigitsPhasePairs(split_seed=3, test_fraction=0.25).read()
    return np.concatenate((data.training_features, data.test_features)), np.concatenate((data.training_targets, data.test_targets))


def _image_numbers(images: np.ndarray) -> list[int]:
    """Which source images these are; duplicates in the source would make this ambiguous, and there are none."""
    source = {image.tobytes(): number for number, image in enumerate((load_digits().data / 16.0).astype(np.float32))}
    assert len(source) == 1797
    return [source[image.tobytes()] for image in images]


def test_every_source_image_lies_in_at_most_one_record(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    features, _ = pairs
    used = _image_numbers(features.real.copy()) + _image_numbers(features.imag.copy())
    assert len(used) == len(set(used)) == 2 * len(features)


def test_label_is_the_real_image_and_the_imaginary_image_is_its_complement_to_nine(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    features, labels = pairs
    digits = load_digits().target
    real, imaginary = digits[_image_numbers(features.real.copy())], digits[_image_numbers(features.imag.copy())]
    assert (real == labels).all()
    assert (real + imaginary == 9).all()


def test_as_many_pairs_as_the_smaller_class_has_images_half_of_them_each_way(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    _, labels = pairs
    available, found = np.bincount(load_digits().target), np.bincount(labels, minlength=10)
    for digit in range(5):
        smaller = min(available[digit], available[9 - digit])
        assert (found[digit], found[9 - digit]) == (smaller // 2, smaller - smaller // 2)


def test_features_are_complex64_of_public_scale(pairs: tuple[np.ndarray, np.ndarray]) -> None:
    features, _ = pairs
    assert features.dtype == np.complex64
    assert set(np.unique(features.real * 16.0)) <= set(range(17))


def test_split_seed_changes_the_split_and_nothing_else() -> None:
    first, second = (DigitsPhasePairs(split_seed=seed, test_fraction=0.2).read() for seed in (0, 1))
    assert not np.array_equal(first.training_features, second.training_features)
    everything = [{row.tobytes() for row in np.concatenate((d.training_features, d.test_features))} for d in (first, second)]
    assert everything[0] == everything[1]


def test_same_spec_gives_the_same_digest_in_every_version() -> None:
    # Written down when the data set was made: a change of order, scale or source changes what certificates speak of.
    facts = data_set_facts(DigitsPhasePairs(split_seed=0, test_fraction=0.2))
    assert facts.sha256 == "fb34df2eb5e03df3f39243465431e38a7a8ee93e049214182c38a947b93b6fa6"
    assert (facts.training_records, facts.test_records, facts.shape, facts.classes, facts.unit) == (710, 181, (64,), 10, "record")


def test_digest_tells_type_and_shape_apart() -> None:
    zeros = np.zeros((2, 2), dtype=np.float32)
    assert len({array_digest(zeros), array_digest(zeros.reshape(4)), array_digest(zeros.view(np.int32))}) == 3


def test_description_names_what_one_record_is() -> None:
    assert "One record is one pair" in data_set_facts(DigitsPhasePairs(split_seed=0, test_fraction=0.2)).description


@pytest.mark.parametrize(("fraction", "side"), [(1e-9, "held-out"), (1.0 - 1e-9, "training")])
def test_a_fraction_that_leaves_a_side_empty_is_refused(fraction: float, side: str) -> None:
    with pytest.raises(InvalidParameter, match=f"records on both sides, got 'no {side} records, with 0'"):
        DigitsPhasePairs(split_seed=0, test_fraction=fraction).read()


@pytest.mark.parametrize("fraction", [0.0, 1.0, float("nan"), -0.1])
def test_test_fraction_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(ValidationError, match="test_fraction"):
        DigitsPhasePairs(split_seed=0, test_fraction=fraction)


@pytest.mark.slow
def test_facts_and_spec_load_without_torch() -> None:
    code = (
        "import sys; from zetadp.trainer import load_train, recipes, request; "
        "from zetadp.trainer.data import DigitsPhasePairs, data_set_facts;"
        "data_set_facts(DigitsPhasePairs(split_seed=0, test_fraction=0.2)); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
