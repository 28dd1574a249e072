r"""A Spectral-DP step against our own DP-SGD step (clipped layer by layer, as it is) of the same network, in turn, one thread, medians.

Both sides are the service's whole step as in ``benchmarks.training``: sample, forward, backward, clip, sum, noise, update. With it the
weight-gradient stage alone against PyTorch's non-private one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor, nn

from benchmarks.compare import Ratio, goal, line, ratio
from benchmarks.networks import cross_entropy
from zetadp.mechanisms import Adjacency, Gaussian, RandomStream, Sensitivity
from zetadp.trainer import engine
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.engine import ClippedGradients, FreshRandomness, ParameterLayout, PrivateLoop, Problem, Site, TrainingState
from zetadp.trainer.engine.gradients.per_unit import layers_of
from zetadp.trainer.engine.gradients.spectral_vector import Spectra
from zetadp.trainer.engine.team.interface import Alone
from zetadp.trainer.layers import BlockCirculantLinear
from zetadp.trainer.layers.rules import RULES, Use
from zetadp.trainer.models import build
from zetadp.trainer.specs.algorithms.spectral_dp import SameForAll, SpectralDp, kept_frequencies
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.execution_plan import Clipping, ExecutionPlan, PerLayerClipping
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.papers_spectral import lenet_5, model_1, model_2
from zetadp.trainer.specs.projection import LayerSpectrum, SpectralProjection
from zetadp.trainer.specs.sampling import PoissonSampling

ROUNDS = 15
TARGET = 1.15
MICROBATCH = 512
BOUND = 1.0
OPTIMIZER = Sgd(learning_rate=1e-3)

Order = Literal["project_then_clip", "clip_then_filter"]


@final
@dataclass(frozen=True)
class Case:
    """A network of the paper, records of ``shape``, how many of them, and the filters: ratio, and size of a kernel's transform."""

    name: str
    model: Sequential
    shape: tuple[int, ...]
    batch: int
    filters: tuple[tuple[float, int | None], ...]

    @property
    def facts(self) -> DataSetFacts:
        """Of made-up records."""
        return DataSetFacts(
            training_records=self.batch,
            test_records=1,
            shape=self.shape,
            is_complex=False,
            task="classification",
            classes=10,
            unit="record",
            user_unit=None,
            users=None,
            largest_user=None,
            sha256="0" * 64,
            description="benchmark",
        )

    def records(self) -> tuple[Tensor, Tensor]:
        """Features and targets."""
        features = torch.randn(self.batch, *self.shape, generator=torch.Generator().manual_seed(1))
        return features, torch.arange(self.batch) % 10


OWN_SIZE = ((0.5, None), (0.75, None))
CASES = (
    # Kernels of 3 x 3 keep everything at a ratio of .5, unless they are filled up.
    Case("Model-2 (CNN)", model_2(), (3, 32, 32), 64, ((0.5, 32), (0.75, None))),
    Case("LeNet-5, block 8", lenet_5(), (1, 28, 28), 64, (*OWN_SIZE, (0.5, 28))),
    Case("Model-1, block 8", model_1(8), (784,), 64, OWN_SIZE),
    Case("Model-1, block 8", model_1(8), (784,), 500, OWN_SIZE),
)


def step_of(case: Case, clipping: Clipping, projection: SpectralProjection | None) -> Callable[[], object]:
    """One whole step, from sampling (everybody) to update."""
    network = build(case.model, case.facts, RandomStream.from_seed(0, "benchmark"))
    problem = Problem(network, cross_entropy, *case.records(), None)
    clipped = ClippedGradients(problem, clipping, MICROBATCH, projection)
    sensitivity = Sensitivity(l2=clipping.sensitivity, adjacency=Adjacency.ADD_REMOVE, unit="record")
    plan = ExecutionPlan(
        sampling=PoissonSampling(records=case.batch, expected_batch_size=case.batch),
        clipping=clipping,
        mechanism=Gaussian(std=1.0, sensitivity=sensitivity),
        steps=10**6,
        delta=1e-5,
        projection=projection,
    )
    sites = (Site(torch.arange(case.batch), FreshRandomness()),)
    update = partial(engine.update, OPTIMIZER, steps=plan.steps)
    loop = PrivateLoop(clipped, clipped.layout, plan, sites, update, Alone(), spectra=clipped.spectra)
    parameters = clipped.layout.flatten(dict(network.named_parameters()))
    state = TrainingState(0, parameters, engine.initial_state(OPTIMIZER, parameters), clipping.bound)

    def step() -> None:
        nonlocal state
        state = loop.step(state)

    return step


def spectral_step(case: Case, filter_ratio: float, transform_size: int | None, order: Order) -> Callable[[], object]:
    """Of a Spectral-DP job with one setting for all layers."""
    example = SpectralDp.example()
    spec = SpectralDp(
        data=example.data,  # the plan is asked for the benchmark's own facts
        model=case.model,
        layers=SameForAll(clipping_bound=BOUND, filter_ratio=filter_ratio, transform_size=transform_size),
        order=order,
        optimizer=OPTIMIZER,
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, noise_multiplier=1.0),
        expected_batch_size=case.batch,
        steps=1,
    )
    return step_of(case, spec.planned_clipping(case.facts), spec.planned_projection(case.facts))


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    for case in CASES:
        for order in ("project_then_clip", "clip_then_filter"):
            for filter_ratio, transform_size in case.filters:
                yield from _against_ordinary(case, filter_ratio, transform_size, order)
    for filter_ratio in (0.5, 0.75):
        for stage in stages(filter_ratio):
            for order in ("project_then_clip", "clip_then_filter"):
                yield line(f"weight gradient of {stage.name}: {order}", "non-private", stage.both(order))


@final
@dataclass(frozen=True)
class Stage:
    """One layer on a batch of 64: what goes in, and the gradient of what comes out."""

    name: str
    module: nn.Module
    inputs: Tensor
    spectrum: LayerSpectrum

    @staticmethod
    def of(name: str, module: nn.Module, record: tuple[int, ...], filter_ratio: float) -> Stage:
        """With a transform of the kernel's or block's own size."""
        weight = module.get_parameter("weight")
        shape = tuple(weight.shape[2:])
        kept = tuple(kept_frequencies(length, filter_ratio) for length in shape)
        signals = weight.numel() // torch.Size(shape).numel()
        spectrum = LayerSpectrum(layer="0", signals=signals, shape=shape, transform=shape, kept=kept)
        return Stage(f"{name}, ratio {filter_ratio:g}", module, torch.randn(64, *record), spectrum)

    def both(self, order: Order) -> Ratio:
        """Per-unit norms, clipped sum, coordinates, against the ordinary gradient of the weight."""
        with torch.enable_grad():
            outputs = self.module(self.inputs)
        gradients, weight = torch.randn_like(outputs), self.module.get_parameter("weight")
        network = nn.Sequential(self.module)
        spectra = Spectra(SpectralProjection(order=order, layers=(self.spectrum,)), ParameterLayout.of(network), torch.device("cpu"))
        layers, rule = layers_of(network), RULES[type(self.module)]

        def private() -> None:
            (of_layer,) = spectra.released(layers, [rule(self.module, [Use(self.inputs, gradients)], len(self.inputs))])
            _ = of_layer.weighted_sum(of_layer.squared_norms().rsqrt())

        return ratio(lambda: torch.autograd.grad(outputs, weight, gradients, retain_graph=True), private, ROUNDS)


def stages(filter_ratio: float) -> Iterator[Stage]:
    """Layers of 64 filters, and the first one of Model-1."""
    stream = RandomStream.from_seed(0, "benchmark")
    yield Stage.of("convolution 32 to 64, 3 x 3", nn.Conv2d(32, 64, 3, padding=1, bias=False), (32, 16, 16), filter_ratio)
    yield Stage.of("convolution 32 to 64, 5 x 5", nn.Conv2d(32, 64, 5, padding=2, bias=False), (32, 16, 16), filter_ratio)
    circulant = BlockCirculantLinear(784, 2048, 8, stream, is_complex=False, bias=False)
    yield Stage.of("circulant 784 to 2048, block 8", circulant, (784,), filter_ratio)


def _against_ordinary(case: Case, filter_ratio: float, transform_size: int | None, order: Order) -> Iterator[str]:
    ordinary, spectral = step_of(case, PerLayerClipping(bound=BOUND), None), spectral_step(case, filter_ratio, transform_size, order)
    measured = ratio(ordinary, spectral, ROUNDS)
    size = "" if transform_size is None else f", transform {transform_size}"
    name = f"{case.name}, {case.batch}: {order}, ratio {filter_ratio:g}{size}"
    yield line(name, "DP-SGD step per layer", measured)
    yield goal(name, measured.factor, TARGET, at_most=True)
