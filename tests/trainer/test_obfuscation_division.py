"""Who is trained on, attacked and protected: nobody is in two places, and everybody can draw the division again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataSet
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.obfuscation.division import distinct_images, divide

SOUND = {
    "kind": "noisy_rotation",
    "clipping_norm": 2.0,
    "queries": 1,
    "privacy": {"unit": "image", "adjacency": "replace_one", "delta": 1e-5, "noise_multiplier": 1.0},
}
NOT_ATTACKED: dict[str, Any] = {"attacks": None, "evaluation": {"kind": "none"}}


def _spec(**changes: Any) -> Obfuscation:
    return Obfuscation.model_validate(Obfuscation.example().model_dump(mode="json", exclude_none=True) | changes)


def _data(training: int = 40, test: int = 12) -> DataSet:
    images = np.arange((training + test) * 64, dtype=np.float32).reshape(-1, 1, 8, 8)
    labels = np.arange(training + test, dtype=np.int64) % 5
    return DataSet(images[:training], labels[:training], images[training:], labels[training:], 5)


def test_without_a_guarantee_the_held_out_records_are_the_victims() -> None:
    data, division = _data(), divide(_spec(batch_size=8), _data())
    assert division.victims is not None
    assert np.array_equal(division.victims.images, data.test_features)
    assert np.array_equal(division.training.images, data.training_features)
    assert np.array_equal(division.training.labels, division.training.properties)
    assert (division.protected, division.classes, division.properties) == (None, 5, 5)


def test_nobody_is_a_victim_where_the_held_out_records_arent_public() -> None:
    division = divide(_spec(batch_size=8, **NOT_ATTACKED), _data())
    assert (division.victims, division.protected) == (None, None)


def test_the_sound_form_protects_the_held_out_and_attacks_records_set_apart() -> None:
    spec = _spec(batch_size=8, method=SOUND, evaluation={"kind": "none"}, evaluation_records=10)
    data, division = _data(), divide(spec, _data())
    assert division.victims is not None
    assert division.protected is not None
    assert np.array_equal(division.protected.images, data.test_features)
    assert (len(division.training), len(division.victims)) == (30, 10)
    firsts = np.concatenate((division.training.images[:, 0, 0, 0], division.victims.images[:, 0, 0, 0]))
    assert np.array_equal(np.sort(firsts), data.training_features[:, 0, 0, 0])
    # Labels went with their images.
    assert np.array_equal(division.victims.labels, division.victims.images[:, 0, 0, 0].astype(np.int64) // 64 % 5)
    again = divide(spec, _data())
    assert again.victims is not None
    assert np.array_equal(again.victims.images, division.victims.images)
    assert not np.array_equal(np.sort(division.victims.images[:, 0, 0, 0]), data.training_features[:10, 0, 0, 0])


def test_the_sound_form_without_attacks_trains_on_everything() -> None:
    division = divide(_spec(batch_size=8, method=SOUND, **NOT_ATTACKED), _data())
    assert division.victims is None
    assert len(division.training) == 40


def test_groups_are_the_task_and_labels_the_property() -> None:
    division = divide(_spec(batch_size=8, task_groups=[[0, 3], [4], [1, 2]]), _data())
    assert division.training.labels[:5].tolist() == [0, 2, 2, 0, 1]
    assert division.training.properties[:5].tolist() == [0, 1, 2, 3, 4]
    assert (division.classes, division.properties) == (3, 5)


def test_the_same_image_has_the_same_number() -> None:
    images = np.zeros((5, 1, 2, 2), dtype=np.float32)
    images[1] = images[3] = 1.0
    images[4, 0, 1, 1] = 1e-30
    numbers = distinct_images(images)
    assert numbers[0] == numbers[2] != numbers[4]
    assert numbers[1] == numbers[3]
    assert len(set(numbers.tolist())) == 3
    assert numbers.dtype == np.int64


def test_what_cant_be_divided_is_refused() -> None:
    spec = _spec(batch_size=8, method=SOUND, evaluation={"kind": "none"}, evaluation_records=33)
    with pytest.raises(InvalidParameter, match="batch_size must be <= the 7 records that remain for training, got 8"):
        divide(spec, _data())
    data = _data()
    complexes = DataSet(
        data.training_features.astype(np.complex64), data.training_targets, data.test_features.astype(np.complex64), data.test_targets, 5
    )
    with pytest.raises(InvalidParameter, match="data must be real images"):
        divide(_spec(), complexes)
