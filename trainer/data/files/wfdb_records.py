r"""PhysioNet's WFDB records of format 212 with their annotations, and the headers of others. Format: physionet.org/physiotools/wag."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter

LARGEST_FILE = 2**28
NORMAL_BEAT, LEFT_BUNDLE_BRANCH_BLOCK_BEAT = 1, 2
"""Annotation codes N and L."""
_SKIP, _AUXILIARY, _MODIFIERS, _LAST_BEAT_OR_EVENT = 59, 63, (60, 61, 62), 49


@final
@dataclass(frozen=True)
class Signal:
    """One line of a header.

    Attributes:
      file: name, in the header's folder.
      form: storage format, "212" or "16" (what follows, such as a byte offset, stripped).
      gain: units of the converter per millivolt; > 0.
      baseline: the converter's value of zero volt.
      checksum: sum of all samples, modulo 2^16; None where it isn't stated.
      name: of the lead.
    """

    file: str
    form: str
    gain: float
    baseline: int
    checksum: int | None
    name: str


@final
@dataclass(frozen=True)
class Header:
    """Of a record; ``diagnoses`` are the SNOMED CT codes of a ``Dx`` comment."""

    frequency: float
    samples: int
    signals: tuple[Signal, ...]
    diagnoses: tuple[str, ...]


def read_header(path: Path) -> Header:
    """The header of a single-segment record.

    Raises:
      InvalidParameter: it isn't one.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
        first, *others = [line for line in lines if not line.startswith("#")]
        _, count, frequency, samples, *_ = first.split()
        signals = tuple(_signal(line) for line in others)
        comments = [line.lstrip("# ").split(":", 1) for line in lines if line.startswith("#") and ":" in line]
        diagnoses = next((tuple(value.replace(" ", "").split(",")) for name, value in comments if name == "Dx"), ())
        header = Header(float(frequency.split("/")[0]), int(samples), signals, diagnoses)
        announced = int(count)
    except (OSError, ValueError) as error:
        # A header's comments say who the patient is: nothing of its text is repeated.
        raise InvalidParameter(path.name, "the header of a WFDB record", f"one that can't be read ({type(error).__name__})") from error
    if len(signals) != announced or not signals or header.samples < 1:
        counts = f"{announced} signals announced, {len(signals)} described, of {header.samples} samples"
        raise InvalidParameter(path.name, "the header of a WFDB record", counts)
    return header


def _signal(line: str) -> Signal:
    fields = line.split()
    file, form, gain, *rest = fields
    if "/" in file or "\\" in file or file.startswith("."):
        raise ValueError(f"expected a signal file in the same folder, got {file}")
    zero = int(rest[1]) if len(rest) > 1 else 0
    number, _, baseline = gain.split("/")[0].partition("(")
    if not float(number) > 0.0:
        raise ValueError(f"gain {number}")
    return Signal(
        file=file,
        form=form.split("+")[0],
        gain=float(number),
        baseline=int(baseline.rstrip(")")) if baseline else zero,
        checksum=int(rest[3]) if len(rest) > 3 else None,
        name=" ".join(rest[5:]),
    )


def read_samples(header_path: Path) -> tuple[Header, NDArray[Any]]:
    """A record of format 212 with all its leads in one file: the header, and raw samples int16 (samples, signals).

    Raises:
      InvalidParameter: another format, a file of another length, or samples that don't add up to the header's checksum.
    """
    header = read_header(header_path)
    leads = len(header.signals)
    path = header_path.with_suffix(".dat")
    if {(signal.file, signal.form) for signal in header.signals} != {(path.name, "212")}:
        raise InvalidParameter(
            header_path.name, f"the header of a record whose leads are all in {path.name}, format 212", header.signals[0].form
        )
    raw = np.frombuffer(_bytes(path), dtype=np.uint8)
    if len(raw) * 2 != header.samples * leads * 3:
        raise InvalidParameter(path.name, f"{header.samples} samples of {leads} leads, 3 bytes for two samples", len(raw))
    low, middle, high = raw.reshape(-1, 3).astype(np.int16).T
    pairs = np.stack((low | ((middle & 0x0F) << 8), high | ((middle & 0xF0) << 4)), axis=1)
    samples = ((pairs + 2048) % 4096 - 2048).reshape(header.samples, leads)
    for number, signal in enumerate(header.signals):
        if signal.checksum is not None and (int(samples[:, number].sum(dtype=np.int64)) - signal.checksum) % 65536:
            raise InvalidParameter(path.name, "samples that add up to the header's checksum", signal.name)
    return header, samples


def read_annotations(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sample numbers and codes of a record's annotations in MIT format, int64 (annotations,) each.

    Raises:
      InvalidParameter: the file is cut off.
    """
    raw = _bytes(path)
    if len(raw) % 2:
        raise InvalidParameter(path.name, "whole words of two bytes", len(raw))
    words = np.frombuffer(raw, dtype="<u2").tolist()
    times: list[int] = []
    codes: list[int] = []
    time, place = 0, 0
    while place < len(words) and words[place]:
        code, value = words[place] >> 10, words[place] & 0x3FF
        place += 1
        if code == _SKIP:
            if place + 2 > len(words):
                break
            # A long interval: 32 bits, the high word first.
            interval = words[place] << 16 | words[place + 1]
            time += interval - 2**32 if interval >= 2**31 else interval
            place += 2
        elif code == _AUXILIARY:
            place += (value + 1) // 2
        elif code <= _LAST_BEAT_OR_EVENT:
            time += value
            times.append(time)
            codes.append(code)
        elif code not in _MODIFIERS:
            raise InvalidParameter(path.name, "annotation codes of the MIT format", code)
    if place >= len(words) or place + 1 != len(words):
        raise InvalidParameter(path.name, "annotations up to a zero word at the end", f"{len(words)} words, read {place}")
    return np.array(times, dtype=np.int64), np.array(codes, dtype=np.int64)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidParameter(path.name, f"at most {LARGEST_FILE} bytes", path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        raise InvalidParameter(path.name, "a file that can be read", str(error)) from error
