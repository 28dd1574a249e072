r"""Noise: the cost of a normal number against torch's own generator, which isn't cryptographic, and what a thread beside the step saves."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from benchmarks.compare import Ratio, goal, line, ratio
from benchmarks.networks import CASES
from benchmarks.training import private_step
from zetadp.mechanisms import Adjacency, ComplexGaussian, Gaussian, RandomStream, Sensitivity
from zetadp.mechanisms.sampling import kernel
from zetadp.trainer.engine.noise.torch_source import TorchSource

COUNT = 470_000
"""Real parameters of a complex network 784-256-128-10, in rounded numbers."""

ROUNDS, STEPS = 15, 20
SPEED_TARGET = 1.0
"""Of torch.randn's speed, in float32."""


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    yield from _processor()
    for case in CASES:
        yield _beside(case.name, private_step(case, case.batch), private_step(case, case.batch, prefetch=True))


def _processor() -> Iterator[str]:
    stream = RandomStream.from_operating_system()
    one = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
    real, circular = Gaussian(std=1.5, sensitivity=one), ComplexGaussian(std=1.5, sensitivity=one)
    source, sums = TorchSource(stream, torch.device("cpu")), torch.randn(COUNT)
    pairs = torch.view_as_complex(sums.reshape(-1, 2))
    way = "NumPy" if kernel.COMPILED is None else "compiled"

    def peer() -> object:
        return torch.randn(COUNT)

    for name, ours in (
        ("exact normals", lambda: stream.grid_normal(COUNT)),
        ("a real sum released", lambda: real.release(sums, source)),
        ("a complex sum released", lambda: circular.release(pairs, source)),
    ):
        measured = ratio(ours, peer, ROUNDS)
        yield line(f"{name}, {way}, AES-256-CTR", "torch.randn", measured, _per_normal(measured))
        if name == "exact normals":
            rate = COUNT / measured.ours / 1e6
            yield goal(f"speed of exact normals, {rate:.0f} M/s a thread", measured.factor, SPEED_TARGET)


def _beside(name: str, alone: Callable[[], object], helped: Callable[[], object]) -> str:
    pairs = [(_wall_seconds(alone), _wall_seconds(helped)) for _ in range(ROUNDS)]
    without, beside = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    saved = statistics.median(b / a for a, b in pairs)
    return f"{name}: wall of a step {without:.3f} ms, with its noise drawn beside it {beside:.3f} ms: {saved:.2f} ({os.cpu_count()} cores)"


def _per_normal(measured: Ratio) -> str:
    return f"{measured.ours / COUNT * 1e9:.2f} ns against {measured.theirs / COUNT * 1e9:.2f} ns a normal"


def _wall_seconds(work: Callable[[], object]) -> float:
    work()
    start = time.perf_counter()
    for _ in range(STEPS):
        work()
    return (time.perf_counter() - start) / STEPS
