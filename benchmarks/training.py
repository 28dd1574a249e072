r"""One private step of the demonstration's network against PyTorch's own non-private step of the same model and batch, and its memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import torch

from benchmarks.compare import line, ratio
from mechanisms import ComplexGaussian, RandomStream, Sensitivity
from trainer.engine import ParameterLayout, Problem, TorchSource, clipped_sum
from trainer.models import build
from trainer.recipes import DIGITS_DEMO

RECORDS, FEATURES, CLASSES = 200, 64, 10


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    network = build(DIGITS_DEMO.model, FEATURES, CLASSES, RandomStream.from_seed(0, "benchmark"))
    numbers = torch.from_numpy(RandomStream.from_seed(1, "benchmark").normal(RECORDS * FEATURES * 2))
    features = torch.view_as_complex(numbers.float().reshape(RECORDS, FEATURES, 2))
    labels = torch.arange(RECORDS) % CLASSES

    def loss(parameters: dict[str, torch.Tensor], record: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(torch.func.functional_call(network, parameters, (record,)), label)

    problem = Problem(loss, ParameterLayout.of(network), features, labels)
    parameters = {name: value.detach() for name, value in network.named_parameters()}
    noise = ComplexGaussian(std=1.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    source = TorchSource(RandomStream.from_operating_system(), torch.device("cpu"), torch.float64)

    def private(microbatch_size: int = 64) -> None:
        noise.release(clipped_sum(problem, parameters, torch.arange(RECORDS), 1.0, microbatch_size), source)

    def plain() -> None:
        network.zero_grad()
        torch.nn.functional.cross_entropy(network(features), labels, reduction="sum").backward()

    measured = ratio(private, plain, 15)
    yield line("private step, vmap(grad) by 64", "the same model's non-private step", measured, f"batch {RECORDS}")
    measured = ratio(lambda: noise.noise((100_000,), source), lambda: torch.randn(200_000, dtype=torch.float64), 15)
    yield line("10^5 complex normals, AES-256-CTR", "torch.randn (not cryptographic)", measured)
    tracemalloc.start()
    noise.noise((100_000,), source)
    yield f"peak memory of drawing 10^5 complex normals: {tracemalloc.get_traced_memory()[1] / 2**20:.1f} MiB"
    tracemalloc.stop()
