r"""The papers' networks as values. If a paper leaves something open, the docstring says what was chosen. Without torch.

Most of the papers don't name the head that gives the class scores: it is the magnitude, which they name for the ECG, unless another is
requested.
"""

from __future__ import annotations

from typing import Literal

from zetadp.trainer.specs.models.layer_numbers import ComplexActivation
from zetadp.trainer.specs.models.layer_spec import (
    Activation,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool,
    Convolution,
    Flatten,
    GroupNorm,
    LayerSpec,
    Linear,
    MaxPool,
)
from zetadp.trainer.specs.models.model_spec import ComplexMlp, ComplexUnet, Sequential

ScoreHead = Literal["magnitude", "real_part", "magnitude_softmax"]


def phase_mnist(head: ScoreHead = "magnitude") -> ComplexMlp:
    """784-256-128-10 with cardioids between: zeta-DP paper, A.6.5, on PhaseMNIST.

    "Three fully connected layers with (784, 256, 128) units and an output layer of 10" is read as layer widths from the input on, as
    with the ECG's 512; the softmax is the cross-entropy's.
    """
    return ComplexMlp(hidden=(256, 128), activation="cardioid", head=head)


def real_mnist() -> Sequential:
    """The same widths with real weights, for the paper's baseline on MNIST (Table 5): 784-256-128-10.

    The cardioid of a real number x is x where x > 0 and 0 elsewhere: relu.
    """
    return Sequential(
        numbers="real",
        layers=(
            Linear(outputs=256),
            Activation(name="relu"),
            Linear(outputs=128),
            Activation(name="relu"),
            Linear(outputs=10),
        ),
        head="none",
    )


def papernot_cifar(numbers: Literal["complex", "real", "real_pairs"], head: ScoreHead = "magnitude") -> Sequential:
    """Papernot et al. 2020 (arXiv:2007.14191), Table 2, as the zeta-DP paper uses it on CIFAR-10 (A.6.1).

    3 x 3 convolutions of stride 1 with zero padding: 32, 32, pool, 64, 64, pool, 128, 128, pool, 256, 10, then the mean over positions;
    pools are 2 x 2 means. tanh follows every convolution but the last. With complex weights it acts on real and imaginary part
    separately: the analytic tanh has poles, and no bound. ``real_pairs`` is the ordinary real network of these widths on the two
    parts as channels; the paper's "additional weight matrix per layer" may mean one of twice the weights.
    """
    name: Literal["separable_tanh", "tanh"] = "separable_tanh" if numbers == "complex" else "tanh"
    layers: list[LayerSpec] = []
    for width in (32, 64, 128):
        for _ in range(2):
            layers += [Convolution(outputs=width, kernel=3, padding=1), Activation(name=name)]
        layers.append(AveragePool(kernel=2, stride=2))
    layers += [Convolution(outputs=256, kernel=3, padding=1), Activation(name=name), Convolution(outputs=10, kernel=3, padding=1)]
    layers += [AdaptiveAveragePool(size=1), Flatten()]
    return Sequential(numbers=numbers, layers=tuple(layers), head=head if numbers == "complex" else "none")


def ecg() -> ComplexMlp:
    """512-256-128-classes with cReLU and the magnitude: zeta-DP paper, A.6.2, on the first 512 frequencies or samples' spectrum.

    The paper's single output under a logistic sigmoid of its magnitude never falls below 1/2. Here every class has an output, and
    the cross-entropy's softmax compares their magnitudes.
    """
    return ComplexMlp(hidden=(256, 128), activation="crelu", head="magnitude")


def speech(classes: int, activation: ComplexActivation = "igaussian", head: ScoreHead = "magnitude") -> Sequential:
    """Four 3 x 3 convolutions without padding, 8, 16, 32, 64, then 64 units: zeta-DP paper, A.6.3, on complex spectrograms.

    Max pooling (2 x 2, not stated) between the second and the third, adaptive max pooling (to one position, not stated) after the
    last. The activation follows every convolution and the layer of 64. The paper has 8 outputs for the 10 words it names. It doesn't
    say how weights start: iGaussian is quadratic near 0, and after five of them Glorot's weights leave the scores at 0, so they are scaled.

    Args:
      classes: outputs of the last layer.
      activation: the paper compares ten (Table 4); iGaussian did best.
      head: from complex outputs to class scores.
    """

    def block(width: int) -> tuple[LayerSpec, ...]:
        return Convolution(outputs=width, kernel=3), Activation(name=activation)

    last = (Flatten(), Linear(outputs=64), Activation(name=activation), Linear(outputs=classes))
    layers = (*block(8), *block(16), MaxPool(kernel=2, stride=2), *block(32), *block(64), AdaptiveMaxPool(size=1), *last)
    return Sequential(numbers="complex", layers=layers, head=head, initial_weights="unit_outputs")


def mri_reconstruction(channels: int = 32, pools: int = 4) -> ComplexUnet:
    """fastMRI's U-Net with complex weights and cReLU: zeta-DP paper, A.6.4. Defaults are those of fastMRI's example.

    Batch norm on single records is instance norm (errata Z24); dropout is 0 in fastMRI's example.
    """
    return ComplexUnet(channels=channels, pools=pools, activation="crelu", norm_groups=None, dropout=0.0, residual=False)


def mri_sequence(classes: int, head: ScoreHead = "magnitude") -> Sequential:
    """Three blocks of 32, 64 and 128 filters in k-space: complex federated paper, section 5, with group norm of 16 groups and ConjMish.

    A block is a 3 x 3 convolution with padding, norm, activation and 2 x 2 average pooling: kernel and order aren't stated. "A single
    linear layer with 128 units" is read as one with 128 inputs, the channels' means over positions.

    Args:
      classes: pulse sequences.
      head: from complex outputs to class scores.
    """
    layers: list[LayerSpec] = []
    for width in (32, 64, 128):
        layers += [
            Convolution(outputs=width, kernel=3, padding=1),
            GroupNorm(groups=16),
            Activation(name="conj_mish"),
            AveragePool(kernel=2, stride=2),
        ]
    layers += [AdaptiveAveragePool(size=1), Flatten(), Linear(outputs=classes)]
    return Sequential(numbers="complex", layers=tuple(layers), head=head)
