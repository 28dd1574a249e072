r"""Recordings of one length as WAV files in a ZIP archive; their folders name their classes and users."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.archives import LARGEST_FILE
from zetadp.trainer.data.files.wav import waveform
from zetadp.trainer.data.formats.base import FILE, MOST_UNPACKED, ArrayFacts, Contents, Format
from zetadp.trainer.data.formats.packed import archive

SAMPLES, FOLDER, SUBFOLDER = "samples", "folder", "subfolder"
MOST_FILES = 200_000


@final
class WavArchive(Format):
    r"""16-bit mono recordings of one rate and one length, in the order of their paths.

    ``samples``: float32 (files, samples) in [-1, 1). ``folder``: the number of each file's outermost folder, in the order of the names;
    ``subfolder``: likewise of the next one, where every file has one.
    """

    NAME: ClassVar[str] = "wav_zip"
    IS: ClassVar[str] = "a ZIP archive of WAV files, 16 bits, mono, all with the same rate and length"

    def inspect(self, path: Path) -> Contents:
        names, samples = self._names(path), 0
        for _, recording in self._recordings(path, names):
            samples = len(recording)
        facts = [ArrayFacts(name=SAMPLES, shape=(len(names), samples), dtype="float32")]
        facts += [ArrayFacts(name=name, shape=(len(names),), dtype="int64") for name in self._identities(names)]
        return Contents(arrays=tuple(facts))

    def arrays(self, path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        files = self._names(path)
        identities = self._identities(files)
        present = (SAMPLES, *identities)
        if set(names) - set(present):
            raise self.missing(names, present)
        found: dict[str, NDArray[Any]] = {name: identities[name] for name in names if name in identities}
        if SAMPLES in names:
            samples: NDArray[Any] | None = None
            for number, recording in self._recordings(path, files):
                samples = np.empty((len(files), len(recording)), np.float32) if samples is None else samples
                samples[number] = recording
            assert samples is not None  # an archive without files was refused
            found[SAMPLES] = samples
        return found

    def _names(self, path: Path) -> list[str]:
        with archive(path, self, MOST_FILES) as (_, members):
            for member in members:
                if not member.filename.lower().endswith(".wav"):
                    raise self.broken(f"a file {member.filename[:100]!a} in it")
                if member.file_size > LARGEST_FILE:
                    raise InvalidParameter(FILE, f"an archive of recordings of at most {LARGEST_FILE} bytes", member.file_size)
            return sorted(member.filename for member in members)

    def _recordings(self, path: Path, names: Sequence[str]) -> Iterator[tuple[int, NDArray[Any]]]:
        """(number, samples) of each file."""
        form: tuple[int, int] | None = None
        with archive(path, self, MOST_FILES) as (opened, _):
            for number, name in enumerate(names):
                content = opened.read(name)
                rate = self._rate(content) if form is None else form[0]
                recording = waveform(content, FILE, rate).astype(np.float32)
                form = form or (rate, len(recording))
                if len(recording) != form[1]:
                    # Padding to the longest would reveal how long somebody's recording is.
                    raise self.broken(f"recordings of {form[1]} and of {len(recording)} samples")
                if 4 * form[1] * len(names) > MOST_UNPACKED:
                    raise InvalidParameter(FILE, f"at most {MOST_UNPACKED} bytes unpacked", 4 * form[1] * len(names))
                yield number, recording

    def _rate(self, content: bytes) -> int:
        try:
            with wave.open(io.BytesIO(content)) as stream:
                return stream.getframerate()
        except (wave.Error, EOFError, RuntimeError) as error:
            raise self.broken(f"a file that isn't a WAV file ({type(error).__name__})") from error

    @staticmethod
    def _identities(names: Sequence[str]) -> dict[str, NDArray[Any]]:
        parents = [name.split("/")[:-1] for name in names]
        found: dict[str, NDArray[Any]] = {}
        for depth, name in enumerate((FOLDER, SUBFOLDER)):
            if all(len(folders) > depth for folders in parents):
                found[name] = np.unique([folders[depth] for folders in parents], return_inverse=True)[1].astype(np.int64)
        return found
