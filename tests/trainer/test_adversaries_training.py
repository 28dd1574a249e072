"""Broken clipping and sampling, at a claim of epsilon 4: units that weigh too much are refused before the first release, and samples that
aren't Poisson's don't look like them. The test of the noise and canaries see neither a bound 1.5 times too large nor fixed batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from tests.selection import chosen, thinned
from tests.trainer.layer_cases import CASES, MEMBERS, problem_of
from tests.trainer.made_up import all_steps
from tests.trainer.spectral_cases import CASES as SPECTRAL_CASES
from tests.trainer.spectral_cases import ORDERS, spectra_of
from zetadp import accountants
from zetadp.mechanisms import Adjacency, Gaussian, Laplace, RandomStream
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import ExecutionPlan, RuntimeSpec, ZetaDpSgd, load_train
from zetadp.trainer.engine import (
    Alone,
    ClippedGradients,
    ClippedSum,
    ParameterLayout,
    PrivateLoop,
    Problem,
    SeededRandomness,
    Site,
    TrainingState,
)
from zetadp.trainer.engine import run as lifecycle
from zetadp.trainer.engine.autoencoders import SLOPES, ClippedRows
from zetadp.trainer.engine.autoencoders import clipping as rows_clipping
from zetadp.trainer.engine.autoencoders.network import Autoencoder
from zetadp.trainer.engine.autoencoders.rows import TrainingRows
from zetadp.trainer.engine.gradients import clipping, sampling
from zetadp.trainer.engine.gradients.contributions import check_contributions
from zetadp.trainer.engine.gradients.per_unit import Microbatch
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.layers.rules import LayerGradients
from zetadp.trainer.specs.autoencoder import AutoencoderShape
from zetadp.trainer.specs.execution_plan import (
    SMALLEST_BOUND,
    AdaptiveClipping,
    Clipping,
    FlatClipping,
    L1Clipping,
    PerLayerClipping,
    clipped_sensitivity,
)
from zetadp.trainer.specs.projection import SpectralProjection
from zetadp.trainer.specs.sampling import FederatedSampling, PoissonSampling

STEPS = (40, 100)
MULTIPLIERS = {40: 1.5, 100: 2.25}
"""Noise multipliers for epsilon 4, by steps."""

UNITS, LOT, DELTA = 30, 5, 1e-5
COUNTS = torch.arange(20) % 3
REFUSED = "a made-up unit moves the released sum by at most the bound that the noise is for"

FACTORS, ROW_FACTORS, GRADIENTS, START = clipping._factors, rows_clipping._weights, ClippedGradients.gradients, lifecycle._starting_point


# Clipping


class Changed:
    """A layer's gradients, with other norms or other factors."""

    def __init__(self, layer: LayerGradients, *, counted: bool, clipped: bool) -> None:
        self._layer, self._counted, self._clipped = layer, counted, clipped

    def squared_norms(self) -> Tensor:
        return self._layer.squared_norms() * (1.0 if self._counted else 0.0)

    def weighted_sum(self, factors: Tensor, sample: int = 0) -> dict[str, Tensor]:
        return self._layer.weighted_sum(factors if self._clipped else torch.ones_like(factors), sample)


def layer(number: int, *, counted: bool = True, clipped: bool = True) -> Callable[..., Sequence[LayerGradients]]:
    def gradients(engine: ClippedGradients, parameters: Mapping[str, Tensor], batch: Microbatch) -> Sequence[LayerGradients]:
        found = list(GRADIENTS(engine, parameters, batch))
        found[number] = Changed(found[number], counted=counted, clipped=clipped)
        return found

    return gradients


def by_the_batch(norms: Tensor, aims: float | Tensor) -> Tensor:
    """The batch's mean gradient is clipped, and not each unit's."""
    return FACTORS(norms.mean(dim=-1, keepdim=True).expand_as(norms), aims)


def enlarged(factor: float) -> Callable[..., Tensor]:
    return lambda norms, aims: FACTORS(norms, aims * factor)


def started(factor: float) -> Callable[..., Any]:
    def start(*given: Any) -> Any:
        found = START(*given)
        return replace(found, state=replace(found.state, bound=factor * found.state.bound))

    return start


BROKEN: dict[str, tuple[object, str, object]] = {
    "bound 1.5 times too large": (clipping, "_factors", enlarged(1.5)),
    "bound 1 % too large": (clipping, "_factors", enlarged(1.01)),
    "state's bound 1.5 times too large": (lifecycle, "_starting_point", started(1.5)),
    "first layer not clipped": (ClippedGradients, "gradients", layer(0, clipped=False)),
    "last layer not clipped": (ClippedGradients, "gradients", layer(-1, clipped=False)),
    "last layer not in the norm": (ClippedGradients, "gradients", layer(-1, counted=False)),
    "nothing clipped": (clipping, "_factors", lambda norms, _aims: torch.ones_like(norms)),
    "clipped by the batch": (clipping, "_factors", by_the_batch),
}


def claimed(steps: int) -> ZetaDpSgd:
    spec = ZetaDpSgd.example().model_dump(mode="json")
    spec["privacy"] = spec["privacy"] | {"epsilon": 4.0, "noise_multiplier": None}
    return ZetaDpSgd.model_validate(spec | {"steps": steps, "expected_batch_size": 150, "reproducible": True, "seed": 3})


def run(steps: int, folder: Path) -> object:
    spec = claimed(steps)
    return load_train(spec)(spec, spec.plan(), RuntimeSpec(threads=1), folder, report=lambda _: None, should_stop=lambda: False)


@pytest.mark.parametrize("steps", chosen(STEPS, STEPS[:1]))
@pytest.mark.parametrize("broken", thinned(BROKEN, every=3))
def test_a_run_whose_units_weigh_too_much_is_refused_before_anything_is_released(
    broken: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, name, build = BROKEN[broken]
    monkeypatch.setattr(place, name, build)
    monkeypatch.setattr(releasing, "release", lambda *_: pytest.fail("something was released"))
    with pytest.raises(InvalidParameter, match=REFUSED):
        run(steps, tmp_path)
    assert not list(tmp_path.iterdir())


def plan_of(of: Clipping, adjacency: Adjacency = Adjacency.ADD_REMOVE, projection: SpectralProjection | None = None) -> ExecutionPlan:
    sensitivity = clipped_sensitivity(of, adjacency, "record")
    mechanism = Laplace(scale=2.0, sensitivity=sensitivity) if isinstance(of, L1Clipping) else Gaussian(std=2.0, sensitivity=sensitivity)
    sampling = PoissonSampling(records=10, expected_batch_size=5)
    return ExecutionPlan(sampling=sampling, clipping=of, mechanism=mechanism, steps=1, delta=1e-5, projection=projection)


def adaptive(bound: float) -> AdaptiveClipping:
    return AdaptiveClipping(initial_bound=bound, quantile=0.5, learning_rate=0.1, count_share=0.2)


CLIPPINGS: list[Clipping] = [FlatClipping(bound=1e6), PerLayerClipping(bound=1e-6), adaptive(0.5)]


@pytest.mark.parametrize("members", [None, MEMBERS], ids=["records", "users"])
@pytest.mark.parametrize("name", thinned(CASES, every=12))
def test_every_layer_and_clipping_passes_and_a_hundredth_too_much_does_not(
    name: str, members: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(CASES[name], members)
    for of in CLIPPINGS:
        clipped = ClippedGradients(problem, of, 16)
        for adjacency in Adjacency:
            check_contributions(clipped, plan_of(of, adjacency), of.bound)
        with monkeypatch.context() as broken:
            broken.setattr(clipping, "_factors", enlarged(1.01))
            with pytest.raises(InvalidParameter, match=REFUSED):
                check_contributions(clipped, plan_of(of), of.bound)


@pytest.mark.parametrize("bound", thinned([SMALLEST_BOUND, 1e-3, 1e30], every=3))
@pytest.mark.parametrize(
    "clipping_with", thinned([lambda bound: FlatClipping(bound=bound), lambda bound: PerLayerClipping(bound=bound), adaptive], every=2)
)
def test_every_layer_of_a_network_is_tried_at_every_bound(
    clipping_with: Callable[[float], Clipping], bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose layers' gradients are of very different lengths."""
    torch.manual_seed(1)
    last = nn.Linear(5, 3)
    network = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), last)
    with torch.no_grad():
        last.weight.mul_(1e-3)
    features = torch.randn(20, 6)
    problem = Problem(network, lambda scores, labels: nn.functional.cross_entropy(scores, labels, reduction="none"), features, COUNTS, None)
    of = clipping_with(bound)
    clipped = ClippedGradients(problem, of, 16)
    check_contributions(clipped, plan_of(of), bound)
    for number in range(3):
        monkeypatch.setattr(ClippedGradients, "gradients", layer(number, clipped=False))
        with pytest.raises(InvalidParameter, match=REFUSED):
            check_contributions(clipped, plan_of(of), bound)
    monkeypatch.setattr(ClippedGradients, "gradients", GRADIENTS)
    monkeypatch.setattr(clipping, "_factors", enlarged(1.01))
    with pytest.raises(InvalidParameter, match=REFUSED):
        check_contributions(clipped, plan_of(of), bound)


@pytest.mark.parametrize("name", thinned(SPECTRAL_CASES, every=4))
@pytest.mark.parametrize("order", thinned(ORDERS, every=2))
def test_filtered_gradients_are_tried_as_they_are_released(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = SPECTRAL_CASES[name]
    problem = problem_of(replace(case, network=lambda stream: nn.Sequential(case.network(stream))), None)
    projection = SpectralProjection.model_validate({"order": order, "layers": spectra_of(problem.network, 0.5, None)})
    of = FlatClipping(bound=1.0)
    clipped = ClippedGradients(problem, of, 16, projection)
    check_contributions(clipped, plan_of(of, projection=projection), of.bound)
    monkeypatch.setattr(clipping, "_factors", enlarged(8.0))  # a filter may leave little of what was clipped before it
    with pytest.raises(InvalidParameter, match=REFUSED):
        check_contributions(clipped, plan_of(of, projection=projection), of.bound)


@pytest.mark.parametrize("members", [None, torch.arange(12).reshape(6, 2)], ids=["rows", "users"])
@pytest.mark.parametrize("of", [L1Clipping(bound=0.3), FlatClipping(bound=0.3)], ids=["l1", "l2"])
def test_autoencoders_rows_are_tried_too(of: Clipping, members: Tensor | None, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Autoencoder.of(AutoencoderShape(features=6, hidden=2, encoders=2), torch.device("cpu"))
    rows = TrainingRows(torch.rand(12, 6, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 2, members)
    clipped = ClippedRows(network, rows, SLOPES["cross_entropy"], "l1" if isinstance(of, L1Clipping) else "l2")
    for adjacency in Adjacency:
        check_contributions(clipped, plan_of(of, adjacency), of.bound)
    monkeypatch.setattr(rows_clipping, "_weights", lambda norms, bound: ROW_FACTORS(norms, 1.01 * bound))
    with pytest.raises(InvalidParameter, match=REFUSED):
        check_contributions(clipped, plan_of(of), of.bound)


# Sampling

Sampler = Callable[[int, float, RandomStream], NDArray[np.intp]]
POISSON = sampling.poisson_sample
UNLIKELY = 1e-6
"""Of right samples, in each of four tests; seeds are fixed."""


def fixed_size(units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
    return np.sort(np.argsort(stream.uniform(units))[: round(probability * units)])


def one_batch(units: int, probability: float, _stream: RandomStream) -> NDArray[np.intp]:
    return np.arange(round(probability * units))


class Epochs:
    """Shuffled once an epoch and cut into batches, as most training does."""

    def __init__(self) -> None:
        self._coming: list[NDArray[np.intp]] = []

    def __call__(self, units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
        if not self._coming:
            self._coming = np.array_split(np.argsort(stream.uniform(units)), round(1.0 / probability))
        return np.sort(self._coming.pop())


class Twice:
    """Every sample serves two steps."""

    def __init__(self) -> None:
        self._left: NDArray[np.intp] | None = None

    def __call__(self, units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
        again, self._left = self._left, None
        if again is not None:
            return again
        self._left = POISSON(units, probability, stream)
        return self._left


def too_many(units: int, probability: float, stream: RandomStream) -> NDArray[np.intp]:
    return POISSON(units, 1.5 * probability, stream)


SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "fixed size": lambda: fixed_size,
    "one batch": lambda: one_batch,
    "epochs": Epochs,
    "twice": Twice,
    "1.5 times too many": lambda: too_many,
}


class Noted:
    """In the place of clipped sums: who was asked for."""

    def __init__(self) -> None:
        self.samples: list[Tensor] = []

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> ClippedSum:
        self.samples.append(units)
        return ClippedSum(torch.zeros(sum(value.numel() for value in parameters.values())), torch.zeros(len(units)), bound, 0)


def sampled(steps: int, seed: int, nodes: int = 1) -> NDArray[np.float64]:
    """Who was in the sum of which step of a whole training at the claimed epsilon: (steps, units) of 0 and 1."""
    noted, of = Noted(), FlatClipping(bound=1.0)
    each = UNITS // nodes
    sampling = FederatedSampling(nodes=nodes, records=each * nodes, expected_batch_size=LOT // nodes)
    plan = ExecutionPlan(
        sampling=PoissonSampling(records=UNITS, expected_batch_size=LOT) if nodes == 1 else sampling,
        clipping=of,
        mechanism=Gaussian(std=MULTIPLIERS[steps], sensitivity=clipped_sensitivity(of, Adjacency.ADD_REMOVE, "record")),
        steps=steps,
        delta=DELTA,
    )
    assert nodes > 1 or 3.5 < accountants.profile(plan.event).epsilon_upper(DELTA) <= 4.0
    sites = [Site(units, SeededRandomness(100 * seed + number)) for number, units in enumerate(torch.arange(UNITS).split(each))]
    layout = ParameterLayout(("weight",), ((2,),), (False,))
    whole = PrivateLoop(noted, layout, plan, sites, lambda state, parameters, _gradient, _step: (parameters, state), Alone())
    all_steps(whole, TrainingState(0, torch.zeros(2), {}, of.bound))
    table = np.zeros((steps, UNITS))
    for number, units in enumerate(noted.samples):
        table[number // nodes, units.numpy()] = 1.0
    return table


def p_values(table: NDArray[np.float64], probability: float) -> dict[str, float]:
    """Of sizes, of how often each unit was drawn, of the two together, and of how many units two steps in a row share."""
    steps, units = table.shape
    spread = probability * (1.0 - probability)
    sizes = ((table.sum(axis=1) - units * probability) ** 2).sum() / (units * spread)
    units_drawn = ((table.sum(axis=0) - steps * probability) ** 2).sum() / (steps * spread)
    shared = (table[1:] * table[:-1]).sum()
    pairs = (steps - 1) * units
    # Neighbouring products share a draw.
    deviation = np.sqrt(pairs * (probability**2 - probability**4) + 2.0 * (pairs - units) * (probability**3 - probability**4))
    return {
        "sizes": _two_sided(stats.chi2(steps), sizes),
        "units": _two_sided(stats.chi2(units), units_drawn),
        "all": _two_sided(stats.binom(table.size, probability), table.sum()),
        "shared": _two_sided(stats.norm(pairs * probability**2, deviation), shared),
    }


def _two_sided(law: Any, found: float) -> float:
    return 2.0 * min(float(law.cdf(found)), float(law.sf(found)))


@pytest.mark.parametrize("steps", chosen(STEPS, STEPS[:1]))
@pytest.mark.parametrize("broken", SAMPLERS)
def test_samples_that_are_not_poissons_are_found(broken: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        monkeypatch.setattr(sampling, "poisson_sample", SAMPLERS[broken]())
        assert min(p_values(sampled(steps, seed), LOT / UNITS).values()) < UNLIKELY


@pytest.mark.parametrize("steps", chosen(STEPS, STEPS[:1]))
def test_the_loop_s_samples_are_poissons(steps: int) -> None:
    for seed in range(10):
        assert min(p_values(sampled(steps, seed), LOT / UNITS).values()) > UNLIKELY
    # Of a federation all nodes' together: each draws among its own.
    assert min(p_values(sampled(steps, 0, nodes=5), LOT / UNITS).values()) > UNLIKELY
