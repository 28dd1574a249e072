r"""Spoken words from their complex or log-mel spectrogram: Google's Speech Commands and the Free Spoken Digit Dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, model_validator

from zetadp.mechanisms.base import OpenProbability
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.base import DataRecipe, DataSet, SplitRecipe, SplitRule
from zetadp.trainer.data.files.location import Folder
from zetadp.trainer.data.files.wav import wav_files, wav_sources, waveform
from zetadp.trainer.data.spectra import fixed_length, log_mel, mel_filters, spectrogram, unit_power
from zetadp.trainer.data.splits import Keys, SplitSeed, is_chosen, name_keys, sides

FRAME_LENGTH, FRAME_STEP = 255, 128
"""Of the short-time Fourier transform (zeta-DP paper, A.6.3)."""
FRAME_NORM = 16.0
"""sqrt(256), of the transform's length: the public constant that makes each frame's transform unitary."""
Word = Annotated[str, StringConstraints(strict=True, pattern="^[a-z]{1,20}$")]
Scaling = Literal["unitary", "record"]
"""Divided by 16, which makes each frame's transform unitary; or each record by its own root mean square."""
Form = Literal["complex", "log_mel"]
"""Complex numbers, or real ones: the power in ``BANDS`` bands of the mel scale, as ``spectra.log_mel`` says."""
BANDS = 32
MEL_RATE = 8000
"""Samples a second at which one frame of the transform is a frame of the log-mel spectrogram, every 16 ms; at twice as many, two are."""
_DRAWN = "recordings that are used"
TEN_WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")


def _is_complex(form: object) -> bool:
    """Whether it is the form of most records, which JSON leaves out."""
    return form == "complex"


class _Recording(NamedTuple):
    """One WAV file: its path, which class it is, who speaks, and which take it is."""

    name: str
    label: int
    speaker: str
    take: int


def _word(name: str) -> str:
    """The folder that a recording lies in."""
    return ("", *name.split("/"))[-2]


def _features(recordings: list[_Recording], files: dict[str, bytes], rate: int, scaling: Scaling, form: Form) -> NDArray[Any]:
    """Spectrograms (records, 1, frames, bins or bands) of recordings trimmed or padded to one second: complex64, or float32."""
    frames, bins = (rate - FRAME_LENGTH) // FRAME_STEP + 1, int(FRAME_NORM**2) // 2 + 1
    features = np.empty((len(recordings), 1, frames, bins), dtype=np.complex64)
    for number, recording in enumerate(recordings):
        signal = fixed_length(waveform(files[recording.name], recording.name, rate), rate)
        features[number, 0] = spectrogram(signal, FRAME_LENGTH, FRAME_STEP) / np.float32(FRAME_NORM)
    scaled = unit_power(features) if scaling == "record" else features
    return log_mel(scaled, mel_filters(BANDS, bins, rate), rate // MEL_RATE) if form == "log_mel" else scaled


def _in_words(scaling: Scaling, form: Form) -> str:
    scaled = "divided by 16" if scaling == "unitary" else "each divided by its own root mean square"
    bands = f", as logarithms of the power in {BANDS} mel bands every 16 ms, less each band's own mean over time"
    return scaled if form == "complex" else scaled + bands


def _data_set(features: NDArray[Any], recordings: list[_Recording], classes: int, split: tuple[NDArray[Any], NDArray[Any]]) -> DataSet:
    labels = np.array([recording.label for recording in recordings], dtype=np.int64)
    training, test = split
    return DataSet(features[training], labels[training], features[test], labels[test], classes, _speakers(recordings)[training])


def _names(recordings: list[_Recording]) -> Keys:
    return name_keys(np.array([recording.name for recording in recordings]))


def _speakers(recordings: list[_Recording]) -> Keys:
    return name_keys(np.array([recording.speaker for recording in recordings]))


@final
class SpeechCommands(SplitRecipe):
    r"""Speech Commands as TensorFlow's short-time Fourier transform, frames of 255 at steps of 128: complex (1, 124, 129).

    As a log-mel spectrogram: real (1, 62, 32).

    Attributes:
      folder: with ZIP archives of ``<word>/<speaker>_nohash_<n>.wav``, or with the word folders themselves (Google's layout).
      words: the classes, in the order of their labels; folders of other words are left out.
      share: of the recordings, each drawn separately by ``split_seed``; None for all. The paper has 2000 of each word.
      scaling: of the spectrogram; see ``Scaling``.
      form: of the records; see ``Form``.
      split: "speakers" has other people in the test; "recordings" draws over recordings, as the paper seems to.
      (others): as in ``SplitRecipe``, of speakers or of recordings; a recording is identified by its name.
    """

    UNIT: ClassVar[str] = "recording"
    USER_UNIT: ClassVar[str | None] = "speaker"
    DESCRIPTION: ClassVar[str] = (
        "Speech Commands (Warden 2018), recordings of one second at 16 kHz, trimmed or padded to 16000 samples, as complex short-time "
        "Fourier transform (Hann window of 255, step 128, 256 bins)"
    )
    RATE: ClassVar[int] = 16000

    kind: Literal["speech_commands"] = "speech_commands"
    folder: Folder
    words: Annotated[tuple[Word, ...], Field(min_length=2, max_length=100)] = TEN_WORDS
    share: OpenProbability | None = None
    scaling: Scaling = "unitary"
    form: Form = Field(default="complex", exclude_if=_is_complex)
    split: Literal["speakers", "recordings"]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.words)) != len(self.words):
            raise InvalidParameter("words", "different from each other", self.words)
        return self

    def sources(self) -> tuple[Path, ...]:
        return wav_sources(self.folder)

    def split_rule(self) -> SplitRule:
        return "users" if self.split == "speakers" else self.split_by

    def describe(self) -> str:
        apart = "Training and test speakers are different people." if self.split == "speakers" else "A speaker may be on both sides."
        of_words = f"{self.DESCRIPTION}, {_in_words(self.scaling, self.form)}; words: {', '.join(self.words)}."
        return f"{of_words} {apart} One record is one recording; a speaker has several."

    def arrays(self) -> DataSet:
        files = wav_files(self.folder, lambda name: _word(name) in self.words)
        recordings = list(self._kept(list(self._recordings(files))))
        features = _features(recordings, files, self.RATE, self.scaling, self.form)
        if self.split == "speakers":
            split = sides(_speakers(recordings), self.split_seed, self.test_fraction)
        else:
            split = self.sides(_names(recordings))
        return _data_set(features, recordings, len(self.words), split)

    def _recordings(self, files: dict[str, bytes]) -> Iterator[_Recording]:
        labels = {word: label for label, word in enumerate(self.words)}
        for name in files:
            file = name.rsplit("/", 1)[-1]
            found = re.fullmatch(r"([0-9a-f]{6,40})_nohash_(\d{1,4})\.wav", file)
            if found is None:
                # The name says whose recording it is: without it no guarantee could name speakers.
                raise InvalidParameter(name, "named <speaker>_nohash_<number>.wav", file)
            yield _Recording(name, labels[_word(name)], found[1], int(found[2]))

    def _kept(self, recordings: list[_Recording]) -> Iterator[_Recording]:
        for label, word in enumerate(self.words):
            mine = [recording for recording in recordings if recording.label == label]
            if not mine:
                raise InvalidParameter("words", "words of which the folder has recordings", word)
            # Not a fixed number of each word: one more recording would displace another one.
            kept = np.ones(len(mine), bool) if self.share is None else is_chosen(_names(mine), self.share, self.split_seed, _DRAWN)
            yield from (mine[number] for number in np.flatnonzero(kept))


@final
class SpokenDigits(DataRecipe):
    r"""The Free Spoken Digit Dataset as short-time Fourier transform, frames of 255 at steps of 128: complex (1, 61, 129).

    As a log-mel spectrogram: real (1, 61, 32).

    Attributes:
      folder: with ZIP archives of ``<digit>_<speaker>_<take>.wav``, or with the files themselves.
      scaling: of the spectrogram; see ``Scaling``.
      form: of the records; see ``Form``.
      split: "takes" is the maintainers': takes 0 to 4 are the test, of the same speakers; "speakers" has other people in the test.
      split_seed: of the split by speakers.
      test_fraction: of the speakers.
    """

    UNIT: ClassVar[str] = "recording"
    USER_UNIT: ClassVar[str | None] = "speaker"
    DESCRIPTION: ClassVar[str] = (
        "Free Spoken Digit Dataset (Jackson et al.), recordings at 8 kHz, trimmed or padded to 8000 samples, as complex short-time Fourier "
        "transform (Hann window of 255, step 128, 256 bins)"
    )
    RATE: ClassVar[int] = 8000

    kind: Literal["spoken_digits"] = "spoken_digits"
    folder: Folder
    scaling: Scaling = "unitary"
    form: Form = Field(default="complex", exclude_if=_is_complex)
    split: Literal["takes", "speakers"]
    split_seed: SplitSeed = 0
    test_fraction: OpenProbability = 0.2

    def sources(self) -> tuple[Path, ...]:
        return wav_sources(self.folder)

    def split_rule(self) -> SplitRule:
        return "users" if self.split == "speakers" else "given"

    def describe(self) -> str:
        apart = (
            "Training and test speakers are different people."
            if self.split == "speakers"
            else "Takes 0 to 4 are the test set, from the same speakers."
        )
        return f"{self.DESCRIPTION}, {_in_words(self.scaling, self.form)}. {apart} One record is one recording; a speaker has many."

    def arrays(self) -> DataSet:
        files = wav_files(self.folder, lambda _: True)
        recordings = [self._recording(name) for name in files]
        features = _features(recordings, files, self.RATE, self.scaling, self.form)
        if self.split == "speakers":
            split = sides(_speakers(recordings), self.split_seed, self.test_fraction)
        else:
            early = np.array([recording.take < 5 for recording in recordings])
            split = np.flatnonzero(~early), np.flatnonzero(early)
            if not early.any() or early.all():
                raise InvalidParameter("data.folder", "a folder with takes 0 to 4 and later ones", self.folder)
        return _data_set(features, recordings, 10, split)

    @staticmethod
    def _recording(name: str) -> _Recording:
        found = re.fullmatch(r"(\d)_([a-z]{1,40})_(\d{1,4})\.wav", name.rsplit("/", 1)[-1])
        if found is None:
            raise InvalidParameter(name, "named <digit>_<speaker>_<take>.wav", name)
        return _Recording(name, int(found[1]), found[2], int(found[3]))
