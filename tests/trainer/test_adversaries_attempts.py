"""A step that is run again gets other noise: two releases of one step with the same noise differ by what the data differ by, exactly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.lattice_attack import RUNS, largest_gap
from zetadp import accountants
from zetadp.mechanisms import Adjacency, Gaussian, NoiseSource, RandomOrigin, RandomStream
from zetadp.trainer import RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine import (
    Alone,
    ClippedSum,
    FreshRandomness,
    ParameterLayout,
    PrivateLoop,
    Randomness,
    SeededRandomness,
    Site,
    TorchSource,
    TrainingState,
)
from zetadp.trainer.engine.noise import randomness, releasing
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping, clipped_sensitivity
from zetadp.trainer.specs.report import CheckpointWritten, TrainingEvent
from zetadp.trainer.specs.sampling import PoissonSampling

EVERY_STEP = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=0.0)
STOPPED_AFTER, STEPS = 3, 6
RELEASE = releasing.release


def fresh(spec_json: Mapping[str, Any]) -> ZetaDpSgd:
    """Keyed by the operating system."""
    document = {name: value for name, value in spec_json.items() if name != "seed"}
    return ZetaDpSgd.model_validate(document | {"reproducible": False, "steps": STEPS})


class Noises:
    """In the place of ``releasing.release``: what it added, in order."""

    def __init__(self) -> None:
        self.drawn: list[Tensor] = []

    def __call__(self, mechanism: Any, vector: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        # Of zero, so that the same draws are the same numbers whatever the data are.
        self.drawn.append(RELEASE(mechanism, torch.zeros_like(vector), source))
        return vector + self.drawn[-1]


def attempt(spec: ZetaDpSgd, folder: Path, monkeypatch: pytest.MonkeyPatch, last: int = STEPS) -> list[Tensor]:
    """The noise of each step that this attempt executes, up to ``last``."""
    events: list[TrainingEvent] = []

    def enough() -> bool:
        # Asked after a step, before that step's own checkpoint is told.
        return last < STEPS and any(isinstance(event, CheckpointWritten) and event.step >= last - 1 for event in events)

    noises = Noises()
    monkeypatch.setattr(releasing, "release", noises)
    try:
        load_train(spec)(spec, spec.plan(), EVERY_STEP, folder, report=events.append, should_stop=enough)
    except TrainingStopped:
        assert last < STEPS
    return noises.drawn


def repeated(spec: ZetaDpSgd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Steps whose noise was drawn twice: of one checkpoint, taken up in two places, as after a lost lease or a restored backup."""
    first = attempt(spec, folder / "first", monkeypatch, STOPPED_AFTER)
    shutil.copytree(folder / "first", folder / "second")
    again = [attempt(spec, folder / name, monkeypatch) for name in ("first", "second")]
    assert [len(first), *map(len, again)] == [STOPPED_AFTER, STEPS - STOPPED_AFTER, STEPS - STOPPED_AFTER]
    everything = [*first, *again[0], *again[1]]
    return sum(torch.equal(one, other) for number, one in enumerate(everything) for other in everything[:number])


def test_attempts_never_draw_the_same_noise(spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repeated(fresh(spec_json), tmp_path, monkeypatch) == 0


@pytest.mark.parametrize(
    "broken",
    [lambda: SeededRandomness(1), lambda: Kept(os.urandom(32))],
    ids=["a key of the job", "one key for all steps of an attempt"],
)
def test_noise_that_is_used_again_is_found(
    broken: Callable[[], Randomness], spec_json: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(randomness, "FreshRandomness", broken)
    assert repeated(fresh(spec_json), tmp_path, monkeypatch) >= STEPS - STOPPED_AFTER


class Kept:
    """Every step begins its noise with the same key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._right = FreshRandomness()

    @property
    def origin(self) -> RandomOrigin:
        return RandomOrigin.OPERATING_SYSTEM

    def sampling(self, step: int, /) -> RandomStream:
        return self._right.sampling(step)

    @property
    def binds_noise(self) -> bool:
        return False

    def noise(self, _step: int, _vector: Tensor, /) -> RandomStream:
        return RandomStream(self._key, self.origin)

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        return TorchSource(self.noise(step, vector), vector.device)


def test_a_seed_repeats_its_noise_and_nothing_is_guaranteed_of_it(spec: ZetaDpSgd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what reproducible means. Certificates of such runs guarantee nothing, see tests/app/test_certificates.py."""
    short = ZetaDpSgd.model_validate(spec.model_dump(mode="json") | {"steps": STEPS})
    assert repeated(short, tmp_path, monkeypatch) == STEPS - STOPPED_AFTER
    assert randomness.randomness_of(short.seed, 0, Alone()).origin is RandomOrigin.USER_SEED


# What the attacker makes of it

BOUND, SIZE = 1.0, 40


class Fixed:
    """Clipped sums: of everybody, and of everybody but the last unit."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        each = torch.randn(10, SIZE, generator=generator)
        self._each = BOUND * each / each.norm(dim=1, keepdim=True)

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        del parameters
        return ClippedSum(self._each[units].sum(dim=0), torch.full((len(units),), bound), bound, 0)


def rates_of(randomness: Callable[[], Randomness]) -> tuple[float, float, ExecutionPlan]:
    """How often "somebody withdrew between the attempts" is said of two releases of one step, where somebody did and where nobody did."""
    of = FlatClipping(bound=BOUND)
    plan = ExecutionPlan(
        sampling=PoissonSampling(records=10, expected_batch_size=10),
        clipping=of,
        mechanism=Gaussian(std=4.0, sensitivity=clipped_sensitivity(of, Adjacency.ADD_REMOVE, "record")),
        steps=2,
        delta=1e-5,
    )
    layout, state = ParameterLayout(("weight",), ((SIZE,),), (False,)), TrainingState(0, torch.zeros(SIZE), {}, BOUND)

    def released(units: int) -> Tensor:
        seen: list[Tensor] = []

        def deliver(_step: int, _site: int, vector: Tensor) -> Tensor:
            seen.append(vector.double())
            return vector

        site = Site(torch.arange(units), randomness())
        PrivateLoop(Fixed(), layout, plan, [site], lambda kept, at, _gradient, _step: (at, kept), Alone(), deliver).step(state)
        return seen[0]

    rates = []
    for left in (9, 10):
        apart = torch.stack([(released(10) - released(left)).norm() for _ in range(RUNS)])
        rates.append(float(((apart > 0.5 * BOUND) & (apart < 1.5 * BOUND)).double().mean()))
    return rates[0], rates[1], plan


def test_two_attempts_at_a_step_tell_no_more_than_two_releases() -> None:
    right, wrong, plan = rates_of(FreshRandomness)
    assert right - wrong <= largest_gap(plan.event)
    assert accountants.profile(plan.event).delta(0.0).upper < 0.5
    # With the same words twice, the withdrawn record's own gradient is what is left.
    assert rates_of(lambda: SeededRandomness(1))[:2] == (1.0, 0.0)


# Nothing that draws noise again is written down


def kept_keys(folder: Path, keys: list[bytes]) -> int:
    return sum(key in path.read_bytes() for path in folder.rglob("*") if path.is_file() for key in keys)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """That the operating system gave."""
    given: list[bytes] = []
    original = os.urandom

    def urandom(size: int) -> bytes:
        given.append(original(size))
        return given[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    return given


def test_no_key_is_in_a_run_s_files(spec_json: dict[str, Any], keys: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt(fresh(spec_json), tmp_path, monkeypatch, STOPPED_AFTER)
    whole = [key for key in keys if len(key) == 32]
    assert len(whole) > STOPPED_AFTER
    assert kept_keys(tmp_path, whole) == 0
    (tmp_path / "notes").write_bytes(b"for the next attempt: " + whole[-1])
    assert kept_keys(tmp_path, whole) == 1
