"""The secret of a run: which streams follow from it, who may draw from it, and what is written down of releases."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from tests.trainer.test_rerun import SECRET, after, begun, example_of, request_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomOrigin, RandomStream
from zetadp.trainer import RuntimeSpec
from zetadp.trainer.engine import ClippedGradients, ClippedSum, NoiseWatch
from zetadp.trainer.engine.noise.run_key import ONCE, RunKey, keyed_in, run_key
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.request import NOISE_KEY, RELEASES, RunSecret
from zetadp.trainer.specs.releases import read_releases


@contextmanager
def keyed(folder: Path, secret: RunSecret) -> Generator[RunKey]:
    folder.mkdir(exist_ok=True)
    (folder / NOISE_KEY).write_text(secret.model_dump_json())
    with keyed_in(folder, request_of()) as key:
        assert key is run_key()
        assert key is not None
        yield key
    assert run_key() is None


def first(attempt: int = 1) -> RunSecret:
    return RunSecret(secret=SECRET.hex(), attempt=attempt)


def observe(key: RunKey, step: int) -> None:
    observed = key.noise(0, step, b"sums").observed
    assert observed is not None
    observed(b"numbers")


def test_what_was_never_released_is_not_written(tmp_path: Path) -> None:
    with keyed(tmp_path, first()) as key:
        key.begins(0, continues=False)
        for step in (1, 2, 3):
            observe(key, step)
        key.keep()
    with keyed(tmp_path, first(2)) as key:
        key.begins(1, continues=True)
        key.keep()
    recorded = read_releases((tmp_path / RELEASES).read_text())
    assert [step for _, step, _ in recorded.releases] == [1]
    assert [(attempt.number, attempt.after) for attempt in recorded.attempts] == [(1, None), (2, 1)]


def test_attempts_of_which_nothing_came_leave_no_lines(tmp_path: Path) -> None:
    # Whoever repeats the run repeats each attempt: there are no more of them than steps, however often the run was interrupted.
    with keyed(tmp_path, first()) as key:
        key.begins(0, continues=False)
        observe(key, 1)
        key.keep()
    for attempt in range(2, 8):
        with keyed(tmp_path, first(attempt)) as key:
            key.begins(1, continues=True)
            observe(key, 2)  # lost with the process
    recorded = read_releases((tmp_path / RELEASES).read_text())
    assert [(attempt.number, attempt.after, len(attempt.releases)) for attempt in recorded.attempts] == [(1, None, 1), (7, 1, 0)]


def test_an_attempt_whose_steps_released_nothing_stays_and_one_that_began_after_lost_steps_goes(tmp_path: Path) -> None:
    with keyed(tmp_path, first()) as key:
        key.begins(0, continues=False)
        observe(key, 1)
        key.keep()
    for attempt, step in ((2, 1), (3, 4), (4, 9)):
        with keyed(tmp_path, first(attempt)) as key:
            key.begins(step, continues=True)
            key.keep()
    # A disk that was put back: step 9, after which the fourth began, is lost.
    with keyed(tmp_path, first(5)) as key:
        key.begins(6, continues=True)
        key.keep()
    recorded = read_releases((tmp_path / RELEASES).read_text())
    assert [(attempt.number, attempt.after) for attempt in recorded.attempts] == [(1, None), (2, 1), (3, 4), (5, 6)]


def test_labels_asked_twice_give_two_streams(tmp_path: Path) -> None:
    with keyed(tmp_path, first()) as key:
        streams = [
            key.stream("a"),
            key.stream("a"),
            key.stream("b"),
            key.stream("a 2"),
            *(key.noise(*of, b"") for of in ((0, 1), (1, 1), (0, 2))),
        ]
        assert len({stream.key() for stream in streams}) == 7


def test_noise_follows_from_what_it_is_added_to(tmp_path: Path) -> None:
    # A machine that was put back, and rounds otherwise: the same attempt, state and step, and another last bit.
    drawn: list[tuple[bytes, bytes]] = []
    for number, sums in enumerate((b"sums", b"sums", b"sumt")):
        with keyed(tmp_path / str(number), first()) as key:
            drawn.append((key.noise(0, 1, sums).key(), key.stream("release of the rows", sums).key()))
    assert drawn[0] == drawn[1]
    assert len({key for pair in drawn for key in pair}) == 4


def test_streams_follow_from_what_was_released(tmp_path: Path) -> None:
    drawn: list[bytes] = []
    for number, released in enumerate((b"numbers", b"numbers", b"others")):
        with keyed(tmp_path / str(number), first()) as key:
            key.begins(0, continues=False)
            key.release(1, [released])
            drawn.append(key.stream("sampling 0 2").key())
    assert drawn[0] == drawn[1] != drawn[2]


def test_two_runs_of_one_attempt_whose_sums_differ_share_no_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noises: list[list[bytes]] = []
    original = ClippedGradients.sum
    for scale in (1.0, 1.0, 1.0 - 2.0**-20):

        def sums(self: ClippedGradients, parameters: Mapping[str, Tensor], units: Tensor, bound: float, by: float = scale) -> ClippedSum:
            found = original(self, parameters, units, bound)
            return replace(found, total=found.total * by)

        own: list[bytes] = []

        def seen(_watch: NoiseWatch, vector: Tensor, released: Tensor, _place: int = 0, own: list[bytes] = own) -> None:
            own.append((released - vector).numpy().tobytes())

        with monkeypatch.context() as patch:
            patch.setattr(ClippedGradients, "sum", sums)
            patch.setattr(NoiseWatch, "see", seen)
            begun(request_of(), tmp_path / str(len(noises)), 1)
        noises.append(own)
    assert len(set(noises[0])) == 8
    assert noises[0] == noises[1]
    assert set(noises[0]).isdisjoint(noises[2])


def test_a_steps_noise_is_released_once(tmp_path: Path) -> None:
    with keyed(tmp_path, first()) as key:
        stream = key.noise(0, 2, b"sums")
        assert stream.observed is not None
        stream.observed(b"real parts")
        stream.observed(b"imaginary parts")  # further numbers of the same stream
        for step in (2, 1):
            with pytest.raises(InvalidParameter, match="above 2, whose noise was released at site 0"):
                observe(key, step)
        observe(key, 3)
        key.keep()
    assert [step for _, step, _ in read_releases((tmp_path / RELEASES).read_text()).releases] == [2, 2, 3]


@pytest.mark.parametrize("attempt", [1, 2])
def test_no_attempt_draws_twice(tmp_path: Path, attempt: int) -> None:
    with keyed(tmp_path, first(2)):
        pass  # it may have released anything before it was lost
    with pytest.raises(InvalidParameter, match="attempt must be above 2, which has drawn its noise"), keyed(tmp_path, first(attempt)):
        pass


def test_an_attempt_whose_number_comes_twice_shares_no_noise_between_two_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A disk that was put back: the job's second start comes again, from another checkpoint, and releases its last steps again.
    drawn: dict[int, set[bytes]] = {2: set(), 3: set()}
    for stopped, keys in drawn.items():
        with pytest.raises(TrainingStopped):
            begun(request_of(), tmp_path / str(stopped), 1, after(stopped))

        def seen(key: bytes, origin: RandomOrigin, keys: set[bytes] = keys) -> RandomStream:
            keys.add(key)
            return RandomStream(key, origin)

        with monkeypatch.context() as patch:
            patch.setattr("zetadp.trainer.engine.noise.run_key.RandomStream", seen)
            begun(request_of(), tmp_path / str(stopped), 2)
    assert len(drawn[2]) > len(drawn[3]) > 5
    assert drawn[2].isdisjoint(drawn[3])


def test_the_file_is_replaced_as_a_whole_and_only_where_it_is_kept(tmp_path: Path) -> None:
    # Snapshots of the folder wait until no file changes while they are taken.
    with keyed(tmp_path, first()) as key:
        key.begins(0, continues=False)
        before = (tmp_path / RELEASES).stat()
        for step in range(1, 50):
            observe(key, step)
        assert (tmp_path / RELEASES).stat() == before
        key.keep()
        assert (tmp_path / RELEASES).stat().st_ino != before.st_ino
        assert [path.name for path in (tmp_path / RELEASES).parent.iterdir()] == ["releases.txt"]
    assert len(read_releases((tmp_path / RELEASES).read_text()).releases) == 49


def test_the_secret_is_gone_once_it_is_read(tmp_path: Path) -> None:
    with keyed(tmp_path, first()):
        assert not (tmp_path / NOISE_KEY).exists()
        assert SECRET.hex() not in (tmp_path / RELEASES).read_text()


def test_runs_with_another_secret_share_no_noise(tmp_path: Path) -> None:
    drawn: list[bytes] = []
    for secret, attempt in ((SECRET, 1), (SECRET, 2), (bytes(32), 1)):
        folder = tmp_path / f"{secret[1]} {attempt}"
        with keyed(folder, RunSecret(secret=secret.hex(), attempt=attempt)) as key:
            drawn += [key.noise(0, 1, b"").key(), key.stream("sampling 0 1").key()]
    assert len(set(drawn)) == 6


def test_one_whose_file_was_lost_does_not_count(tmp_path: Path) -> None:
    with keyed(tmp_path, first()) as key:
        key.release(ONCE, [b"rows"])
    with keyed(tmp_path, first(2)) as key:
        key.release(ONCE, [b"other ", b"rows"])
        key.begins(0, continues=False)
        key.keep()
    recorded = read_releases((tmp_path / RELEASES).read_text())
    assert [(attempt.number, attempt.releases) for attempt in recorded.attempts] == [
        (2, ((0, ONCE, hashlib.sha256(b"other rows").hexdigest()),))
    ]


UNREPEATABLE = {
    "a seed": lambda: request_of(reproducible=True, seed=1),
    "several processes": lambda: request_of().model_copy(update={"runtime": RuntimeSpec(processes=2)}),
    "no guarantee": lambda: example_of("non_private"),
    "a comparison": lambda: example_of("comparison"),
}


@pytest.mark.parametrize("name", UNREPEATABLE)
def test_runs_whose_noise_would_be_shared_or_is_not_the_keys_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidParameter, match="noise key must be absent"):
        begun(UNREPEATABLE[name](), tmp_path / "run", 1)
    assert not (tmp_path / "run" / NOISE_KEY).exists()
    assert not (tmp_path / "run" / RELEASES).exists()


def test_without_a_key_nothing_is_written(tmp_path: Path) -> None:
    with keyed_in(tmp_path, request_of()) as key:
        assert key is None
        assert run_key() is None
    assert os.listdir(tmp_path) == []


RUNTIME = f"runtime {RuntimeSpec().model_dump_json()}"


@pytest.mark.parametrize(
    "lines",
    [
        ["attempt 1", "anew"],
        [RUNTIME],
        [RUNTIME, "anew"],
        [RUNTIME, "attempt 0"],
        [RUNTIME, "attempt 1", "attempt 1"],
        [RUNTIME, "attempt 2", "attempt 1"],
        [RUNTIME, "attempt 1", "anew", "from 3"],
        [RUNTIME, "attempt 1", "from x"],
        [RUNTIME, "attempt 1", "start 00"],
        [RUNTIME, "attempt 1", "release 0 1"],
        [RUNTIME, "attempt 1", f"release 0 1 {'0' * 63}"],
        [RUNTIME, "attempt 1", f"release 0 -1 {'0' * 64}"],
        ["runtime {}x", "attempt 1"],
        ["nothing"],
        [],
    ],
)
def test_what_no_run_writes_is_refused(lines: list[str]) -> None:
    with pytest.raises(InvalidParameter, match=r"releases\.txt"):
        read_releases("\n".join(lines))


def test_what_a_run_writes_is_read() -> None:
    text = "\n".join(
        [RUNTIME, "attempt 1", f"release 0 0 {'0' * 64}", "attempt 3", "anew", f"release 0 1 {'1' * 64}", "attempt 4", "from 1"]
    )
    found = read_releases(text)
    assert [(attempt.number, attempt.after, len(attempt.releases)) for attempt in found.attempts] == [(1, None, 1), (3, None, 1), (4, 1, 0)]
    assert found.releases == ((0, 0, "0" * 64), (0, 1, "1" * 64))
