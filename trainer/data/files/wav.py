r"""Short recordings as WAV files, in a ZIP archive or in folders."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data.files.archives import LARGEST_FILE, zip_files
from zetadp.trainer.data.files.location import files_of, folder_of

LOUDEST = 32768.0
"""Of 16-bit samples: the format's public constant."""


def wav_sources(folder: str) -> tuple[Path, ...]:
    """The ZIP archives of the folder, or if it has none, every WAV file in it and below it."""
    return files_of(folder, "*.zip") if any(folder_of(folder).glob("*.zip")) else files_of(folder, "**/*.wav")


def wav_files(folder: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Content of each WAV file whose path in its archive or folder is wanted, by that path, in the order of the paths.

    Raises:
      InvalidParameter: a file that is too large or in two archives, or no wanted WAV file at all.
    """
    place = folder_of(folder)
    found: dict[str, bytes] = {}
    for path in wav_sources(folder):
        for name, content in _files_in(path, path.relative_to(place).as_posix(), wanted):
            if name in found:
                raise InvalidParameter(path.name, "an archive whose files are in no other archive of the folder", name)
            found[name] = content
    if not found:
        raise InvalidParameter("data.folder", "a folder with WAV files of these classes", folder)
    return dict(sorted(found.items()))


def _files_in(path: Path, name: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    if path.suffix == ".zip":
        yield from zip_files(path, lambda member: member.endswith(".wav") and wanted(member))
    elif wanted(name):
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidParameter(path.name, f"at most {LARGEST_FILE} bytes", path.stat().st_size)
        yield name, path.read_bytes()


def waveform(content: bytes, name: str, rate: int) -> NDArray[Any]:
    """Samples in [-1, 1), float64 (samples,), of one 16-bit mono WAV file.

    Raises:
      InvalidParameter: another format or sampling rate, or a file that is cut off.
    """
    try:
        with wave.open(io.BytesIO(content)) as stream:
            form = (stream.getnchannels(), stream.getsampwidth(), stream.getframerate())
            frames = stream.getnframes()
            raw = stream.readframes(frames)
    except (wave.Error, EOFError, RuntimeError) as error:  # the last where a chunk's length points outside the file
        raise InvalidParameter(name, "a WAV file of PCM samples", str(error) or "a file that is cut off") from error
    if form != (1, 2, rate):
        raise InvalidParameter(name, f"mono with 2 bytes per sample and {rate} samples per second", form)
    if not raw or len(raw) != 2 * frames:
        raise InvalidParameter(name, f"as long as its header says, {frames} samples, with at least one", len(raw) // 2)
    return np.frombuffer(raw, dtype="<i2").astype(np.float64) / LOUDEST
