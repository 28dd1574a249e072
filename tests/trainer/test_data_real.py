r"""The real data sets, where they are at hand: counts as their collectors state them, and shapes as the papers do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data_sets import FOLDER, LEFT_OUT, data_sets
from tests.selection import thinned
from zetadp.trainer.data import (
    Cifar10,
    DataRecipe,
    DataSet,
    EcgCpsc,
    EcgMitBih,
    Mnist,
    MriReconstruction,
    MriSequences,
    PhaseMnist,
    SpeechCommands,
    SpokenDigits,
    facts_of,
)
from zetadp.trainer.data.files.wfdb_records import read_annotations, read_samples


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Path:
    return data_sets(monkeypatch)


def _read(recipe: DataRecipe, folder: str) -> DataSet:
    if not (FOLDER / folder).is_dir():
        pytest.skip(LEFT_OUT)
    return recipe.read()


def _counts(data: DataSet) -> tuple[list[int], list[int]]:
    return np.bincount(data.training_targets).tolist(), np.bincount(data.test_targets).tolist()


def test_mnist_has_its_published_counts_and_mean() -> None:
    data = _read(Mnist(folder="mnist"), "mnist")
    assert _counts(data) == (
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    )
    assert data.training_features.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)


@pytest.mark.slow
def test_disjoint_phase_pairs_of_mnist_are_half_of_it() -> None:
    # The smaller of each two complementary classes: 5923 + 5851 + 5958 + 5918 + 5421, and 980 + 974 + 1028 + 958 + 892.
    data = _read(PhaseMnist(folder="mnist", pairing="disjoint", layout="image"), "mnist")
    assert (data.training_features.shape, len(data.test_features)) == ((29071, 1, 28, 28), 4832)


def test_cifar_has_its_counts() -> None:
    data = _read(Cifar10(folder="cifar10", numbers="real"), "cifar10")
    assert _counts(data) == (
        [396, 366, 420, 384, 422, 393, 414, 385, 407, 413],
        [103, 89, 100, 103, 90, 86, 112, 102, 106, 109],
    )


def test_beats_have_their_counts_and_patients() -> None:
    recipe = EcgMitBih(folder="ecg_mitbih", split="beats", split_seed=0, test_fraction=0.2)
    data = _read(recipe, "ecg_mitbih")
    assert np.bincount(np.concatenate((data.training_targets, data.test_targets))).tolist() == [6800, 5600]
    # 34 records with normal beats, of which 201 and 202 are one patient, and 4 with blocked ones.
    assert facts_of(recipe, data).users == 37


@pytest.mark.parametrize(
    ("record", "code", "beats"),
    thinned(
        [(100, 1, 2239), (101, 1, 1860), (103, 1, 2082), (105, 1, 2526), (109, 2, 2492), (111, 2, 2123), (207, 2, 1457), (214, 2, 2003)],
        every=3,
    ),
)
def test_original_records_have_their_beats(root: Path, record: int, code: int, beats: int) -> None:
    path = root / "ecg_mitbih" / "records" / f"{record}.hea"
    if not path.is_file():
        pytest.skip(LEFT_OUT)
    # Reading compares the header's checksums, too.
    header, samples = read_samples(path)
    times, codes = read_annotations(path.with_suffix(".atr"))
    assert samples.shape == (650000, 2)
    assert (codes == code).sum() == beats
    assert 0 <= times.min() <= times.max() < header.samples


def test_beats_of_the_archive_are_those_of_the_records(root: Path) -> None:
    path = root / "ecg_mitbih" / "records" / "109.hea"
    archive = root / "ecg_mitbih" / "beats_normal_vs_lbbb.npz"
    if not path.is_file() or not archive.is_file():
        pytest.skip(LEFT_OUT)
    with np.load(archive, allow_pickle=False) as arrays:
        mine = arrays["record"] == 109
        x, places = arrays["x"][mine], arrays["r_sample"][mine]
    _, samples = read_samples(path)
    assert all(np.array_equal(samples[place - 100 : place + 156, 0], beat) for place, beat in zip(places, x, strict=True))


def test_recordings_of_both_formats_are_two_normal_and_one_blocked() -> None:
    data = _read(EcgCpsc(folder="ecg_cpsc2018", split_seed=5, test_fraction=0.5), "ecg_cpsc2018")
    assert np.bincount(np.concatenate((data.training_targets, data.test_targets))).tolist() == [2, 1]
    assert data.training_features.shape[1:] == (512,)


@pytest.mark.slow
def test_speech_commands_are_a_hundred_each_of_ten_words_by_208_speakers() -> None:
    data = _read(SpeechCommands(folder="speech_commands", split="recordings", split_seed=0, test_fraction=0.001), "speech_commands")
    assert np.bincount(np.concatenate((data.training_targets, data.test_targets))).tolist() == [100] * 10
    assert data.training_features.shape[1:] == (1, 124, 129)
    assert data.training_users is not None
    assert len(np.unique(data.training_users)) in {207, 208}


def test_spoken_digits_hold_out_five_takes_of_25() -> None:
    recipe = SpokenDigits(folder="fsdd", split="takes")
    data = _read(recipe, "fsdd")
    assert _counts(data) == ([120] * 10, [30] * 10)
    assert facts_of(recipe, data).users == 6


def test_brain_slices_have_their_counts_and_patients() -> None:
    recipe = MriSequences(folder="mri_brain", split_seed=2, test_fraction=0.2)
    data = _read(recipe, "mri_brain")
    assert np.bincount(np.concatenate((data.training_targets, data.test_targets))).tolist() == [280, 220, 200]
    assert facts_of(recipe, data).users == 9


@pytest.mark.slow
def test_zero_filled_brain_slices_lose_little_and_not_nothing() -> None:
    data = _read(MriReconstruction(folder="mri_brain", split_seed=2, test_fraction=0.2), "mri_brain")
    features, targets = data.training_features, data.training_targets
    assert features.shape == (580, 1, 128, 128)
    error = (np.abs(features - targets) ** 2).sum() / (np.abs(targets) ** 2).sum()
    # Most of an image's power lies in the middle of its k-space.
    assert 0.02 < error < 0.3
