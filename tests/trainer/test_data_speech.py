r"""Spoken words from small WAV files in archives and folders, and what is refused of bad ones."""

from __future__ import annotations

import io
import wave
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import ROOT_VARIABLE, SpeechCommands, SpokenDigits, facts_of
from zetadp.trainer.data.spectra import log_mel, mel_filters, spectrogram

WORDS = ("yes", "no")
SPEAKERS = ("0a1b2c3d", "1a1b2c3d", "2a1b2c3d", "3a1b2c3d")


def _wav(samples: np.ndarray, rate: int = 16000, channels: int = 1, width: int = 2) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()


def _noise(seed: int, count: int = 300) -> np.ndarray:
    return np.random.default_rng(seed).integers(-20000, 20000, count)


def _files() -> dict[str, bytes]:
    names = [f"{word}/{speaker}_nohash_{number}.wav" for word in WORDS for speaker in SPEAKERS for number in range(2)]
    return {name: _wav(_noise(seed)) for seed, name in enumerate(names)}


def _spec(**fields: Any) -> SpeechCommands:
    return SpeechCommands.model_validate(
        {"folder": "set", "words": list(WORDS), "split": "speakers", "split_seed": 3, "test_fraction": 0.25, **fields}
    )


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


@pytest.fixture
def folder(root: Path) -> Path:
    for name, content in _files().items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)
    return root


def test_archive_and_folders_give_the_same_records(root: Path) -> None:
    with zipfile.ZipFile(root / "some.zip", "w") as archive:
        for name, content in _files().items():
            archive.writestr(name, content)
        archive.writestr("LICENSE.txt", "text")
    from_archive = _spec().read()
    (root / "some.zip").unlink()
    for name, content in _files().items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)
    from_folders = _spec().read()
    assert np.array_equal(from_archive.training_features, from_folders.training_features)
    assert np.array_equal(from_archive.training_targets, from_folders.training_targets)


def test_record_is_the_spectrogram_of_the_padded_waveform(folder: Path) -> None:
    data = _spec(split="recordings").read()
    features = np.concatenate((data.training_features, data.test_features))
    assert features.shape == (16, 1, 124, 129)
    padded = np.concatenate((_noise(0) / 32768.0, np.zeros(15700)))
    expected = spectrogram(padded, 255, 128) / 16.0
    # One rounding to float32 more than the expectation has.
    assert np.linalg.norm(features[:, 0] - expected, axis=(1, 2)).min() < 1e-6 * np.linalg.norm(expected)


def test_scaled_record_has_unit_power(folder: Path) -> None:
    features = _spec(scaling="record").read().training_features
    assert (np.abs(features) ** 2).mean(axis=(1, 2, 3)) == pytest.approx(np.ones(len(features)), rel=1e-5)


def test_a_log_mel_record_is_that_of_its_spectrogram_every_sixteen_milliseconds(folder: Path) -> None:
    spectrograms = _spec().read().training_features
    spec = _spec(form="log_mel")
    features = spec.read().training_features
    assert (features.dtype, features.shape[1:]) == (np.float32, (1, 62, 32))
    assert np.array_equal(features, log_mel(spectrograms, mel_filters(32, 129, 16000), 2))
    assert "32 mel bands every 16 ms" in spec.describe()


def test_digits_at_half_the_rate_have_mel_frames_of_the_same_length(root: Path) -> None:
    for digit in range(10):
        for take in (0, 5):
            (root / f"{digit}_jackson_{take}.wav").write_bytes(_wav(_noise(digit + take), rate=8000))
    assert SpokenDigits(folder="set", split="takes", form="log_mel").read().training_features.shape == (10, 1, 61, 32)


def test_the_form_of_most_records_is_left_out_of_json() -> None:
    # A description of a data set that was made before there were others keeps its digest.
    assert "form" not in _spec().model_dump()
    assert _spec(form="log_mel").model_dump()["form"] == "log_mel"


def test_users_are_speakers_and_test_speakers_are_others(folder: Path) -> None:
    spec = _spec()
    data = spec.read()
    facts = facts_of(spec, data)
    assert (facts.users, facts.user_unit, facts.largest_user, facts.test_records) == (3, "speaker", 4, 4)


def test_a_share_of_the_recordings_is_used_and_each_is_drawn_by_itself(folder: Path) -> None:
    def used() -> set[bytes]:
        data = _spec(split="recordings", share=0.6).read()
        return {record.tobytes() for side in (data.training_features, data.test_features) for record in side}

    before = used()
    whole = _spec(split="recordings").read()
    assert 0 < len(before) < len(whole.training_features) + len(whole.test_features)
    gone = next(path for path in sorted(folder.rglob("*.wav")))
    gone.unlink()
    assert len(before - used()) <= 1
    assert not used() - before


def test_folders_of_other_words_are_left_out_whatever_they_hold(folder: Path) -> None:
    before = _spec().read().training_features
    (folder / "_background_noise_").mkdir()
    (folder / "_background_noise_" / "pink_noise.wav").write_bytes(b"anything")
    assert np.array_equal(_spec().read().training_features, before)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_wav(_noise(0), rate=8000), "mono with 2 bytes per sample and 16000 samples per second"),
        (_wav(_noise(0), channels=2), "mono with 2 bytes per sample"),
        (_wav(_noise(0), width=1), "mono with 2 bytes per sample"),
        (_wav(_noise(0))[:-10], "as long as its header says"),
        (_wav(np.zeros(0)), "at least one"),
        (_wav(_noise(0)).replace(b"data", b"junk", 1), "a WAV file of PCM samples"),
        (_wav(_noise(0)).replace(b"data", b"junk", 1)[:40] + b"\xff\xff\xff\x7f", "a WAV file of PCM samples"),
        (b"RIFF", "a WAV file of PCM samples"),
        (b"", "a WAV file of PCM samples"),
    ],
)
def test_broken_recordings_are_refused(folder: Path, content: bytes, message: str) -> None:
    (folder / "yes" / f"{SPEAKERS[0]}_nohash_0.wav").write_bytes(content)
    with pytest.raises(InvalidParameter, match=message):
        _spec().read()


def test_recording_of_nobody_is_refused(folder: Path) -> None:
    (folder / "yes" / "someone.wav").write_bytes(_wav(_noise(0)))
    with pytest.raises(InvalidParameter, match=r"named <speaker>_nohash_<number>.wav"):
        _spec().read()


def test_word_without_recordings_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidParameter, match="words of which the folder has recordings"):
        _spec(words=["yes", "up"]).read()


def test_repeated_words_are_refused() -> None:
    with pytest.raises(ValidationError, match="words must be different from each other"):
        _spec(words=["yes", "yes"])


def test_archive_that_is_cut_off_is_refused(root: Path) -> None:
    with zipfile.ZipFile(root / "some.zip", "w") as archive:
        archive.writestr("yes/0a1b2c3d_nohash_0.wav", _wav(_noise(0)))
    (root / "some.zip").write_bytes((root / "some.zip").read_bytes()[:-30])
    with pytest.raises(InvalidParameter, match="a whole ZIP archive"):
        _spec().read()


def test_folder_without_recordings_is_refused(root: Path) -> None:
    with pytest.raises(InvalidParameter, match="a folder with files"):
        _spec().read()


@pytest.fixture
def digits(root: Path) -> Path:
    for digit in range(10):
        for speaker in ("george", "lucas"):
            for take in (0, 7):
                (root / f"{digit}_{speaker}_{take}.wav").write_bytes(_wav(_noise(digit), rate=8000))
    return root


def test_early_takes_of_digits_are_the_test(digits: Path) -> None:
    spec = SpokenDigits(folder="set", split="takes")
    facts = facts_of(spec, spec.read())
    assert (facts.training_records, facts.test_records, facts.shape, facts.users) == (20, 20, (1, 61, 129), 2)


def test_digits_by_speaker_have_another_speaker_in_the_test(digits: Path) -> None:
    spec = SpokenDigits(folder="set", split="speakers", split_seed=3, test_fraction=0.5)
    facts = facts_of(spec, spec.read())
    assert (facts.training_records, facts.test_records, facts.users) == (20, 20, 1)


def test_digits_without_early_takes_have_no_test(root: Path) -> None:
    (root / "1_george_7.wav").write_bytes(_wav(_noise(1), rate=8000))
    with pytest.raises(InvalidParameter, match="takes 0 to 4 and later ones"):
        SpokenDigits(folder="set", split="takes").read()


def test_digit_of_nobody_is_refused(digits: Path) -> None:
    (digits / "1_7.wav").write_bytes(_wav(_noise(1), rate=8000))
    with pytest.raises(InvalidParameter, match=r"named <digit>_<speaker>_<take>.wav"):
        SpokenDigits(folder="set", split="takes").read()
