r"""A private step against PyTorch's own non-private step of the same model: CPU time in turn on one thread, wall time as the service runs
it, peak memory, and the cost of a record from batch 64 to 4096.

A private step is the service's own: sample (with probability 1, so that both sides see the whole batch), forward, backward, clip, sum,
noise and its test, update. The non-private one is forward, backward, update.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks.compare import goal, line, ratio
from benchmarks.memory import peak_bytes
from benchmarks.networks import CASES, Case
from benchmarks.training_peers import opacus_step, per_sample_step
from zetadp.mechanisms import ComplexGaussian, Gaussian, Sensitivity
from zetadp.trainer.engine import ClippedGradients, FreshRandomness, NoiseWatch, PrivateLoop, Problem, Site, TrainingState
from zetadp.trainer.engine.network_run import Descent
from zetadp.trainer.engine.noise.prefetch import NoiseAhead
from zetadp.trainer.engine.products import SETTINGS, put
from zetadp.trainer.engine.team.interface import Alone
from zetadp.trainer.layers.flat_parameters import forget_values
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.execution_plan import ExecutionPlan, FlatClipping
from zetadp.trainer.specs.sampling import CyclicPoissonSampling, PoissonSampling
from zetadp.trainer.specs.strategy import AnyNoise, IndependentNoise, LambdaNoise

ROUNDS = 15
MEMORY_TARGET, FLAT_TARGET, WALL_TARGET = 1.25, 1.15, 1.25
CORRELATED_TARGET = 1.05
MICROBATCH = 512
STEPS = 10**4
LEARNING_RATE = 1e-3


PROCESSOR = torch.device("cpu")


def native_step(case: Case, batch: int, device: torch.device = PROCESSOR, *, compiled: bool = False) -> Callable[[], object]:
    """PyTorch's own; real convolutions in a row run with channels last, an eighth faster."""
    network = case.native().to(device)
    if not case.is_complex and sum(isinstance(module, torch.nn.Conv2d) for module in network.modules()) > 1:
        network = network.to(memory_format=torch.channels_last)
    if compiled:
        network = torch.compile(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    features, targets = (one.to(device) for one in case.records(batch))
    rows = torch.arange(batch, device=device)

    def step() -> None:
        optimizer.zero_grad()
        # From the data set, as a training step must: the private one does too.
        case.losses(network(features[rows]), targets[rows]).mean().backward()
        optimizer.step()

    return step


def private_step(
    case: Case,
    batch: int,
    microbatch_size: int = MICROBATCH,
    device: torch.device = PROCESSOR,
    *,
    prefetch: bool = False,
    noise: AnyNoise | None = None,
) -> Callable[[], object]:
    """The service's, from sampling to update; ``prefetch``: with another thread for the next step's noise, where the service has one;
    ``noise``: of groups that take turns, of which there is one."""
    features, targets = (one.to(device) for one in case.records(batch))
    clipping = FlatClipping(bound=1.0)
    problem = Problem(case.ours().to(device), case.losses, features, targets, None)
    clipped = ClippedGradients(problem, clipping, microbatch_size, lot=batch)
    clipped.settle()
    mechanism = ComplexGaussian if case.is_complex else Gaussian
    sampling = {"records": batch, "expected_batch_size": batch}
    plan = ExecutionPlan(
        sampling=PoissonSampling(**sampling) if noise is None else CyclicPoissonSampling(**sampling, groups=1, seed=0),
        strategy=None if noise is None else noise.planned(STEPS, 1),
        clipping=clipping,
        mechanism=mechanism(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record")),
        steps=STEPS,
        delta=1e-5,
    )
    descent = Descent(Sgd(learning_rate=LEARNING_RATE), plan.steps, noise_std=0.0, averaging=None)
    groups = None if noise is None else torch.zeros(batch, dtype=torch.int64, device=device)
    site, watch = Site(torch.arange(batch, device=device), FreshRandomness(), groups), NoiseWatch(plan.mechanism)
    loop = PrivateLoop(clipped, clipped.layout, plan, (site,), descent.updated, Alone(), watch=watch)
    if prefetch and not loop.adds_what_it_draws():
        loop = replace(loop, sites=(replace(site, randomness=NoiseAhead(site.randomness, plan.steps)),))
    parameters = clipped.layout.flatten(dict(problem.network.named_parameters()))
    forget_values(problem.network)
    state = TrainingState(0, parameters, descent.initial(parameters), clipping.bound)

    def step() -> None:
        nonlocal state
        state = loop.step(state)

    return step


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    put(SETTINGS)  # as the service's processes do, and torch does by itself
    for case in CASES:
        yield from _memory(case)
    _keep_freed_memory()
    for case in CASES:
        yield from _steps(case)
    for case in CASES:
        yield from _correlated(case)
    yield from _wall(CASES[2])
    yield from _flat(CASES[0])


def _keep_freed_memory() -> None:
    """By either side: which of the two gives pages back to the system, and pays for them again, depends on what ran before."""
    trim_threshold, mmap_threshold = -1, -3
    libc = ctypes.CDLL(None)
    libc.mallopt(trim_threshold, 2**30)
    libc.mallopt(mmap_threshold, 2**30)


def _steps(case: Case) -> Iterator[str]:
    native = native_step(case, case.batch)
    name = f"{case.name}, {case.batch}"
    measured = ratio(native, private_step(case, case.batch), ROUNDS)
    yield line(f"{name}: private step", "non-private step", measured)
    yield goal(name, measured.factor, case.target, at_most=True)
    if shutil.which("c++") is not None:
        measured = ratio(native, native_step(case, case.batch, compiled=True), 5)
        yield line(f"{name}: torch.compile, not private", "non-private step", measured)
    measured = ratio(native, per_sample_step(case), 5)
    yield line(f"{name}: torch.func vmap(grad)", "non-private step", measured, "without noise")
    # On complex networks its hooks and ghost norms give wrong gradients: it isn't a peer there.
    if not case.is_complex and importlib.util.find_spec("opacus") is not None:
        for mode in ("hooks", "ghost"):
            measured = ratio(native, opacus_step(case, mode), 5)
            yield line(f"{name}: Opacus {mode}", "non-private step", measured)


def _correlated(case: Case) -> Iterator[str]:
    """A step with DP-lambda-CGD's noise against one with independent noise."""
    independent, correlated = (private_step(case, case.batch, noise=one) for one in (IndependentNoise(), LambdaNoise(decay=0.5)))
    measured = ratio(independent, correlated, ROUNDS)
    yield goal(f"{case.name}, {case.batch}: lambda-CGD, independent noise", measured.factor, CORRELATED_TARGET, at_most=True)


def _wall(case: Case) -> Iterator[str]:
    """Alternating wall times; the noise of the next step is drawn by another thread where the service does so."""
    native, private = native_step(case, case.batch), private_step(case, case.batch, prefetch=True)
    ratios = [_wall_seconds(private) / _wall_seconds(native) for _ in range(ROUNDS)]
    name = f"{case.name}, {case.batch}: wall, as the service runs it, {os.cpu_count()} cores"
    yield goal(name, statistics.median(ratios), WALL_TARGET, at_most=True)


def _wall_seconds(work: Callable[[], object], calls: int = 20) -> float:
    work()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - start


def _memory(case: Case) -> Iterator[str]:
    native = peak_bytes(partial(native_step, case, case.batch))
    private = peak_bytes(partial(private_step, case, case.batch))
    name = f"{case.name}, {case.batch}: peak memory ({private / 2**20:.1f} MiB against {native / 2**20:.1f} MiB)"
    yield goal(name, private / native, MEMORY_TARGET, at_most=True)


def _flat(case: Case) -> Iterator[str]:
    """Cost of a record; lots beyond the microbatch are worked through piece by piece. A step's noise is shared by its records."""
    growth: list[float] = []
    for batch in (64, 256, 1024):
        both = ratio(private_step(case, batch, 64), private_step(case, 4096, 64), 5)
        growth.append(both.factor * batch / 4096)
        yield f"{case.name}: a record at 4096 costs {growth[-1]:.3f} of one at {batch}, microbatches of 64"
    yield goal(f"{case.name}: growth of a record's cost up to batch 4096", max(growth), FLAT_TARGET, at_most=True)
