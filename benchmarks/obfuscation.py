r"""A training step of an obfuscated network against the same network with its conventional, real processing module, fed as many numbers.

Both get a batch of N images, encode them, and put a feature and its counterpart through the processing module: 2N real features there,
N complex ones as parts here. What stands before and behind it is the same. The step is forward, backward, update, without a critic, which
the real network hasn't either. The processing module alone, forward and backward, stands beside it: that is the stricter ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from benchmarks.compare import goal, line, ratio
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.obfuscation.encoding import angles, others
from zetadp.trainer.algorithms.obfuscation.layers import turned, turned_back
from zetadp.trainer.algorithms.obfuscation.networks import DividedNetwork, build, divided
from zetadp.trainer.specs.obfuscation.architectures import Architecture, LeNet, ResNet
from zetadp.trainer.specs.obfuscation.methods import AdditionalLayers, Method, Rotation

ROUNDS = 9
TARGET = 1.3
IMAGE = (3, 32, 32)
CLASSES = 10
LEARNING_RATE = 1e-3


@final
class Case(NamedTuple):
    """A network and the images in a batch."""

    name: str
    network: Architecture
    batch: int


CASES = (Case("LeNet", LeNet(), 64), Case("ResNet-20-alpha", ResNet(depth=20, variant="alpha"), 32))


def run() -> Iterator[str]:
    """The report's lines."""
    torch.set_num_threads(1)
    for case in CASES:
        name = f"{case.name}, {case.batch} images"
        measured = ratio(training_step(case, AdditionalLayers()), training_step(case, Rotation()), ROUNDS)
        yield line(f"{name}: equivariant step", "real network's step on both parts", measured)
        yield goal(name, measured.factor, TARGET, at_most=True)
        measured = ratio(processing_step(case, AdditionalLayers()), processing_step(case, Rotation()), ROUNDS)
        yield line(f"{name}: its processing alone", "real module on both parts", measured)


def training_step(case: Case, method: Method) -> Callable[[], object]:
    """From images to updated weights."""
    network = _network(case, method)
    generator = torch.Generator().manual_seed(1)
    images = torch.randn((case.batch, *IMAGE), generator=generator)
    labels, kinds = torch.randint(CLASSES, (case.batch,), generator=generator), torch.arange(case.batch)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        feature = network.encoder(images)
        nn.functional.cross_entropy(network.decoder(_processed(network, feature, kinds, generator)), labels).backward()
        optimizer.step()

    return step


def processing_step(case: Case, method: Method) -> Callable[[], object]:
    """The processing module's outputs for 2N real features, or as many numbers as parts, and all its gradients."""
    network = _network(case, method)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn((2 * case.batch, *network.divided.feature), generator=generator, requires_grad=True)
    slope = torch.randn(network.processing(features).shape, generator=generator)
    weights = [features, *network.processing.parameters()]
    return lambda: torch.autograd.grad(network.processing(features), weights, slope)


def _processed(network: DividedNetwork, feature: Tensor, kinds: Tensor, generator: torch.Generator) -> Tensor:
    counterpart = feature[others(kinds, generator)]
    if not network.divided.turned:
        return network.processing(torch.cat((feature, counterpart)))[: len(feature)]
    theta = angles(len(feature), generator, feature.device)
    return turned_back(network.processing(turned(feature, counterpart, theta)), theta)


def _network(case: Case, method: Method) -> DividedNetwork:
    return build(divided(case.network, method, IMAGE, CLASSES), RandomStream.from_seed(1, "benchmark of obfuscation"))
