r"""The Spectral-DP paper's networks as values (its section 4.1 and appendix A.5). Without torch.

Fully connected layers are made of circulant blocks where the paper filters them: of 8 or 16, and of 10 in the last one. It names an
activation for Model-2 alone, tanh; the others use tanh too unless another is requested, since it keeps outputs and gradients small.
Where widths are no multiples of a block they are filled up with zeros (``BlockCirculantLinear``).

Its section 4.4 puts the scattering transform before a linear layer or two convolutions, as Tramer and Boneh 2021 (arXiv:2011.11660) do;
normalised here by each record's own numbers, theirs without a price. ``scatter_circulant`` and ``scatter_lenet_5`` are ours.
"""

from __future__ import annotations

from zetadp.trainer.specs.models.layer_numbers import RealActivation
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AveragePool,
    BlockCirculantLinear,
    Convolution,
    Flatten,
    LayerSpec,
    Linear,
    MaxPool,
    Scattering,
)
from zetadp.trainer.specs.models.model_spec import Sequential

CLASSES = 10
LAST_BLOCK = 10
"""Of the last fully connected layer, in every network with circulant blocks."""


def model_1(block: int | None = None, activation: RealActivation = "tanh") -> Sequential:
    """784-2048-1024-160-10 (Table 11), on flat MNIST.

    Args:
      block: of the first three layers, 8 or 16 in the paper; None for the dense network.
      activation: between the layers; the paper doesn't say.
    """
    layers: list[LayerSpec] = []
    for width in (2048, 1024, 160):
        layers += [_connected(width, block), Activation(name=activation)]
    return _real(*layers, _last(block))


def lenet_5(block: int | None = 8, activation: RealActivation = "tanh") -> Sequential:
    """LeNet-5 on MNIST images: LeCun et al. 1998, as it is usually written.

    Convolutions of 6 and 16 filters of 5 x 5, the first padded to keep 28 x 28, each with activation and 2 x 2 means; then 400-120-84-10.
    The original's trained subsampling, partial connections and Gaussian outputs are left out. The paper only names the network.

    Args:
      block: of the layers of 120 and 84; None for dense ones, the last included.
      activation: the original has a scaled tanh.
    """
    layers: list[LayerSpec] = []
    for width, padding in ((6, 2), (16, 0)):
        layers += [Convolution(outputs=width, kernel=5, padding=padding), Activation(name=activation), AveragePool(kernel=2, stride=2)]
    layers.append(Flatten())
    for width in (120, 84):
        layers += [_connected(width, block), Activation(name=activation)]
    return _real(*layers, _last(block))


def model_2() -> Sequential:
    """3 x 3 convolutions of 32, 64, 64, 64 and 10 filters, the mean of the last over positions (Table 12), on CIFAR-10.

    tanh and a 2 x 2 max pool follow each of the first four, tanh first; the last has neither, since its means are the class scores.
    """
    layers: list[LayerSpec] = []
    for width in (32, 64, 64, 64):
        layers += [_convolution(width), Activation(name="tanh"), MaxPool(kernel=2, stride=2)]
    return _real(*layers, _convolution(CLASSES), AdaptiveAveragePool(size=1), Flatten())


def model_3(block: int | None = 8, activation: RealActivation = "tanh") -> Sequential:
    """Pairs of 3 x 3 convolutions of 32, 64 and 128 filters, a 2 x 2 max pool after each pair, then 120 and 10 units (Table 13).

    Args:
      block: of the layer of 120; None for dense layers, the last included.
      activation: after every layer but the last; the paper doesn't say.
    """
    layers: list[LayerSpec] = []
    for width in (32, 64, 128):
        for _ in range(2):
            layers += [_convolution(width), Activation(name=activation)]
        layers.append(MaxPool(kernel=2, stride=2))
    return _real(*layers, Flatten(), _connected(120, block), Activation(name=activation), _last(block))


def scatter_linear() -> Sequential:
    """ScatterLinear (Table 9): class scores from one dense layer on the scattering transform. Nothing in it has a spectrum."""
    return _real(_scattering(), Flatten(), Linear(outputs=CLASSES))


def scatter_cnn() -> Sequential:
    """ScatterCNN (Table 14): 3 x 3 convolutions of 64 and 60 filters, tanh, a 2 x 2 max pool between, 10 scores; on CIFAR-10.

    tanh also follows the second convolution; the table only says "with Tanh activations".
    """
    layers = (_convolution(64), Activation(name="tanh"), MaxPool(kernel=2, stride=2), _convolution(60), Activation(name="tanh"))
    return _real(_scattering(), *layers, Flatten(), Linear(outputs=CLASSES))


def scatter_circulant(hidden: int = 512, block: int = 8, activation: RealActivation = "relu") -> Sequential:
    """Two layers of circulant blocks on the scattering transform: a wide one, and the last one with its blocks of 10. Ours.

    A last layer alone would have no more free numbers than inputs: the wide one before it lets the scores differ in more ways.
    """
    return _real(_scattering(), Flatten(), _connected(hidden, block), Activation(name=activation), _last(block))


def scatter_lenet_5(block: int | None = None, activation: RealActivation = "relu") -> Sequential:
    """LeNet-5's connected layers, 120-84-10, on the scattering transform in the place of its convolutions and means. Ours.

    Args:
      block: of the layers of 120 and 84; None for dense ones, the last included: then nothing in it has a spectrum.
      activation: after every layer but the last.
    """
    layers: list[LayerSpec] = [_scattering(), Flatten()]
    for width in (120, 84):
        layers += [_connected(width, block), Activation(name=activation)]
    return _real(*layers, _last(block))


def _scattering() -> Scattering:
    """Of Tramer and Boneh: two scales, eight orientations, depth 2, channels normalised in 27 groups."""
    return Scattering(scales=2, depth=2, normalisation_groups=27)


def _convolution(outputs: int) -> Convolution:
    return Convolution(outputs=outputs, kernel=3, padding=1)


def _connected(outputs: int, block: int | None) -> LayerSpec:
    return Linear(outputs=outputs) if block is None else BlockCirculantLinear(outputs=outputs, block=block)


def _last(block: int | None) -> LayerSpec:
    return _connected(CLASSES, None if block is None else LAST_BLOCK)


def _real(*layers: LayerSpec) -> Sequential:
    return Sequential(numbers="real", layers=layers, head="none")
