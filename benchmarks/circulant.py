r"""Block-circulant layers against ``torch.nn.Linear``, forward and backward, and their clipped sum against the summed weight gradient.

Everything in turn on one thread, medians of CPU time. The non-private gradient is autograd's own, of the same layer's weight and bias,
behind a forward pass that has kept the input's spectrum; norms and clipped sums start from input and output gradient alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.compare import goal, line, ratio
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.circulant import BlockCirculantLinear
from zetadp.trainer.layers.rules.base import Use
from zetadp.trainer.layers.rules.circulant import BlockCirculantGradients, block_circulant

SHAPES = ((784, 2048), (2048, 1024), (1024, 160), (160, 10))
BATCHES = (64, 500)
BLOCKS = (5, 8, 10, 16)
LONG_BLOCKS = (32, 64, 128, 256, 512)
TARGET_CASE = (784, 2048, 8, 64)
ROUNDS = 9
STAGE_TARGET = 1.3


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    cases = [(*shape, block, batch) for batch in BATCHES for shape in SHAPES for block in BLOCKS]
    for case in (*cases, *((*SHAPES[0], block, BATCHES[0]) for block in LONG_BLOCKS)):
        yield from _forward_and_backward(*case)
    for case in cases:
        yield from _clipped_sum(*case)


def _layer(inputs: int, outputs: int, block: int) -> BlockCirculantLinear:
    return BlockCirculantLinear(inputs, outputs, block, RandomStream.from_seed(1, "benchmark"), is_complex=False)


def _name(inputs: int, outputs: int, block: int, batch: int) -> str:
    return f"{inputs}x{outputs}, block {block}, batch {batch}"


def _forward_and_backward(inputs: int, outputs: int, block: int, batch: int) -> Iterator[str]:
    ours, dense = (_step(layer, inputs, outputs, batch) for layer in (_layer(inputs, outputs, block), nn.Linear(inputs, outputs)))
    measured = ratio(ours, dense, ROUNDS)
    name = _name(inputs, outputs, block, batch)
    yield line(name, "nn.Linear, forward and backward", measured)
    if (inputs, outputs, block, batch) == TARGET_CASE:
        yield goal(f"{name}: forward and backward", measured.factor, 1.0)


def _step(layer: nn.Module, inputs: int, outputs: int, batch: int) -> Callable[[], object]:
    """The output, and the gradients of input, weight and bias."""
    x, slopes = torch.randn(batch, inputs).requires_grad_(), torch.randn(batch, outputs)
    wanted = [x, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(x), wanted, slopes)


def _clipped_sum(inputs: int, outputs: int, block: int, batch: int) -> Iterator[str]:
    layer = _layer(inputs, outputs, block)
    x, slopes, factors = torch.randn(batch, inputs), torch.randn(batch, outputs), torch.rand(batch)
    output, parameters = layer(x), list(layer.parameters())
    into = {name: torch.empty_like(value) for name, value in layer.named_parameters()}

    def native() -> tuple[Tensor, ...]:
        return torch.autograd.grad(output, parameters, slopes, retain_graph=True)

    def clipped(kept: int) -> None:
        gradients = block_circulant(layer, [Use(x, slopes)], batch)
        assert isinstance(gradients, BlockCirculantGradients)
        gradients = gradients.low_passed(kept)
        gradients.squared_norms()
        gradients.write_weighted_sum(factors, into)

    name, peer = _name(inputs, outputs, block, batch), "its summed weight gradient"
    # The peer stands first: what takes longer than it is above 1.
    measured = ratio(native, lambda: clipped(block // 2 + 1), ROUNDS)
    yield line(name, peer, measured, "the peer is norms and clipped sum")
    if (inputs, outputs) == SHAPES[0]:
        yield goal(f"{name}: norms and clipped sum", measured.factor, STAGE_TARGET, at_most=True)
        yield line(name, peer, ratio(native, lambda: clipped(block // 4 + 1), ROUNDS), "the peer is the same of half the frequencies")
