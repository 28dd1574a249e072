r"""An epoch of sound SPOF against an epoch of DP-SGD: one autoencoder, one set of rows, one batch size, CPU time in turn on one thread.

SPOF's epoch is whole: the release of every row, which a run does once, is beside it. DP-SGD's epoch is as many steps of the service's own
loop as SPOF's has batches: sample, forward, clip, sum, noise, update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.compare import goal, line, ratio
from zetadp.mechanisms import Gaussian, Laplace, LocalLaplace, Sensitivity
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.engine import Alone, FreshRandomness, PrivateLoop, Site, TorchSource, TrainingState, initial_state, update
from zetadp.trainer.engine.autoencoders import SLOPES, Autoencoder, ClippedRows, RowDescent, TrainingRows, layout_of
from zetadp.trainer.specs.autoencoder import AutoencoderShape
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.execution_plan import Clipping, ExecutionPlan, FlatClipping, L1Clipping, clipped_sensitivity
from zetadp.trainer.specs.sampling import PoissonSampling

ROUNDS = 15
TARGET = 0.5
STEPS = 10**9
OPTIMIZER = Sgd(learning_rate=1e-3)


class Case(NamedTuple):
    """Sizes of an autoencoder and of its data."""

    name: str
    shape: AutoencoderShape
    rows: int
    batch: int


CASES = (
    Case("paper, 456 rows", AutoencoderShape(encoders=2, features=14, hidden=7), 456, 64),
    Case("paper, 36480 rows", AutoencoderShape(encoders=2, features=14, hidden=7), 36480, 256),
    Case("a row for each encoder", AutoencoderShape(encoders=2, features=14, hidden=7), 456, 2),
)


def training_rows(case: Case) -> TrainingRows:
    """Uniform numbers; the time doesn't depend on them."""
    features = torch.from_numpy(np.random.default_rng(1).uniform(size=(case.rows, case.shape.features))).float()
    return TrainingRows(features, torch.arange(case.rows) % case.shape.encoders, None)


def first_state(case: Case, bound: float) -> TrainingState:
    """Weights of the usual size."""
    parameters = torch.from_numpy(np.random.default_rng(2).normal(0.0, 0.3, case.shape.coordinates)).float()
    return TrainingState(0, parameters, initial_state(OPTIMIZER, parameters), bound)


def released(case: Case) -> Callable[[], torch.Tensor]:
    """The one release of all rows."""
    features, n = training_rows(case).features.double(), case.shape.features
    sensitivity = Sensitivity(l1=float(n), adjacency=Adjacency.REPLACE_ONE, unit="record")
    mechanism = LocalLaplace(lower=0.0, upper=1.0, dimension=n, scale=1.4, sensitivity=sensitivity)
    return lambda: mechanism.release(features, TorchSource(RandomStream.from_operating_system(), features.device))


def spof_epoch(case: Case) -> Callable[[], object]:
    """Every released row once."""
    rows, network = training_rows(case), Autoencoder.of(case.shape, torch.device("cpu"))
    descent = RowDescent(
        network=network,
        inputs=rows.features,
        targets=rows.features,
        places=rows.places,
        slopes_of=SLOPES["cross_entropy"],
        optimizer=OPTIMIZER,
        batch_size=case.batch,
        steps=STEPS,
    )
    return _epoch(case, descent.step, first_state(case, 1.0))


def dp_sgd_epoch(case: Case, clipping: L1Clipping | FlatClipping) -> Callable[[], object]:
    """As many steps as the batches of an epoch, of the service's own loop."""
    rows, network = training_rows(case), Autoencoder.of(case.shape, torch.device("cpu"))
    plan = _plan(case, clipping)
    loop = PrivateLoop(
        clipped=ClippedRows(network, rows, SLOPES["cross_entropy"], "l1" if isinstance(clipping, L1Clipping) else "l2"),
        layout=layout_of(network),
        plan=plan,
        sites=(Site(torch.arange(case.rows), FreshRandomness()),),
        optimizer=lambda state, parameters, gradient, step: update(OPTIMIZER, state, parameters, gradient, step, STEPS),
        team=Alone(),
    )
    return _epoch(case, loop.step, first_state(case, clipping.bound))


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    for case in CASES:
        spof = spof_epoch(case)
        for clipping in (L1Clipping(bound=1.0), FlatClipping(bound=1.0)):
            measured = ratio(spof, dp_sgd_epoch(case, clipping), ROUNDS)
            noise = "Laplace" if isinstance(clipping, L1Clipping) else "Gaussian"
            yield line(f"{case.name}, batch {case.batch}: SPOF epoch", f"DP-SGD epoch, {noise} noise", measured)
            yield goal(f"{case.name}: SPOF / DP-SGD, {noise} noise", 1.0 / measured.factor, TARGET, at_most=True)
        measured = ratio(spof, released(case), ROUNDS)
        yield line(f"{case.name}: SPOF epoch", "release of all rows, once a run", measured)


def _plan(case: Case, clipping: Clipping) -> ExecutionPlan:
    sensitivity = clipped_sensitivity(clipping, Adjacency.ADD_REMOVE, "record")
    noise = Laplace(scale=1.0, sensitivity=sensitivity) if isinstance(clipping, L1Clipping) else Gaussian(std=1.0, sensitivity=sensitivity)
    sampling = PoissonSampling(records=case.rows, expected_batch_size=case.batch)
    return ExecutionPlan(sampling=sampling, clipping=clipping, mechanism=noise, steps=STEPS, delta=1e-5)


def _epoch(case: Case, step: Callable[[TrainingState], TrainingState], state: TrainingState) -> Callable[[], object]:
    batches = -(-case.rows // case.batch)

    def epoch() -> None:
        nonlocal state
        for _ in range(batches):
            state = step(state)

    return epoch
