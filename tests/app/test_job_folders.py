r"""The fence on disk: whatever the order in which attempts come, the newest has all that was kept and no older one can write."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.selection import thinned
from zetadp.app.jobs.folders import FolderTaken, attempt_folder, take_over
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.parent import FOLDER_TAKEN

CHECKPOINT = "checkpoint.safetensors"


def test_attempt_finds_what_the_one_before_kept(tmp_path: Path) -> None:
    (take_over(tmp_path, 1) / CHECKPOINT).write_text("5")
    assert (take_over(tmp_path, 2) / CHECKPOINT).read_text() == "5"
    assert (take_over(tmp_path, 7) / CHECKPOINT).read_text() == "5"  # those between died before they had a folder


def test_superseded_attempt_cannot_write_a_checkpoint(tmp_path: Path) -> None:
    early = take_over(tmp_path, 1)
    late = take_over(tmp_path, 2)
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        write_atomically(early / CHECKPOINT, b"of the superseded attempt")
    assert list(late.iterdir()) == []


def test_checkpoint_in_the_middle_of_being_written_is_not_kept(tmp_path: Path) -> None:
    early = take_over(tmp_path, 1)
    unfinished = early / ".checkpoint.safetensors.1.tmp"
    with unfinished.open("w") as file:
        file.write("half")
        late = take_over(tmp_path, 2)
        with pytest.raises(OSError, match="Not a directory"):
            unfinished.replace(early / CHECKPOINT)
    assert not (late / CHECKPOINT).exists()


def test_attempt_that_comes_after_a_later_one_is_refused(tmp_path: Path) -> None:
    take_over(tmp_path, 1)
    (take_over(tmp_path, 3) / CHECKPOINT).write_text("5")
    with pytest.raises(FolderTaken):
        take_over(tmp_path, 2)
    assert (attempt_folder(tmp_path, 3) / CHECKPOINT).read_text() == "5"


def test_first_attempt_that_comes_late_is_refused(tmp_path: Path) -> None:
    take_over(tmp_path, 2)
    with pytest.raises(FolderTaken):
        take_over(tmp_path, 1)


def test_folder_that_a_superseded_process_made_anew_is_thrown_away(tmp_path: Path) -> None:
    (take_over(tmp_path, 1) / CHECKPOINT).write_text("5")
    take_over(tmp_path, 2)
    # Between the renaming and the closing of its place, say.
    attempt_folder(tmp_path, 1).unlink()
    write_atomically(attempt_folder(tmp_path, 1) / CHECKPOINT, b"of the superseded attempt")
    assert (take_over(tmp_path, 3) / CHECKPOINT).read_text() == "5"
    assert attempt_folder(tmp_path, 1).is_file()


@pytest.mark.parametrize("repetition", thinned(range(20), every=4))
def test_of_attempts_that_take_over_at_the_same_moment_the_newest_has_it_all(tmp_path: Path, repetition: int) -> None:
    (take_over(tmp_path, 1) / CHECKPOINT).write_text("5")

    def attempt(number: int) -> None:
        with suppress(FolderTaken):
            take_over(tmp_path, number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(attempt, (2, 3, 4, 5)))
    assert (attempt_folder(tmp_path, 5) / CHECKPOINT).read_text() == "5"
    assert [path.name for path in sorted((tmp_path / "attempts").iterdir()) if path.is_dir()] == ["000005"]


def test_training_process_ends_soon_after_its_folder_was_taken(tmp_path: Path) -> None:
    early = take_over(tmp_path, 1)
    code = "import sys, time; from pathlib import Path; from zetadp.trainer.parent import end_with_folder; "
    code += "end_with_folder(Path(sys.argv[1])); print('watching', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(early)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        take_over(tmp_path, 2)
        assert process.wait(timeout=120) == FOLDER_TAKEN
