r"""The networks of the training benchmark: as a user of PyTorch writes them without privacy, and as ours are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from zetadp.mechanisms import RandomStream
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.engine import Losses
from zetadp.trainer.models import build
from zetadp.trainer.specs.models.layer_spec import Activation, AdaptiveAveragePool, AveragePool, Convolution, Flatten, Linear
from zetadp.trainer.specs.models.model_spec import ComplexMlp, Sequential
from zetadp.trainer.specs.models.named_networks import ModelSpec


@final
@dataclass(frozen=True)
class Case:
    """One row of the table; ``target``: the largest private step / PyTorch's own non-private step that the project aims at."""

    name: str
    batch: int
    model: ModelSpec
    native: Callable[[], nn.Module]
    shape: tuple[int, ...]
    is_complex: bool
    outputs: int
    target: float

    @property
    def losses(self) -> Losses:
        """Cross-entropy of class scores; squared error of a single output, as the zeta-DP paper's Table 7."""
        return squared_error if self.outputs == 1 else cross_entropy

    def ours(self) -> nn.Module:
        """The network as a job would build it."""
        facts = DataSetFacts(
            training_records=self.batch,
            test_records=1,
            shape=self.shape,
            is_complex=self.is_complex,
            task="classification",
            classes=self.outputs,
            unit="record",
            user_unit=None,
            users=None,
            largest_user=None,
            sha256="0" * 64,
            description="benchmark",
        )
        return build(self.model, facts, RandomStream.from_seed(0, "benchmark"))

    def records(self, count: int) -> tuple[Tensor, Tensor]:
        """Features and targets of so many records."""
        pairs = torch.randn(count, *self.shape, 2, generator=torch.Generator().manual_seed(1))
        features = torch.view_as_complex(pairs) if self.is_complex else pairs[..., 0].contiguous()
        return features, torch.zeros(count, 1) if self.outputs == 1 else torch.arange(count) % self.outputs


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Each record's own."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Each record's own."""
    return (outputs - targets).square().flatten(1).mean(dim=1)


@final
class Elementwise(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, values: Tensor) -> Tensor:
        return self._function(values)


def native_cardioid(z: Tensor) -> Tensor:
    """As the literature writes it, in PyTorch's own complex functions."""
    return 0.5 * (1.0 + torch.cos(torch.angle(z))) * z


def native_crelu(z: Tensor) -> Tensor:
    """Of both parts, through their pairs: a sixth less for the whole network's step than part by part."""
    return torch.view_as_complex(torch.relu(torch.view_as_real(z)))


def native_average_pool(size: int) -> Callable[[Tensor], Tensor]:
    """PyTorch has none for complex tensors: of both parts."""
    return lambda z: torch.complex(nn.functional.avg_pool2d(z.real, size), nn.functional.avg_pool2d(z.imag, size))


def _complex_mlp() -> nn.Module:
    widths = (784, 256, 128, 10)
    linear = [nn.Linear(i, o, dtype=torch.cfloat) for i, o in pairwise(widths)]
    activation = Elementwise(native_cardioid)
    return nn.Sequential(linear[0], activation, linear[1], activation, linear[2], Elementwise(torch.abs))


def _real_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def _complex_cnn() -> nn.Module:
    def convolution(inputs: int, outputs: int) -> nn.Module:
        return nn.Conv2d(inputs, outputs, 3, dtype=torch.cfloat)

    act = Elementwise(native_crelu)
    first = [convolution(1, 8), act, convolution(8, 16), act, Elementwise(native_average_pool(2))]
    mean = Elementwise(lambda z: z.mean(dim=(2, 3)))
    head = Elementwise(torch.abs)
    return nn.Sequential(*first, convolution(16, 32), act, convolution(32, 64), act, mean, nn.Linear(64, 10, dtype=torch.cfloat), head)


def _real_cnn() -> nn.Module:
    first = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AvgPool2d(2)]
    last = [nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*first, *last)


def _complex_paper() -> nn.Module:
    kind = torch.cfloat
    real = Elementwise(lambda z: z.real)
    return nn.Sequential(nn.Conv2d(3, 32, 3, dtype=kind), nn.Flatten(), nn.Linear(28800, 1, dtype=kind), real)


def _real_paper() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 3), nn.Flatten(), nn.Linear(28800, 1))


def _cnn(name: str) -> tuple[Convolution | Activation | AveragePool | AdaptiveAveragePool | Flatten | Linear, ...]:
    act = Activation(name=name)  # pyright: ignore[reportArgumentType]
    first = (Convolution(outputs=8, kernel=3), act, Convolution(outputs=16, kernel=3), act, AveragePool(kernel=2, stride=2))
    last = (Convolution(outputs=32, kernel=3), act, Convolution(outputs=64, kernel=3), act, AdaptiveAveragePool(size=1))
    return (*first, *last, Flatten(), Linear(outputs=10))


_RELU = Activation(name="relu")
REAL_MLP = Sequential(numbers="real", layers=(Linear(outputs=256), _RELU, Linear(outputs=128), _RELU, Linear(outputs=10)), head="none")
COMPLEX_MLP = ComplexMlp(hidden=(256, 128), activation="cardioid", head="magnitude")
REAL_CNN = Sequential(numbers="real", layers=_cnn("relu"), head="none")
COMPLEX_CNN = Sequential(numbers="complex", layers=_cnn("crelu"), head="magnitude")
_PAPER = (Convolution(outputs=32, kernel=3), Flatten(), Linear(outputs=1))
REAL_PAPER = Sequential(numbers="real", layers=_PAPER, head="none")
COMPLEX_PAPER = Sequential(numbers="complex", layers=_PAPER, head="real_part")

CASES = (
    Case("MLP 784-256-128-10 complex", 512, COMPLEX_MLP, _complex_mlp, (784,), True, 10, 0.95),
    Case("MLP 784-256-128-10 real", 512, REAL_MLP, _real_mlp, (784,), False, 10, 1.10),
    Case("MLP 784-256-128-10 complex", 64, COMPLEX_MLP, _complex_mlp, (784,), True, 10, 1.2),
    Case("MLP 784-256-128-10 real", 64, REAL_MLP, _real_mlp, (784,), False, 10, 1.5),
    Case("CNN 8-16-32-64 complex", 64, COMPLEX_CNN, _complex_cnn, (1, 28, 28), True, 10, 0.70),
    Case("CNN 8-16-32-64 real", 64, REAL_CNN, _real_cnn, (1, 28, 28), False, 10, 1.2),
    Case("conv(3,32,3) + linear(28800,1) complex", 64, COMPLEX_PAPER, _complex_paper, (3, 32, 32), True, 1, 0.75),
    Case("conv(3,32,3) + linear(28800,1) real", 64, REAL_PAPER, _real_paper, (3, 32, 32), False, 1, 1.4),
)
