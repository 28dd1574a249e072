"""Nobody's presence shows in the last bits of a release: every algorithm and type, against who knows all other records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.selection import chosen, thinned
from tests.trainer.lattice_attack import (
    FEW,
    RUNS,
    Case,
    Noise,
    attacked,
    float_noise,
    in_float32,
    largest_gap,
    on_one_grid,
    on_the_grid,
    on_the_unmoved_grid,
    sound,
    source_of,
    unrounded,
    watched,
)
from tests.trainer.spectral_cases import circulant, spectra_of
from zetadp.accountants.events import Event, Release
from zetadp.mechanisms import (
    Adjacency,
    ComplexGaussian,
    DuchiLinf,
    Gaussian,
    Laplace,
    LocalGaussian,
    LocalLaplace,
    RandomStream,
    Sensitivity,
    SpofCoefficients,
)
from zetadp.trainer import ExecutionPlan
from zetadp.trainer.algorithms.functional_mechanism.sums_release import released
from zetadp.trainer.algorithms.obfuscation.release import clipped as clipped_features
from zetadp.trainer.engine import (
    Alone,
    ClippedGradients,
    HeldOutRecords,
    ParameterLayout,
    PrivateLoop,
    Problem,
    SeededRandomness,
    Site,
    TrainingState,
)
from zetadp.trainer.engine.autoencoders import SLOPES, ClippedRows, layout_of
from zetadp.trainer.engine.autoencoders.network import Autoencoder
from zetadp.trainer.engine.autoencoders.rows import TrainingRows
from zetadp.trainer.engine.autoencoders.statistics import Code
from zetadp.trainer.engine.gradients.spectral_vector import Spectra
from zetadp.trainer.engine.loop import ClippedSums
from zetadp.trainer.engine.noise import releasing
from zetadp.trainer.engine.noise.releasing import Clipped
from zetadp.trainer.layers.linear import ComplexLinear
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.autoencoder import AutoencoderShape
from zetadp.trainer.specs.execution_plan import AdaptiveClipping, Clipping, FlatClipping, L1Clipping, PrivateEvaluation
from zetadp.trainer.specs.plans import StatisticReleasePlan
from zetadp.trainer.specs.projection import SpectralProjection
from zetadp.trainer.specs.sampling import FederatedSampling, PoissonSampling

UNITS = 16
BOUND = 1.0
STD = 2.3
"""Times the bound: a record moves the release by less than half a deviation, so that little is allowed."""

ADAPTIVE = AdaptiveClipping(initial_bound=BOUND, quantile=0.5, learning_rate=0.2, count_share=0.1)


def moved(clipping: Clipping) -> Sensitivity:
    size = clipping.sensitivity
    one = isinstance(clipping, L1Clipping)
    return Sensitivity(**{"l1" if one else "l2": size}, adjacency=Adjacency.ADD_REMOVE, unit="record")


def gaussian(clipping: Clipping) -> Gaussian:
    return Gaussian(std=STD * clipping.sensitivity, sensitivity=moved(clipping))


def circular(clipping: Clipping) -> ComplexGaussian:
    return ComplexGaussian(std=STD * clipping.sensitivity, sensitivity=moved(clipping))


# Training: one step from known weights, in which everybody takes part


class Remembered:
    """The clipped sum of a sample, computed once: weights are the same in every run."""

    def __init__(self, clipped: ClippedSums) -> None:
        self._clipped = clipped
        self._sums: dict[tuple[int, ...], Clipped] = {}

    def sum(self, parameters: Mapping[str, Tensor], units: Tensor, bound: float) -> Clipped:
        who = tuple(units.tolist())
        if who not in self._sums:
            self._sums[who] = self._clipped.sum(parameters, units, bound)
        return self._sums[who]


def steps_of(
    clipped: ClippedSums, layout: ParameterLayout, plan: ExecutionPlan, parameters: Tensor, spectra: Spectra | None = None
) -> Case:
    """The last unit is there or isn't; in a federation it lives at the first node."""
    sampling = plan.sampling
    places = [torch.arange(UNITS - 1, -1, -1).split(UNITS // 2), (torch.arange(UNITS),)][isinstance(sampling, PoissonSampling)]
    remembered = Remembered(clipped)

    def step(world: int, seed: int) -> TrainingState:
        units = [place if world else place[place != UNITS - 1] for place in places]
        sites = [Site(one, SeededRandomness(2 * seed + number)) for number, one in enumerate(units)]
        loop = PrivateLoop(remembered, layout, plan, sites, lambda state, at, gradient, _: (at - gradient, state), Alone(), spectra=spectra)
        return loop.step(TrainingState(0, parameters, {}, plan.clipping.bound))

    return Case(plan.mechanism, plan.event, step)


def plan_of(
    mechanism: Callable[[Clipping], Gaussian | ComplexGaussian | Laplace],
    clipping: Clipping,
    *,
    nodes: int = 1,
    projection: SpectralProjection | None = None,
) -> ExecutionPlan:
    each = UNITS // nodes
    poisson = PoissonSampling(records=UNITS, expected_batch_size=UNITS)
    sampling = poisson if nodes == 1 else FederatedSampling(nodes=nodes, records=each * nodes, expected_batch_size=each)
    return ExecutionPlan(sampling=sampling, clipping=clipping, mechanism=mechanism(clipping), steps=1, delta=1e-5, projection=projection)


def network_case(
    network: nn.Module,
    features: Tensor,
    mechanism: Callable[[Clipping], Gaussian | ComplexGaussian],
    clipping: Clipping,
    *,
    nodes: int = 1,
    projection: SpectralProjection | None = None,
) -> Case:
    plan = plan_of(mechanism, clipping, nodes=nodes, projection=projection)
    problem = Problem(network, losses, features, torch.arange(UNITS) % 3, None)
    clipped = ClippedGradients(problem, clipping, UNITS, projection, UNITS)
    parameters = clipped.layout.flatten(dict(network.named_parameters()))
    return steps_of(clipped, clipped.layout, plan, parameters, clipped.spectra)


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs.abs() if outputs.is_complex() else outputs, targets, reduction="none")


def features(*shape: int, is_complex: bool = False) -> Tensor:
    """The last record is long: its gradient is clipped."""
    numbers = torch.from_numpy(RandomStream.from_seed(1, "features").normal(2 * UNITS * int(np.prod(shape)))).float()
    pair = numbers.reshape(2, UNITS, *shape) * torch.where(torch.arange(UNITS) == UNITS - 1, 8.0, 1.0).reshape(-1, *[1] * len(shape))
    return torch.complex(pair[0], pair[1]) if is_complex else pair[0]


def stream(name: str) -> RandomStream:
    return RandomStream.from_seed(1, name)


def zeta(nodes: int = 1, clipping: Clipping | None = None) -> Case:
    network = ComplexLinear(5, 3, stream("weights"))
    return network_case(network, features(5, is_complex=True), circular, clipping or FlatClipping(bound=BOUND), nodes=nodes)


def real(clipping: Clipping | None = None) -> Case:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    return network_case(network, features(6), gaussian, clipping or FlatClipping(bound=BOUND))


def spectral(order: str, *, blocks: bool) -> Case:
    torch.manual_seed(1)
    if blocks:
        layers = [circulant(12, 8, 4, stream("weights")), nn.Tanh(), nn.Linear(8, 3)]
    else:
        layers = [nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)]
    network = nn.Sequential(*layers)
    projection = SpectralProjection.model_validate({"order": order, "layers": spectra_of(network, 0.5, None)})
    return network_case(network, features(12) if blocks else features(2, 4, 4), gaussian, FlatClipping(bound=BOUND), projection=projection)


def autoencoder(clipping: Clipping) -> Case:
    shape = AutoencoderShape(features=6, hidden=2, encoders=2)
    network = Autoencoder.of(shape, torch.device("cpu"))
    rows = TrainingRows(torch.sigmoid(features(6)), torch.arange(UNITS) % 2, None)
    norm = "l1" if isinstance(clipping, L1Clipping) else "l2"
    parameters = torch.from_numpy(stream("weights").normal(shape.coordinates)).float()
    plan = plan_of(laplace if norm == "l1" else gaussian, clipping)
    return steps_of(ClippedRows(network, rows, SLOPES["cross_entropy"], norm, UNITS), layout_of(network), plan, parameters)


def laplace(clipping: Clipping) -> Laplace:
    return Laplace(scale=STD * clipping.sensitivity, sensitivity=moved(clipping))


# Releases that happen once


def values_case(mechanism: Noise, values: Sequence[Tensor], event: Event | None = None) -> Case:
    return Case(mechanism, event or Release(mechanism=mechanism), lambda world, seed: mechanism.release(values[world], source_of(seed)))


def local(mechanism: Noise) -> Case:
    """One person's record, at one corner of the box or near the other."""
    lower, upper = mechanism.lower, mechanism.upper  # pyright: ignore[reportAttributeAccessIssue]
    size = mechanism.dimension  # pyright: ignore[reportAttributeAccessIssue]
    corner, other = torch.full((size,), lower + 0.1, dtype=torch.float64), torch.linspace(lower + 0.3, upper, size, dtype=torch.float64)
    return values_case(mechanism, [corner, other.clamp(lower, upper)])


def functional(noise: Callable[[Clipping], Gaussian | Laplace]) -> Case:
    """Sums over all records, of which one may be missing."""
    spec = FunctionalMechanism.example()
    size, hidden = 5, 3
    code = Code.of(size, hidden, spec.spread, stream("public code"))
    rows = torch.sigmoid(features(size))
    sums = [code.sums(rows[: UNITS - 1 + world]) for world in (0, 1)]
    apart = (sums[1] - sums[0]).abs().sum() if noise is laplace else (sums[1] - sums[0]).norm()
    clipping = (L1Clipping if noise is laplace else FlatClipping)(bound=float(apart) * 1.01)
    mechanism = noise(clipping)
    plan = StatisticReleasePlan(mechanism=mechanism, numbers=len(sums[0]), units=UNITS, steps=1, delta=1e-5)
    return Case(
        mechanism,
        plan.event,
        lambda world, seed: released(plan, code, rows[: UNITS - 1 + world], lambda _sums: RandomStream.from_seed(seed, "noise")),
    )


def noisy_feature() -> Case:
    """An encoding's feature before the angle."""
    sensitivity = Sensitivity(l2=2.0 * BOUND, adjacency=Adjacency.REPLACE_ONE, unit="image")
    return values_case(Gaussian(std=4.1, sensitivity=sensitivity), list(clipped_features(features(20)[[0, UNITS - 1]], BOUND)))


def noisy_count() -> Case:
    """Held-out records that are classified rightly; the last one is, where it is there."""
    torch.manual_seed(1)
    network, held_out = nn.Linear(4, 3), features(4)
    right = network(held_out).argmax(dim=1)
    layout, one = ParameterLayout.of(network), Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
    evaluation = PrivateEvaluation(mechanism=Gaussian(std=STD, sensitivity=one), units=UNITS, every_steps=1)
    state = TrainingState(1, layout.flatten(dict(network.named_parameters())), {}, BOUND)
    worlds = [HeldOutRecords(network, layout, held_out[: UNITS - 1 + world], right[: UNITS - 1 + world]) for world in (0, 1)]

    def run(world: int, seed: int) -> object:
        return worlds[world].noisy_accuracy(state, evaluation, lambda _count: RandomStream.from_seed(seed, "count"))

    return Case(evaluation.mechanism, Release(mechanism=evaluation.mechanism), run)


def complex_values(kind: torch.dtype, correlation: float = 0.0) -> Case:
    sensitivity = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
    mechanism = ComplexGaussian(std_real=3.0, std_imag=2.0, correlation=correlation, sensitivity=sensitivity)
    value = torch.view_as_complex(features(9, 2)[0].double().contiguous())
    apart = torch.view_as_complex(features(9, 2)[1].double().contiguous())
    moved_by = apart * (0.99 / torch.linalg.vector_norm(torch.view_as_real(apart)))
    return values_case(mechanism, [value.to(kind), (value + moved_by).to(kind)])


BOX = {"lower": -0.5, "upper": 1.7, "dimension": 14}


def local_laplace() -> LocalLaplace:
    least = LocalLaplace.least_l1(BOX["lower"], BOX["upper"], 14)
    return LocalLaplace(**BOX, scale=2.0 * least, sensitivity=Sensitivity(l1=least, adjacency=Adjacency.REPLACE_ONE, unit="record"))


CASES: dict[str, Callable[[], Case]] = {
    "zeta_dp_sgd, complex": zeta,
    "zeta_dp_sgd, real": real,
    "adaptive clipping": partial(zeta, clipping=ADAPTIVE),
    "federated": partial(zeta, nodes=2),
    "spectral_dp, project then clip": partial(spectral, "project_then_clip", blocks=False),
    "spectral_dp, clip then filter": partial(spectral, "clip_then_filter", blocks=False),
    "spectral_dp, blocks": partial(spectral, "project_then_clip", blocks=True),
    "dp_sgd_laplace": partial(autoencoder, L1Clipping(bound=BOUND)),
    "dp_sgd_laplace, gaussian": partial(autoencoder, FlatClipping(bound=BOUND)),
    "functional_mechanism, laplace": partial(functional, laplace),
    "functional_mechanism, gaussian": partial(functional, gaussian),
    "spof, coefficients": lambda: local(SpofCoefficients.for_epsilon(14, 0.3, 1.0, 0.5, "record")),
    "spof, local laplace": lambda: local(local_laplace()),
    "spof, local gaussian": lambda: local(LocalGaussian.for_box(**BOX, std=17.0, unit="record")),
    "obfuscation, noisy features": noisy_feature,
    "noisy count": noisy_count,
    "unequal complex noise, complex64": partial(complex_values, torch.complex64),
    "unequal complex noise, complex128": partial(complex_values, torch.complex128),
    "correlated complex noise": partial(complex_values, torch.complex128, -0.6),
}

TRAINED = [name for name in CASES if name.partition(",")[0] in ("zeta_dp_sgd", "federated", "spectral_dp", "dp_sgd_laplace")]
TYPES = [*((name, "float32") for name in TRAINED), *((name, "float64") for name in CASES if "complex64" not in name)]
"""Trained networks' sums are float32 or float64, by the size of the lot; all else has its own type."""

DEFAULT = [
    ("zeta_dp_sgd, complex", "float32"),
    ("zeta_dp_sgd, real", "float64"),
    ("federated", "float32"),
    ("spectral_dp, project then clip", "float32"),
    ("spectral_dp, blocks", "float64"),
    ("dp_sgd_laplace", "float32"),
    *((name, "float64") for name in CASES if name.startswith(("functional", "spof, local", "obfuscation", "noisy", "correlated"))),
]

_case = cache(lambda name: CASES[name]())


@pytest.fixture
def in_type(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def choose(kind: str) -> None:
        monkeypatch.setattr(releasing, "NARROW_LOT", 0 if kind == "float64" else 1024)

    return choose


@pytest.mark.parametrize(("name", "kind"), chosen([*TYPES, ("unequal complex noise, complex64", "float32")], DEFAULT))
def test_the_last_bits_tell_no_more_than_is_accounted_for(name: str, kind: str, in_type: Callable[[str], None]) -> None:
    in_type(kind)
    case = _case(name)
    sights = watched(case, sound)
    for lattice in (on_the_grid, on_the_unmoved_grid, in_float32):
        assert attacked(case, sights, lattice).gap <= largest_gap(case.event)
    # Whoever is there, what is released lies on one grid, which no value is on.
    for seen, spacing in zip(sights.seen, sights.spacings, strict=True):
        assert on_one_grid(case.mechanism, seen, spacing).all()


@pytest.mark.parametrize("name", thinned([name for name in CASES if "complex noise" not in name and name != "noisy count"], every=4))
def test_float_noise_names_the_record(name: str, in_type: Callable[[str], None]) -> None:
    in_type("float32")
    case = _case(name)
    rates = attacked(case, watched(case, float_noise, FEW), in_float32)
    assert rates.gap > max(0.9, largest_gap(case.event, FEW))


@pytest.mark.parametrize("name", thinned([name for name in CASES if "complex noise" not in name], every=4))
def test_exact_noise_on_a_value_that_was_not_rounded_names_the_record(name: str, in_type: Callable[[str], None]) -> None:
    in_type("float64")
    case = _case(name)
    rates = attacked(case, watched(case, unrounded, FEW), on_the_unmoved_grid)
    assert rates.gap > max(0.9, largest_gap(case.event, FEW))


# Signs


SIGNS = DuchiLinf(
    **BOX, epsilon=1.0, sensitivity=Sensitivity(l1=DuchiLinf.least_l1(-0.5, 1.7, 14), adjacency=Adjacency.REPLACE_ONE, unit="record")
)


def signs_gap(broken: Callable[[Tensor, Tensor], Tensor]) -> float:
    """TPR - FPR of who asks which record such outputs can come of, and goes by the signs where both can."""
    records = [torch.full((14,), 0.1, dtype=torch.float64), torch.linspace(0.3, 1.6, 14, dtype=torch.float64)]
    rates: list[float] = []
    for world, record in enumerate(records):
        value = record.expand(RUNS, 14)
        seen = broken(value, SIGNS.release(value, source_of(world)))
        could = [torch.stack([seen == broken(one, torch.full_like(seen, out)) for out in SIGNS.outputs]) for one in records]
        possible = [one.any(dim=0).all(dim=1) for one in could]
        likelier = (seen - 0.6) @ (records[1] - records[0]) > 0
        rates.append(torch.where(possible[0] == possible[1], likelier, possible[1]).double().mean().item())
    return rates[1] - rates[0]


def test_random_signs_tell_no_more_than_is_accounted_for() -> None:
    assert 0.0 < signs_gap(lambda _value, released: released) <= largest_gap(Release(mechanism=SIGNS))
    # An error added to the record carries the record's last bits.
    assert signs_gap(lambda value, released: value + (released - value)) > 0.9
