r"""The process that reads uploaded files: bounded by the kernel, and gone with whoever started it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from tests.app.jobs_harness import settings, wait_until
from tests.app.uploads_harness import definition, files_below, npz
from zetadp.app.kit.disk import StorageFull
from zetadp.app.kit.settings import Settings
from zetadp.app.uploads import reader as reading
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.parser import ReadableFile
from zetadp.app.uploads.reader import Reader
from zetadp.mechanisms.errors import InvalidParameter

UPLOAD = "0" * 32


@pytest.fixture
def of(tmp_path: Path) -> Settings:
    return settings(tmp_path / "data")


@pytest.fixture
def reader(of: Settings) -> Generator[Reader]:
    made = Reader(of)
    yield made
    made.close()


def limited(monkeypatch: pytest.MonkeyPatch, seconds: int = 60, memory: int = 2**32, file_size: int = 2**20) -> None:
    monkeypatch.setattr(Reader, "_limits", lambda _reader, _room: (seconds, memory, file_size))


def test_a_file_is_read_and_a_data_set_made_in_a_process_of_its_own(reader: Reader, of: Settings, tmp_path: Path) -> None:
    path, folder = tmp_path / "upload", tmp_path / "made"
    path.write_bytes(npz())
    folder.mkdir()
    assert [array.name for array in reader.inspect(path, "npz").arrays] == ["x", "y", "patient"]
    asked = DataSetDefinition.model_validate_json(DataSetDefinition.model_validate(definition(UPLOAD)).model_dump_json())
    made = reader.make(asked, {UPLOAD: ReadableFile(path=path, format="npz")}, folder, 10_000)
    assert (made.facts.training_records, made.facts.test_records, made.rebuilds_itself) == (50, 10, False)
    assert {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()} == dict.fromkeys(
        ("training_features.npy", "training_targets.npy", "test_features.npy", "test_targets.npy"), 0o600
    )
    assert files_below(of.uploads_dir) == []


def test_a_pickle_in_disguise_is_refused_in_words(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(InvalidParameter, match="format must be the format of the file's content"):
        reader.inspect(path, "npz")


def test_what_needs_more_memory_than_allowed_is_refused(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = tmp_path / "upload", tmp_path / "made"
    path.write_bytes(npz(x=np.zeros((2**20, 8)), y=np.arange(2**20) % 2))
    folder.mkdir()
    # Less than the process has already: whatever it asks the system for is refused.
    limited(monkeypatch, memory=2**24)
    asked = DataSetDefinition.model_validate(definition(UPLOAD, numbers="real"))
    with pytest.raises(InvalidParameter, match="bytes of memory, got 'more'"):
        reader.make(asked, {UPLOAD: ReadableFile(path=path, format="npz")}, folder, 10_000)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_what_takes_too_long_is_ended(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "upload"
    path.write_text("a,b,c,d\n" + "1,2,3,4\n" * 6_000_000)
    limited(monkeypatch, seconds=1)
    with pytest.raises(InvalidParameter, match="s of processor time"):
        reader.inspect(path, "csv")


@pytest.mark.slow
def test_a_data_set_larger_than_its_room_is_refused(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = tmp_path / "upload", tmp_path / "made"
    path.write_bytes(npz())
    folder.mkdir()
    limited(monkeypatch, file_size=1000)
    with pytest.raises(StorageFull):
        reader.make(DataSetDefinition.model_validate(definition(UPLOAD)), {UPLOAD: ReadableFile(path=path, format="npz")}, folder, 10_000)


@pytest.mark.slow
def test_a_service_that_ends_waits_for_no_reading_process(reader: Reader, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_text("a,b\n" + "1,2\n" * 10_000_000)
    ended: list[InvalidParameter] = []

    def read() -> None:
        try:
            reader.inspect(path, "csv")
        except InvalidParameter as error:
            ended.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: bool(reader._running))
    reader.close()
    thread.join()
    assert len(ended) == 1


def test_a_process_that_a_file_brings_down_is_a_refusal(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CALM", {"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"})
    path = tmp_path / "upload"
    path.write_bytes(npz())
    with pytest.raises(InvalidParameter, match="a file that crashed the process reading it"):
        reader.inspect(path, "npz")
