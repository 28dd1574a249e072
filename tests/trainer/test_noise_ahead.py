r"""Noise drawn beside the step: the same numbers, each handed out once, and no failure hidden."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, final

import pytest
import torch
from torch import Tensor, nn

from zetadp.mechanisms import ComplexGaussian, Gaussian, Sensitivity
from zetadp.mechanisms.sampling import kernel
from zetadp.mechanisms.sampling.source import NoiseSource, RandomOrigin, RandomStream
from zetadp.trainer import ExecutionPlan
from zetadp.trainer.engine import (
    Alone,
    ClippedGradients,
    FreshRandomness,
    PrivateLoop,
    Problem,
    Randomness,
    SeededRandomness,
    Site,
)
from zetadp.trainer.engine.noise.prefetch import NoiseAhead
from zetadp.trainer.specs.execution_plan import AdaptiveClipping, FlatClipping
from zetadp.trainer.specs.sampling import PoissonSampling

VECTOR = torch.zeros(1)
"""Noise that doesn't follow from what it is added to needs its device."""
LAST = 6
L2 = Sensitivity(l2=1.0, adjacency="add_remove", unit="record")

Draw = Callable[[int, NoiseSource[Tensor]], list[Tensor]]


def _same(_step: int, source: NoiseSource[Tensor]) -> list[Tensor]:
    return [source.standard_normal((300, 2)), source.standard_normal((40_000,))]


def _other_each_step(step: int, source: NoiseSource[Tensor]) -> list[Tensor]:
    return [source.standard_normal((3,)), source.standard_normal((100 * step,)), source.standard_normal((4,))]


def _more_each_step(step: int, source: NoiseSource[Tensor]) -> list[Tensor]:
    return [source.standard_normal((7,)) for _ in range(step)]


def _fewer_each_step(step: int, source: NoiseSource[Tensor]) -> list[Tensor]:
    return [source.standard_normal((7,)) for _ in range(LAST - step)]


def _of_several_kinds(step: int, source: NoiseSource[Tensor]) -> list[Tensor]:
    first = [source.standard_normal((8,))] if step != 4 else []
    middle = [source.uniform((3,)), source.signs((9,)), source.standard_laplace((2,))]
    return [*first, *middle, source.standard_normal((5,)), source.standard_normal((5,))]


def _run(randomness: Randomness, draw: Draw) -> list[Tensor]:
    drawn: list[Tensor] = []
    for step in range(1, LAST + 1):
        drawn += [torch.from_numpy(randomness.sampling(step).uniform(2))]
        drawn += draw(step, randomness.noise_source(step, VECTOR))
    return drawn


def _ahead(randomness: Randomness, draw: Draw) -> list[Tensor]:
    with NoiseAhead(randomness, LAST) as ahead:
        return _run(ahead, draw)


@pytest.mark.parametrize("draw", [_same, _other_each_step, _more_each_step, _fewer_each_step, _of_several_kinds])
def test_a_seed_gives_the_numbers_it_gives_without(draw: Draw) -> None:
    expected, got = _run(SeededRandomness(3), draw), _ahead(SeededRandomness(3), draw)
    assert all(torch.equal(one, other) for one, other in zip(expected, got, strict=True))


@pytest.mark.parametrize("draw", [_same, _other_each_step, _more_each_step, _fewer_each_step])
def test_no_number_is_handed_out_twice(draw: Draw) -> None:
    # Numbers on a grid may be equal by chance; runs of four of them aren't.
    drawn = torch.cat([part.flatten()[: part.numel() // 4 * 4] for part in _ahead(FreshRandomness(), draw)]).reshape(-1, 4)
    assert len(drawn.unique(dim=0)) == len(drawn)


def test_a_step_that_is_asked_for_again_gets_other_noise() -> None:
    with NoiseAhead(FreshRandomness(), LAST) as ahead:
        for step in (1, 2):
            ahead.noise_source(step, VECTOR).standard_normal((4,))
        again = [ahead.noise_source(3, VECTOR).standard_normal((4,)) for _ in range(3)]
    assert len(torch.cat(again).unique()) == 12


def test_steps_that_are_skipped_or_repeated_have_their_own_numbers() -> None:
    steps, plain = (1, 2, 5, 5, 2, 3, LAST - 1, LAST, LAST), SeededRandomness(3)
    with NoiseAhead(SeededRandomness(3), LAST) as ahead:
        drawn = [ahead.noise_source(step, VECTOR).standard_normal((4,)) for step in steps]
    expected = [plain.noise_source(step, VECTOR).standard_normal((4,)) for step in steps]
    assert all(torch.equal(one, other) for one, other in zip(drawn, expected, strict=True))


@final
class Watched:
    """Seeded randomness that notes which thread asks for which step's noise, and fails at one step."""

    def __init__(self, failing: int | None = None) -> None:
        self._inner = SeededRandomness(1)
        self._failing = failing
        self.asked: list[tuple[int, str]] = []

    @property
    def origin(self) -> RandomOrigin:
        return self._inner.origin

    def sampling(self, step: int, /) -> RandomStream:
        return self._inner.sampling(step)

    @property
    def binds_noise(self) -> bool:
        return False

    def noise(self, step: int, vector: Tensor, /) -> RandomStream:
        return self._inner.noise(step, vector)

    def noise_source(self, step: int, vector: Tensor, /) -> NoiseSource[Tensor]:
        self.asked.append((step, threading.current_thread().name.partition("_")[0]))
        if step == self._failing:
            raise OSError("no random bytes")
        return self._inner.noise_source(step, vector)


def test_every_step_but_the_first_is_drawn_by_the_thread_and_none_beyond_the_last() -> None:
    watched = Watched()
    _ahead(watched, _same)
    assert watched.asked == [(1, "MainThread"), *((step, "noise") for step in range(2, LAST + 1))]


def test_a_failure_of_the_thread_is_raised_in_the_step() -> None:
    with NoiseAhead(Watched(failing=3), LAST) as ahead:
        for step in (1, 2):
            ahead.sampling(step)
            ahead.noise_source(step, VECTOR).standard_normal((4,))
        ahead.sampling(3)
        with pytest.raises(OSError, match="no random bytes"):
            ahead.noise_source(3, VECTOR)


def test_the_thread_ends_with_the_context() -> None:
    before = threading.active_count()
    _ahead(FreshRandomness(), _same)
    assert threading.active_count() == before


def test_it_says_where_the_keys_came_from() -> None:
    with NoiseAhead(FreshRandomness(), LAST) as fresh, NoiseAhead(SeededRandomness(1), LAST) as seeded:
        assert (fresh.origin, seeded.origin) == (RandomOrigin.OPERATING_SYSTEM, RandomOrigin.USER_SEED)
        assert fresh.noise_source(1, VECTOR).origin is RandomOrigin.OPERATING_SYSTEM


def _loop(outputs: int, device: str = "cpu", **changes: Any) -> PrivateLoop:
    """Of a layer with 20 outputs' numbers each."""
    problem = Problem(nn.Linear(19, outputs), lambda found, _: found.square().sum(dim=1), torch.randn(8, 19), torch.zeros(8), None)
    clipping = FlatClipping(bound=1.0)
    clipped = ClippedGradients(problem, clipping, 8)
    given = {"mechanism": Gaussian(std=1.0, sensitivity=L2), "clipping": clipping, **changes}
    plan = ExecutionPlan(sampling=PoissonSampling(records=8, expected_batch_size=4), steps=3, delta=1e-5, **given)
    site = Site(torch.arange(8, device=device), FreshRandomness())
    return PrivateLoop(clipped, clipped.layout, plan, (site,), lambda kept, at, _gradient, _step: (at, kept), Alone())


_COMPLEX = ComplexGaussian(std=1.0, sensitivity=L2)
_CORRELATED = ComplexGaussian(std=1.0, correlation=0.5, sensitivity=L2)
_ADAPTIVE = AdaptiveClipping(initial_bound=1.0, quantile=0.5, learning_rate=0.1, count_share=0.1)


@pytest.mark.parametrize(
    ("outputs", "changes", "expected"),
    [
        (4000, {}, True),
        (4000, {"mechanism": _COMPLEX}, True),
        (4000, {"mechanism": _CORRELATED}, False),
        (4000, {"clipping": _ADAPTIVE}, True),
        (4000, {"device": "meta"}, False),
        (100, {}, False),
    ],
)
def test_nothing_is_drawn_ahead_where_noise_is_added_as_it_is_drawn(
    outputs: int, changes: dict[str, Any], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = _loop(outputs, **changes)
    monkeypatch.setattr(kernel, "ciphers", lambda: 1)
    assert loop.adds_what_it_draws() == expected
    monkeypatch.setattr(kernel, "ciphers", lambda: 0)
    assert not loop.adds_what_it_draws()
