r"""What every training algorithm promises: the event that is accounted is exactly what the loop did.

The loop is watched from outside: every draw of a sample, every release and its noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from accountants.events import PoissonSampled, Release, Repeated
from mechanisms import Mechanism, NoiseSource, RandomStream
from trainer import ALGORITHMS, RuntimeSpec, TrainingSpec, ZetaDpSgd, load_train
from trainer.engine import clipping, loop
from trainer.plan import PoissonSampling
from trainer.report import RunReport

STEPS = 25


@dataclass
class Observed:
    """What one run did, step by step."""

    samples: list[NDArray[Any]] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    mechanisms: list[Mechanism] = field(default_factory=list)
    noises: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    report: RunReport | None = None


def _small(algorithm: type[TrainingSpec], **changes: Any) -> ZetaDpSgd:
    """The algorithm's example, seeded, with few steps."""
    document = algorithm.example().model_dump(mode="json", exclude_none=True)
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 0.8}
    document |= {"steps": STEPS, "reproducible": True, "seed": 3, "privacy": privacy, "clipping_bound": 0.5} | changes
    spec = algorithm.model_validate(document)
    assert isinstance(spec, ZetaDpSgd)
    return spec


def _observe(spec: ZetaDpSgd, workdir: Path) -> Observed:
    seen = Observed()
    kind = type(spec.plan().mechanism)
    original_release, original_sample = kind.release, loop.poisson_sample

    def release(self: Mechanism, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        released = original_release(self, value, source)
        seen.mechanisms.append(self)
        seen.sums.append(value.clone())
        seen.noises.append(released - value)
        return released

    def sample(sampling: PoissonSampling, stream: RandomStream) -> NDArray[Any]:
        rows = original_sample(sampling, stream)
        seen.samples.append(rows)
        return rows

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "release", release)
        patch.setattr(loop, "poisson_sample", sample)
        runtime = RuntimeSpec(threads=1)
        seen.report = load_train(spec)(spec, spec.plan(), runtime, workdir, report=lambda _event: None, should_stop=lambda: False)
    return seen


@pytest.fixture(scope="module", params=ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ZetaDpSgd, Observed]:
    spec = _small(request.param)
    return spec, _observe(spec, tmp_path_factory.mktemp("run"))


def test_plan_event_equals_what_was_counted(run: tuple[ZetaDpSgd, Observed]) -> None:
    spec, seen = run
    plan = spec.plan()
    (mechanism,) = set(map(repr, seen.mechanisms))
    assert mechanism == repr(plan.mechanism)
    counted = Repeated(
        count=len(seen.noises), event=PoissonSampled(probability=plan.sampling.probability, event=Release(mechanism=plan.mechanism))
    )
    assert plan.event == counted
    assert seen.report is not None
    assert seen.report.event == counted
    assert len(seen.samples) == STEPS


def test_samples_are_drawn_with_the_accounted_probability(run: tuple[ZetaDpSgd, Observed]) -> None:
    spec, seen = run
    sampling = spec.plan().sampling
    joined = sum(len(rows) for rows in seen.samples)
    trials = STEPS * sampling.records
    q = sampling.probability
    # Five standard errors, below 10 % of q here: 30 % off would be seen.
    assert abs(joined / trials - q) < 5.0 * math.sqrt(q * (1.0 - q) / trials) < 0.1 * q


def test_samples_of_different_steps_are_independent(run: tuple[ZetaDpSgd, Observed]) -> None:
    spec, seen = run
    sampling = spec.plan().sampling
    together = [len(np.intersect1d(first, second)) for first, second in zip(seen.samples, seen.samples[1:], strict=False)]
    expected = sampling.records * sampling.probability**2
    assert np.mean(together) == pytest.approx(expected, rel=0.15)


def test_noise_has_the_accounted_std_in_each_real_component(run: tuple[ZetaDpSgd, Observed]) -> None:
    spec, seen = run
    noise = torch.stack(seen.noises)
    std = spec.plan().mechanism.noise_scale
    assert std == 0.8 * 0.5
    tolerance = 6.0 / math.sqrt(2.0 * noise.numel())
    assert tolerance < 0.05
    for part in (noise.real, noise.imag):
        assert part.square().mean().sqrt().item() == pytest.approx(std, rel=tolerance)


def test_noise_of_different_steps_is_independent(run: tuple[ZetaDpSgd, Observed]) -> None:
    _, seen = run
    pairs = torch.view_as_real(torch.stack(seen.noises)).flatten(1)
    correlations = torch.corrcoef(pairs) - torch.eye(STEPS)
    assert correlations.abs().max().item() < 6.0 / math.sqrt(pairs.shape[1])


def test_noise_is_drawn_for_every_parameter(run: tuple[ZetaDpSgd, Observed]) -> None:
    _, seen = run
    assert seen.report is not None
    assert all((torch.view_as_real(noise) != 0.0).all() for noise in seen.noises)
    assert all(2 * noise.numel() == seen.report.parameters for noise in seen.noises)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_one_record_moves_the_released_sum_by_at_most_the_accounted_sensitivity(algorithm: type[TrainingSpec], tmp_path: Path) -> None:
    # One record more in the sample, everything else equal; the bound is so small that every gradient is clipped.
    spec = _small(algorithm, clipping_bound=1e-3, steps=1)
    moves: list[float] = []
    original = clipping.clipped_sum

    def with_and_without(problem: clipping.Problem, parameters: dict[str, Tensor], rows: Tensor, bound: float, size: int) -> Tensor:
        total = original(problem, parameters, rows, bound, size)
        for left_out in range(0, len(rows), 9):
            fewer = torch.cat((rows[:left_out], rows[left_out + 1 :]))
            moves.append(torch.view_as_real(total - original(problem, parameters, fewer, bound, size)).square().sum().sqrt().item())
        return total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "clipped_sum", with_and_without)
        _observe(spec, tmp_path)
    sensitivity = spec.plan().mechanism.sensitivity.l2
    assert sensitivity is not None
    assert max(moves) <= sensitivity * (1.0 + 1e-9)
    assert max(moves) >= 0.999 * sensitivity


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_empty_samples_release_noise_like_any_other(algorithm: type[TrainingSpec], tmp_path: Path) -> None:
    seen = _observe(_small(algorithm, expected_batch_size=1), tmp_path)
    empty = [number for number, rows in enumerate(seen.samples) if len(rows) == 0]
    assert 0 < len(empty) < STEPS
    assert len(seen.noises) == STEPS
    for number in empty:
        assert not seen.sums[number].any()
        assert (torch.view_as_real(seen.noises[number]) != 0.0).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_the_release_is_divided_by_the_expected_batch_whatever_was_drawn(algorithm: type[TrainingSpec], tmp_path: Path) -> None:
    moved: list[Tensor] = []

    def plain_descent(
        _spec: object, state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, _step: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        moved.append(gradient)
        return parameters - gradient, state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.engine.update", plain_descent)
        seen = _observe(_small(algorithm, expected_batch_size=40), tmp_path)
    assert len({len(rows) for rows in seen.samples}) > 5
    for gradient, total, noise in zip(moved, seen.sums, seen.noises, strict=True):
        assert torch.allclose(gradient, ((total + noise) / 40).to(torch.complex64), rtol=1e-6)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_example_is_a_spec_of_its_algorithm_and_comes_back_from_json(algorithm: type[TrainingSpec]) -> None:
    example = algorithm.example()
    assert type(example) is algorithm
    assert algorithm.model_validate_json(example.model_dump_json()) == example
