"""A run with a committed noise key, repeated from the opened key: the same releases to the bit, and where it departed if not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ALGORITHMS, AnyTrainingSpec, RuntimeSpec
from zetadp.trainer.child import run_request
from zetadp.trainer.engine.noise.run_key import keyed_in, run_key
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.request import NOISE_KEY, RELEASES, REQUEST, TrainingRequest
from zetadp.trainer.rerun import repeat
from zetadp.trainer.specs.releases import read_releases
from zetadp.trainer.specs.report import TrainingEvent

SECRET = bytes(range(32))
_SPEC: TypeAdapter[AnyTrainingSpec] = TypeAdapter(AnyTrainingSpec)
SPEC = {
    "algorithm": "zeta_dp_sgd",
    "data": {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2},
    "model": {"kind": "complex_mlp", "hidden": [4], "activation": "cardioid", "head": "magnitude"},
    "optimizer": {"kind": "sgd", "learning_rate": 0.5},
    "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 20.0},
    "clipping_bound": 1.0,
    "expected_batch_size": 20,
    "steps": 8,
    "evaluation": {"kind": "none"},
}


def request_of(**changes: object) -> TrainingRequest:
    spec = _SPEC.validate_json(json.dumps(SPEC | changes))
    return TrainingRequest(spec=spec, runtime=RuntimeSpec(threads=1), plan=spec.plan())


def ignored(_event: TrainingEvent) -> None:
    return None


def ran(request: TrainingRequest, folder: Path, stops_after: tuple[int, ...] = ()) -> str:
    """What a run wrote that was stopped after these steps and went on each time."""
    folder.mkdir()
    (folder / REQUEST).write_text(request.model_dump_json())
    (folder / NOISE_KEY).write_bytes(SECRET)
    releases = folder / RELEASES

    def after(step: int) -> Callable[[], bool]:
        return lambda: sum(line.startswith("release") for line in releases.read_text().splitlines()) >= step

    for step in stops_after:
        with pytest.raises(TrainingStopped):
            run_request(folder, after(step), ignored)
    run_request(folder, lambda: False, ignored)
    return releases.read_text()


def model_in(folder: Path) -> bytes:
    return (folder / "artifacts" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("stops_after", [(), (3,), (2, 5)])
def test_a_run_is_repeated_to_the_bit_however_often_it_was_interrupted(tmp_path: Path, stops_after: tuple[int, ...]) -> None:
    request = request_of()
    recorded = read_releases(ran(request, tmp_path / "run", stops_after))
    assert [step for _, step in recorded.processes] == [0, *stops_after]
    assert [step for _, step, _ in recorded.releases] == list(range(1, 9))
    (tmp_path / "again").mkdir()
    found = repeat(request, SECRET, recorded, tmp_path / "again", ignored)
    assert (found.same, found.recorded, found.departed) == (8, 8, None)
    assert (tmp_path / "again" / "artifacts/model.safetensors").read_bytes() == (
        tmp_path / "run" / "artifacts/model.safetensors"
    ).read_bytes()


def test_two_processes_of_one_run_share_no_noise(tmp_path: Path) -> None:
    first, second = (read_releases(ran(request_of(steps=2), tmp_path / name)) for name in "ab")
    assert not {digest for *_, digest in first.releases} & {digest for *_, digest in second.releases}


@pytest.mark.parametrize("step", [1, 5, 8])
def test_where_a_run_departed_is_said(tmp_path: Path, step: int) -> None:
    request = request_of()
    lines = ran(request, tmp_path / "run").splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith(f"release 0 {step} "))
    lines[place] = f"release 0 {step} {'0' * 64}"
    (tmp_path / "again").mkdir()
    found = repeat(request, SECRET, read_releases("\n".join(lines)), tmp_path / "again", ignored)
    assert (found.same, found.departed) == (step - 1, (0, step))


@pytest.mark.parametrize(
    ("changes", "secret"),
    [({}, bytes(32)), ({"optimizer": {"kind": "sgd", "learning_rate": 0.25}}, SECRET), ({"clipping_bound": 0.5}, SECRET)],
)
def test_another_key_plan_or_setting_departs(tmp_path: Path, changes: dict[str, object], secret: bytes) -> None:
    recorded = read_releases(ran(request_of(), tmp_path / "run"))
    (tmp_path / "again").mkdir()
    found = repeat(request_of(**changes), secret, recorded, tmp_path / "again", ignored)
    assert found.departed in {(0, 1), (0, 2)}


def test_releases_that_are_missing_or_too_many_are_a_departure(tmp_path: Path) -> None:
    request = request_of(steps=3)
    lines = ran(request, tmp_path / "run").splitlines()
    for name, changed in (("short", lines[:-1]), ("long", [*lines, f"release 0 4 {'0' * 64}"])):
        (tmp_path / name).mkdir()
        found = repeat(request, SECRET, read_releases("\n".join(changed)), tmp_path / name, ignored)
        assert found.departed == (0, 3 if name == "short" else 4)


def test_what_was_never_released_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / NOISE_KEY).write_bytes(SECRET)
    with keyed_in(tmp_path, RuntimeSpec()) as key:
        assert key is not None
        key.begins_after(0)
        for step in (1, 2, 3):
            observed = key.noise(0, step).observed
            assert observed is not None
            observed(b"numbers")
    with keyed_in(tmp_path, RuntimeSpec()) as key:
        assert key is run_key()
        assert key is not None
        key.begins_after(1)
    assert run_key() is None
    recorded = read_releases((tmp_path / RELEASES).read_text())
    assert [step for _, step, _ in recorded.releases] == [1]
    assert [step for _, step in recorded.processes] == [0, 1]


def test_labels_asked_twice_give_two_streams_and_a_steps_noise_the_same(tmp_path: Path) -> None:
    (tmp_path / NOISE_KEY).write_bytes(SECRET)
    with keyed_in(tmp_path, RuntimeSpec()) as key:
        assert key is not None
        streams = [key.stream("a"), key.stream("a"), key.stream("b"), key.noise(0, 1), key.noise(1, 1), key.noise(0, 2)]
        drawn = [stream.key() for stream in streams]
        assert len(set(drawn)) == 6
        assert key.noise(0, 1).key() == drawn[3]


def test_without_a_key_nothing_is_written(tmp_path: Path) -> None:
    with keyed_in(tmp_path, RuntimeSpec()) as key:
        assert key is None
        assert run_key() is None
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("text", ["", "start 00", "release 0 1", "from x", "nothing"])
def test_what_no_run_writes_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"releases\.txt"):
        read_releases(text)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [one for one in ALGORITHMS if one.algorithm_name() != "comparison"])
def test_every_algorithm_is_repeated_to_the_bit(algorithm: type, tmp_path: Path) -> None:
    spec = algorithm.example()
    if spec.reproducible:
        pytest.skip("its example has a seed")
    request = TrainingRequest(spec=spec, runtime=RuntimeSpec(threads=1), plan=spec.plan())
    recorded = read_releases(ran(request, tmp_path / "run"))
    (tmp_path / "again").mkdir()
    found = repeat(request, SECRET, recorded, tmp_path / "again", ignored)
    assert found.departed is None
    assert (tmp_path / "again" / "artifacts/model.safetensors").read_bytes() == (
        tmp_path / "run" / "artifacts/model.safetensors"
    ).read_bytes()
