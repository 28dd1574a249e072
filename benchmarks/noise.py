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
from mechanisms import Adjacency, ComplexGaussian, RandomStream, Sensitivity
from trainer.engine.chacha import NAME, ChaChaStream
from trainer.engine.torch_source import TorchSource

COUNT = 470_000
"""Real parameters of a complex network 784-256-128-10, in rounded numbers."""

ROUNDS, STEPS = 15, 20
SPEED_TARGET = 0.8
"""Of torch.randn's speed, in float32: 280 of 347 million numbers a second and thread."""


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    yield from _processor()
    if torch.cuda.is_available():
        yield from _accelerator()
    for case in CASES:
        yield _beside(case.name, private_step(case, case.batch), private_step(case, case.batch, prefetch=True))


def _processor() -> Iterator[str]:
    stream, cpu = RandomStream.from_operating_system(), torch.device("cpu")
    circular = ComplexGaussian(std=1.5, sensitivity=Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record"))
    for dtype in (torch.float32, torch.float64):
        source = TorchSource(stream, cpu, dtype)

        def peer(dtype: torch.dtype = dtype) -> object:
            return torch.randn(COUNT, dtype=dtype)

        for name, ours in (
            ("normals", lambda source=source: source.standard_normal((COUNT,))),
            ("circular complex noise", lambda source=source: circular.noise((COUNT // 2,), source)),
        ):
            measured = ratio(ours, peer, ROUNDS)
            yield line(f"{name}, {dtype}, AES-256-CTR", "torch.randn", measured, _per_normal(measured))
            if dtype == torch.float32 and name == "normals":
                rate = COUNT / measured.ours / 1e6
                yield goal(f"speed in single precision, {rate:.0f} M/s a thread", measured.factor, SPEED_TARGET)


def _accelerator() -> Iterator[str]:
    """Wall time; the device is waited for."""
    stream, device = ChaChaStream(RandomStream.from_operating_system().key(), torch.device("cuda")), torch.device("cuda")

    def finished(work: Callable[[], object]) -> Callable[[], object]:
        def whole() -> None:
            work()
            torch.cuda.synchronize()

        return whole

    ours = finished(lambda: stream.normal(COUNT, 1.0, torch.float32))
    peer = finished(lambda: torch.randn(COUNT, device=device))
    measured = ratio(ours, peer, ROUNDS)
    yield line(f"normals on the device, {NAME}", "torch.randn there (CPU time)", measured, _per_normal(measured))


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
