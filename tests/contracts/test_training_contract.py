r"""What every training algorithm promises: the event that is accounted is exactly what the loop did.

The loop is watched from outside: every draw of a sample, every release and its noise. In a federation every node is watched by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.accountants.events import PoissonSampled, Release, Repeated
from zetadp.mechanisms import Mechanism, NoiseSource, RandomStream
from zetadp.trainer import ALGORITHMS, FederatedZetaDpSgd, RuntimeSpec, TrainingSpec, load_train
from zetadp.trainer.data.splits import record_keys
from zetadp.trainer.engine import ClippedGradients, ClippedSum, units_at_nodes
from zetadp.trainer.engine.gradients import sampling
from zetadp.trainer.engine.gradients.clipping import CLIP_MARGIN
from zetadp.trainer.layers.flat_parameters import as_real
from zetadp.trainer.specs.execution_plan import LayerBoundsClipping
from zetadp.trainer.specs.network_training import BoundedTraining, NetworkTraining
from zetadp.trainer.specs.report import RunReport

STEPS = 25
BOUND = 0.5

NETWORKS = tuple(algorithm for algorithm in ALGORITHMS if issubclass(algorithm, NetworkTraining))
BOUNDED = tuple(algorithm for algorithm in NETWORKS if issubclass(algorithm, BoundedTraining))


def _name(algorithm: type[TrainingSpec]) -> str:
    return algorithm.__name__


@dataclass
class Observed:
    """What one run did, in order: step by step, and within a step node by node."""

    sizes: list[int] = field(default_factory=list)
    samples: list[NDArray[Any]] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    mechanisms: list[Mechanism] = field(default_factory=list)
    noises: list[Tensor] = field(default_factory=list)
    report: RunReport | None = None


def _small(algorithm: type[TrainingSpec], **changes: Any) -> NetworkTraining:
    """The algorithm's example, seeded, with few steps."""
    document = algorithm.example().model_dump(mode="json", exclude_none=True)
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-4, "noise_multiplier": 0.8}
    document |= {"steps": STEPS, "reproducible": True, "seed": 3, "privacy": privacy} | _bounded(document, BOUND) | changes
    spec = algorithm.model_validate(document)
    assert isinstance(spec, NetworkTraining)
    return spec


def _bounded(document: dict[str, Any], bound: float) -> dict[str, Any]:
    """What bounds a unit's gradient: as a whole, or the same for each layer, which together come to more."""
    return {"layers": document["layers"] | {"clipping_bound": bound}} if "layers" in document else {"clipping_bound": bound}


def _total_bound(spec: NetworkTraining, bound: float) -> float:
    clipping = spec.plan().clipping
    return bound * math.sqrt(len(clipping.layers)) if isinstance(clipping, LayerBoundsClipping) else bound


def _nodes(spec: NetworkTraining) -> tuple[int, ...]:
    """Units at each node; one node where there is no federation."""
    drawn_from = spec.plan().sampling
    if not isinstance(spec, FederatedZetaDpSgd):
        return (drawn_from.records,)
    data = spec.data.read()
    keys = record_keys(data.training_features, data.training_targets)
    sizes = tuple(len(units) for units in units_at_nodes(keys, spec.nodes, spec.distribution_seed))
    assert sum(sizes) == drawn_from.records
    return sizes


def _observe(spec: NetworkTraining, workdir: Path) -> Observed:
    seen = Observed()
    kind = type(spec.plan().mechanism)
    original_release, original_sample = kind.release, sampling.poisson_sample

    def release(self: Mechanism, value: Tensor, source: NoiseSource[Tensor]) -> Tensor:
        released = original_release(self, value, source)
        seen.mechanisms.append(self)
        seen.sums.append(value.clone())
        seen.noises.append(released - value)
        return released

    def sample(units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
        drawn = original_sample(units, probability, stream)
        seen.sizes.append(units)
        seen.probabilities.append(probability)
        seen.samples.append(drawn)
        return drawn

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "release", release)
        patch.setattr(sampling, "poisson_sample", sample)
        runtime = RuntimeSpec(device="cpu", threads=1)
        seen.report = load_train(spec)(spec, spec.plan(), runtime, workdir, report=lambda _event: None, should_stop=lambda: False)
    return seen


@pytest.fixture(scope="module", params=NETWORKS, ids=_name)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[NetworkTraining, Observed]:
    spec = _small(request.param)
    return spec, _observe(spec, tmp_path_factory.mktemp("run"))


def test_plan_event_equals_what_was_counted_at_each_node(run: tuple[NetworkTraining, Observed]) -> None:
    spec, seen = run
    plan, nodes = spec.plan(), _nodes(spec)
    assert all(repr(mechanism) == repr(plan.mechanism) for mechanism in seen.mechanisms)
    assert set(seen.probabilities) == {plan.sampling.probability}
    assert tuple(seen.sizes) == nodes * STEPS
    releases, rest = divmod(len(seen.noises), len(nodes))
    assert rest == 0
    counted = Repeated(count=releases, event=PoissonSampled(probability=seen.probabilities[0], event=Release(mechanism=plan.mechanism)))
    assert plan.event == counted
    assert seen.report is not None
    assert seen.report.event == counted


def test_samples_are_drawn_with_the_accounted_probability_at_each_node(run: tuple[NetworkTraining, Observed]) -> None:
    spec, seen = run
    q, nodes = spec.plan().sampling.probability, _nodes(spec)
    for number, units in enumerate(nodes):
        joined = sum(len(drawn) for drawn in seen.samples[number :: len(nodes)])
        trials = STEPS * units
        # Five standard errors, below 15 % of q here: 30 % off would be seen.
        assert abs(joined / trials - q) < 5.0 * math.sqrt(q * (1.0 - q) / trials) < 0.15 * q


def test_samples_of_different_steps_are_independent(run: tuple[NetworkTraining, Observed]) -> None:
    spec, seen = run
    nodes, q = _nodes(spec), spec.plan().sampling.probability
    for number, units in enumerate(nodes):
        samples = seen.samples[number :: len(nodes)]
        together = sum(len(np.intersect1d(first, second)) for first, second in pairwise(samples))
        trials = (STEPS - 1) * units
        # A unit's consecutive pairs share a sample: per pair their sum varies by q^2 (1 - q^2) + 2 (q^3 - q^4) <= 1.5 q^2.
        assert together / trials == pytest.approx(q * q, abs=5.0 * math.sqrt(1.5 * q * q / trials))


def test_noise_has_the_accounted_std_in_each_real_component_at_each_node(run: tuple[NetworkTraining, Observed]) -> None:
    spec, seen = run
    std, nodes = spec.plan().mechanism.noise_scale, _nodes(spec)
    assert std == pytest.approx(0.8 * _total_bound(spec, BOUND), rel=1e-15)
    for number in range(len(nodes)):
        noise = torch.stack(seen.noises[number :: len(nodes)])
        tolerance = 6.0 / math.sqrt(2.0 * noise.numel())
        assert tolerance < 0.05
        for part in (noise.real, noise.imag) if noise.is_complex() else (noise,):
            assert part.square().mean().sqrt().item() == pytest.approx(std, rel=tolerance)


def test_noise_of_different_steps_and_nodes_is_independent(run: tuple[NetworkTraining, Observed]) -> None:
    _, seen = run
    components = as_real(torch.stack(seen.noises)).flatten(1)
    correlations = torch.corrcoef(components) - torch.eye(len(components))
    assert correlations.abs().max().item() < 6.0 / math.sqrt(components.shape[1])


def test_noise_is_drawn_for_every_parameter_or_kept_coordinate(run: tuple[NetworkTraining, Observed]) -> None:
    spec, seen = run
    assert seen.report is not None
    projection = spec.plan().projection
    filtered = 0 if projection is None else sum(one.signals * (math.prod(one.shape) - one.coordinates) for one in projection.layers)
    assert all((as_real(noise) != 0.0).all() for noise in seen.noises)
    assert {as_real(noise).numel() for noise in seen.noises} == {seen.report.parameters - filtered}


@pytest.mark.parametrize(
    ("algorithm", "clipping"),
    [(algorithm, kind) for algorithm in NETWORKS for kind in (("flat", "per_layer") if algorithm in BOUNDED else ("own",))],
)
def test_one_unit_moves_the_released_sum_by_at_most_the_accounted_sensitivity(
    algorithm: type[TrainingSpec], clipping: str, tmp_path: Path
) -> None:
    # One unit more in the sample, everything else equal; the bound is so small that every gradient is clipped.
    bounded = _bounded(algorithm.example().model_dump(mode="json", exclude_none=True), 1e-3)
    spec = _small(algorithm, steps=1, **bounded, **({} if clipping == "own" else {"clipping": {"kind": clipping}}))
    moves: list[float] = []
    original = ClippedGradients.sum

    def with_and_without(self: ClippedGradients, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        clipped = original(self, parameters, units, bound)
        for left_out in range(0, len(units), 17):
            fewer = torch.cat((units[:left_out], units[left_out + 1 :]))
            moves.append((clipped.total.double() - original(self, parameters, fewer, bound).total.double()).norm().item())
        return clipped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClippedGradients, "sum", with_and_without)
        _observe(spec, tmp_path)
    sensitivity = spec.plan().mechanism.sensitivity.l2
    assert sensitivity is not None
    assert max(moves) <= sensitivity
    # The margin below the bound is 2^-8. What is filtered after clipping is shorter than the bound.
    projection = spec.plan().projection
    tight = projection is None or projection.order == "project_then_clip"
    assert max(moves) >= (1.0 - 1.25 * CLIP_MARGIN if tight else 0.5) * sensitivity


@pytest.mark.parametrize("algorithm", NETWORKS, ids=_name)
def test_empty_samples_release_noise_like_any_other(algorithm: type[TrainingSpec], tmp_path: Path) -> None:
    spec = _small(algorithm, expected_batch_size=1)
    seen = _observe(spec, tmp_path)
    empty = [number for number, drawn in enumerate(seen.samples) if len(drawn) == 0]
    assert 0 < len(empty) < len(seen.samples)
    assert len(seen.noises) == STEPS * len(_nodes(spec))
    for number in empty:
        assert not seen.sums[number].any()
        assert (as_real(seen.noises[number]) != 0.0).all()


@pytest.mark.parametrize("algorithm", NETWORKS, ids=_name)
def test_the_release_is_divided_by_public_constants_whatever_was_drawn(algorithm: type[TrainingSpec], tmp_path: Path) -> None:
    moved: list[Tensor] = []

    def plain_descent(
        _optimizer: object,
        state: dict[str, Tensor],
        parameters: Tensor,
        gradient: Tensor,
        _step: int,
        _steps: int,
        _noise_std: float,
        _into: Tensor | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        moved.append(gradient)
        return parameters - gradient, state

    spec = _small(algorithm, expected_batch_size=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zetadp.trainer.engine.network_run.update", plain_descent)
        seen = _observe(spec, tmp_path)
    nodes = len(_nodes(spec))
    assert len({len(drawn) for drawn in seen.samples}) > 5
    for step, gradient in enumerate(moved):
        arrived = sum(seen.sums[node] + seen.noises[node] for node in range(nodes * step, nodes * (step + 1)))
        assert isinstance(arrived, Tensor)
        released = as_real(arrived / nodes / 40).reshape(-1)
        if len(released) < len(gradient):
            # Orthonormal coordinates of fewer dimensions: taken to the parameters they keep their length.
            assert gradient.norm().item() == pytest.approx(released.norm().item(), rel=1e-5)
        else:
            # Sums in float32; entries far smaller than the noise lose digits to it.
            assert torch.allclose(gradient, released, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("algorithm", BOUNDED, ids=_name)
def test_adaptive_clipping_releases_one_vector_of_sensitivity_one(algorithm: type[TrainingSpec], tmp_path: Path) -> None:
    spec = _small(algorithm, clipping={"kind": "adaptive", "quantile": 0.5, "learning_rate": 0.2, "count_share": 0.1}, steps=3)
    seen = _observe(spec, tmp_path)
    assert set(map(repr, seen.mechanisms)) == {repr(spec.plan().mechanism)}
    assert spec.plan().mechanism.sensitivity.l2 == 1.0
    assert seen.report is not None
    assert seen.report.event == Repeated(
        count=3, event=PoissonSampled(probability=spec.plan().sampling.probability, event=Release(mechanism=spec.plan().mechanism))
    )
    # Parameters and one count, in complex pairs; an odd number is padded.
    assert all(noise.numel() == (seen.report.parameters + 2) // 2 for noise in seen.noises)


@pytest.mark.parametrize("algorithm", NETWORKS, ids=_name)
def test_example_is_a_spec_of_its_algorithm_and_comes_back_from_json(algorithm: type[TrainingSpec]) -> None:
    example = algorithm.example()
    assert type(example) is algorithm
    assert algorithm.model_validate_json(example.model_dump_json()) == example
