"""A run with a committed noise key, repeated from the opened key: the same releases to the bit, and where it departed if not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.selection import thinned
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ALGORITHMS, AnyTrainingSpec, RuntimeSpec
from zetadp.trainer.child import run_request
from zetadp.trainer.engine.noise.run_key import ONCE, run_key
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.request import NOISE_KEY, RELEASES, REQUEST, RunSecret, TrainingRequest, why_not_repeatable
from zetadp.trainer.rerun import repeat
from zetadp.trainer.specs.releases import Recorded, Repeated, read_releases
from zetadp.trainer.specs.report import Stage, TrainingEvent

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


def begun(
    request: TrainingRequest,
    folder: Path,
    attempt: int,
    stops: Callable[[], bool] = lambda: False,
    report: Callable[[TrainingEvent], None] = ignored,
) -> None:
    """One attempt of a run."""
    folder.mkdir(exist_ok=True)
    (folder / REQUEST).write_text(request.model_dump_json())
    (folder / NOISE_KEY).write_text(RunSecret(secret=SECRET.hex(), attempt=attempt).model_dump_json())
    run_request(folder, stops, report)


def after(step: int) -> Callable[[], bool]:
    return lambda: (key := run_key()) is not None and (key.reached or 0) >= step


def ran(request: TrainingRequest, folder: Path, stops_after: tuple[int, ...] = ()) -> str:
    """What a run wrote that was stopped after these steps and went on each time."""
    for attempt, step in enumerate(stops_after, 1):
        with pytest.raises(TrainingStopped):
            begun(request, folder, attempt, after(step))
    begun(request, folder, len(stops_after) + 1)
    return (folder / RELEASES).read_text()


def repeated(request: TrainingRequest, recorded: Recorded, folder: Path) -> Repeated:
    folder.mkdir()
    return repeat(request, SECRET, recorded, folder, ignored)


def model_in(folder: Path) -> bytes:
    return (folder / "artifacts" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("stops_after", [pytest.param((), marks=pytest.mark.slow), pytest.param((3,), marks=pytest.mark.slow), (2, 5)])
def test_a_run_is_repeated_to_the_bit_however_often_it_was_interrupted(tmp_path: Path, stops_after: tuple[int, ...]) -> None:
    request = request_of()
    recorded = read_releases(ran(request, tmp_path / "run", stops_after))
    assert [attempt.after for attempt in recorded.attempts] == [None, *stops_after]
    assert [step for _, step, _ in recorded.releases] == list(range(1, 9))
    found = repeated(request, recorded, tmp_path / "again")
    assert (found.same, found.recorded, found.departed) == (8, 8, None)
    assert model_in(tmp_path / "again") == model_in(tmp_path / "run")


def test_steps_that_release_nothing_are_repeated_as_such(tmp_path: Path) -> None:
    # The second attempt has lost its epoch's allocation; it is interrupted before the next epoch begins, in which it would release again.
    request = request_of(sampling={"kind": "random_allocation"}, expected_batch_size=88, steps=16)
    recorded = read_releases(ran(request, tmp_path / "run", stops_after=(2, 5)))
    assert [step for _, step, _ in recorded.releases] == [1, 2, *range(9, 17)]
    found = repeated(request, recorded, tmp_path / "again")
    assert (found.same, found.departed) == (10, None)
    assert model_in(tmp_path / "again") == model_in(tmp_path / "run")


def test_noisy_counts_are_compared_too(tmp_path: Path) -> None:
    request = request_of(evaluation={"kind": "private_accuracy", "noise_std": 5.0, "every_steps": 3})
    written = ran(request, tmp_path / "run", stops_after=(3, 5))
    recorded = read_releases(written)
    assert [step for _, step, _ in recorded.releases] == [1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 8]
    found = repeated(request, recorded, tmp_path / "again")
    assert (found.same, found.departed) == (11, None)
    # As if the exact count had been told.
    changed = written.replace(recorded.releases[7][2], "0" * 64)
    assert repeated(request, read_releases(changed), tmp_path / "other").departed == (0, 6)


class Killed(BaseException):
    """Nothing is written any more."""


def killed_after(step: int) -> Callable[[], bool]:
    def look() -> bool:
        if after(step)():
            raise Killed
        return False

    return look


@pytest.mark.parametrize("step", thinned([0, 3], every=2))
def test_what_a_killed_process_lost_is_not_repeated(tmp_path: Path, step: int) -> None:
    request = request_of()
    with pytest.raises(Killed):
        begun(request, tmp_path / "run", 1, killed_after(step))
    begun(request, tmp_path / "run", 2)
    recorded = read_releases((tmp_path / "run" / RELEASES).read_text())
    assert [step for _, step, _ in recorded.releases] == list(range(1, 9))
    assert recorded.attempts[-1].after == (None if step == 0 else 1)  # the first step was in a checkpoint
    assert repeated(request, recorded, tmp_path / "again").departed is None
    assert model_in(tmp_path / "again") == model_in(tmp_path / "run")


@pytest.mark.parametrize("step", thinned([1, 5, 8], every=3))
def test_where_a_run_departed_is_said(tmp_path: Path, step: int) -> None:
    request = request_of()
    lines = ran(request, tmp_path / "run").splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith(f"release 0 {step} "))
    lines[place] = f"release 0 {step} {'0' * 64}"
    found = repeated(request, read_releases("\n".join(lines)), tmp_path / "again")
    assert (found.same, found.departed) == (step - 1, (0, step))


@pytest.mark.parametrize(
    ("changes", "secret"),
    thinned([({}, bytes(32)), ({"optimizer": {"kind": "sgd", "learning_rate": 0.25}}, SECRET), ({"clipping_bound": 0.5}, SECRET)], every=2),
)
def test_another_key_plan_or_setting_departs(tmp_path: Path, changes: dict[str, object], secret: bytes) -> None:
    recorded = read_releases(ran(request_of(), tmp_path / "run"))
    (tmp_path / "again").mkdir()
    found = repeat(request_of(**changes), secret, recorded, tmp_path / "again", ignored)
    assert found.departed in {(0, 1), (0, 2)}


def test_another_attempt_than_the_one_that_ran_departs(tmp_path: Path) -> None:
    request = request_of(steps=3)
    written = ran(request, tmp_path / "run")
    found = repeated(request, read_releases(written.replace("attempt 1", "attempt 2")), tmp_path / "again")
    assert (found.same, found.departed) == (0, (0, 1))


def test_releases_that_are_missing_or_too_many_are_a_departure(tmp_path: Path) -> None:
    request = request_of(steps=3)
    lines = ran(request, tmp_path / "run").splitlines()
    for name, changed in (("short", lines[:-1]), ("long", [*lines, f"release 0 4 {'0' * 64}"])):
        found = repeated(request, read_releases("\n".join(changed)), tmp_path / name)
        assert found.departed == (0, 3 if name == "short" else 4)


def example_of(algorithm: str) -> TrainingRequest:
    spec = next(one for one in ALGORITHMS if one.algorithm_name() == algorithm).example()
    checked = _SPEC.validate_python(spec.model_dump(mode="json", exclude_none=True))
    return TrainingRequest(spec=checked, runtime=RuntimeSpec(threads=1), plan=checked.plan())


OBFUSCATION = {
    "attacks": None,
    "batch_size": 32,
    "steps": 6,
    "evaluation": {"kind": "none"},
    "method": {
        "kind": "noisy_rotation",
        "clipping_norm": 5.0,
        "queries": 2,
        "adversarial_weight": 0.0,
        "privacy": {"unit": "image", "adjacency": "replace_one", "delta": 1e-5, "noise_multiplier": 0.05},
    },
}
REPEATABLE: dict[str, dict[str, object]] = {
    "zeta_dp_sgd": {},
    "federated_zeta_dp_sgd": {},
    "spectral_dp": {},
    "dp_sgd_laplace": {},
    "spof": {"steps": 6},
    "functional_mechanism": {},
    "obfuscation": OBFUSCATION,
}


def example_with(algorithm: str) -> TrainingRequest:
    spec = example_of(algorithm).spec
    changed = _SPEC.validate_python(spec.model_dump(mode="json", exclude_none=True) | REPEATABLE[algorithm])
    return TrainingRequest(spec=changed, runtime=RuntimeSpec(threads=1), plan=changed.plan())


def test_all_that_can_be_repeated_are_tried() -> None:
    found = [one.algorithm_name() for one in ALGORITHMS if one.algorithm_name() not in REPEATABLE]
    assert all(why_not_repeatable((given := example_of(name)).spec, given.runtime, given.plan) is not None for name in found)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", thinned(REPEATABLE, every=3))
def test_every_algorithm_is_repeated_to_the_bit(algorithm: str, tmp_path: Path) -> None:
    request = example_with(algorithm)
    recorded = read_releases(ran(request, tmp_path / "run"))
    assert len(recorded.releases) > 0
    check_repeated(request, recorded, tmp_path)


def check_repeated(request: TrainingRequest, recorded: Recorded, folder: Path) -> None:
    found = repeated(request, recorded, folder / "again")
    assert (found.same, found.departed) == (len(recorded.releases), None)
    assert model_in(folder / "again") == model_in(folder / "run")


# Algorithms that release once, before their steps or after them


def test_a_single_release_is_compared(tmp_path: Path) -> None:
    request = example_with("functional_mechanism")
    written = ran(request, tmp_path / "run")
    recorded = read_releases(written)
    assert [release[:2] for release in recorded.releases] == [(0, 1)]
    check_repeated(request, recorded, tmp_path)
    digest = recorded.releases[0][2]
    assert repeated(request, read_releases(written.replace(digest, "0" * 64)), tmp_path / "other").departed == (0, 1)


@pytest.mark.parametrize("algorithm", thinned(["spof", "obfuscation"], every=2))
@pytest.mark.parametrize("stops_after", [(2, 5), (4, 4)])
def test_its_steps_are_repeated_attempt_by_attempt(algorithm: str, stops_after: tuple[int, ...], tmp_path: Path) -> None:
    request = example_with(algorithm)
    recorded = read_releases(ran(request, tmp_path / "run", stops_after))
    assert [release[:2] for release in recorded.releases] == [(0, ONCE)]
    # One that was stopped where it began left nothing to repeat.
    left = list(dict.fromkeys((None, *stops_after)))
    assert [attempt.after for attempt in recorded.attempts] == left
    others = [0] * (len(left) - 1)
    assert [len(attempt.releases) for attempt in recorded.attempts] == ([1, *others] if algorithm == "spof" else [*others, 1])
    check_repeated(request, recorded, tmp_path)


@pytest.mark.parametrize("algorithm", ["spof", "obfuscation"])
def test_it_stays_where_a_killed_attempt_made_it(algorithm: str, tmp_path: Path) -> None:
    request = example_with(algorithm)
    if algorithm == "spof":  # rows are released before the first step, whose attempt leaves nothing else
        with pytest.raises(Killed):
            begun(request, tmp_path / "run", 1, killed_after(0))
    else:
        begun(request, tmp_path / "run", 1)  # its worker dies before it tells
    begun(request, tmp_path / "run", 2)
    recorded = read_releases((tmp_path / "run" / RELEASES).read_text())
    assert [len(attempt.releases) for attempt in recorded.attempts] == [1, 0]
    check_repeated(request, recorded, tmp_path)


def test_one_that_was_lost_is_made_by_the_next_attempt(tmp_path: Path) -> None:
    def dies(event: TrainingEvent) -> None:
        if isinstance(event, Stage) and event.doing.startswith("encoding"):
            raise Killed

    request = example_with("obfuscation")
    with pytest.raises(Killed):
        begun(request, tmp_path / "run", 1, report=dies)
    begun(request, tmp_path / "run", 2)
    recorded = read_releases((tmp_path / "run" / RELEASES).read_text())
    assert [len(attempt.releases) for attempt in recorded.attempts] == [0, 1]
    check_repeated(request, recorded, tmp_path)


def test_more_attempts_than_a_run_leaves_are_not_repeated(tmp_path: Path) -> None:
    # Each would read all data again: a record of a million of them would keep an auditor busy for ever.
    lines = [f"runtime {RuntimeSpec(threads=1).model_dump_json()}"]
    for attempt in range(1, 13):
        lines += [f"attempt {attempt}", "anew" if attempt == 1 else "from 1"]
    with pytest.raises(InvalidParameter, match="of at most 11 attempts, for a plan of 8 steps, got 12"):
        repeated(request_of(), read_releases("\n".join(lines)), tmp_path / "again")
    assert list((tmp_path / "again").iterdir()) == []
