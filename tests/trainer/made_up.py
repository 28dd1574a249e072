r"""Facts and records of data sets that nobody has, the papers' networks for them, small where the network allows, and whole loops."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.engine import PrivateLoop, TrainingState
from zetadp.trainer.models import build
from zetadp.trainer.specs.models import papers
from zetadp.trainer.specs.models.model_spec import ComplexUnet
from zetadp.trainer.specs.models.named_networks import ModelSpec


def facts_of(shape: tuple[int, ...], classes: int | None = 10, *, is_complex: bool = True) -> DataSetFacts:
    """Of a classification, or of a reconstruction where there are no classes."""
    return DataSetFacts(
        training_records=8,
        test_records=2,
        shape=shape,
        is_complex=is_complex,
        task="reconstruction" if classes is None else "classification",
        classes=classes,
        unit="record",
        sha256="0" * 64,
        description="made up",
    )


def built(model: ModelSpec, facts: DataSetFacts, seed: int = 1) -> nn.Module:
    """The network with weights of that seed."""
    return build(model, facts, RandomStream.from_seed(seed, "weights"))


def records(facts: DataSetFacts, count: int = 3, seed: int = 2) -> Tensor:
    """Standard normal numbers, (count, *shape), complex ones of E|x|^2 = 2."""
    numbers = RandomStream.from_seed(seed, "records").normal(2 * count * math.prod(facts.shape)).reshape(2, count, *facts.shape)
    pair = torch.from_numpy(numbers).to(torch.float32)
    return torch.complex(pair[0], pair[1]) if facts.is_complex else pair[0]


def targets(facts: DataSetFacts, count: int = 3) -> Tensor:
    """Labels 0, 1, 2, ..., or other images."""
    return records(facts, count, seed=3) if facts.classes is None else torch.arange(count) % facts.classes


SMALL_UNET = ComplexUnet(channels=4, pools=2, activation="crelu", norm_groups=None, dropout=0.0, residual=False)

REAL_CIFAR = 32 * 28 + 32 * 289 + 64 * 289 + 64 * 577 + 128 * 577 + 128 * 1153 + 256 * 1153 + 10 * 2305
"""Weights and biases of Papernot's network on three real channels."""

PAPERS: list[tuple[ModelSpec, DataSetFacts, int]] = [
    (papers.phase_mnist(), facts_of((784,)), 2 * (784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10)),
    (papers.real_mnist(), facts_of((784,), is_complex=False), 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10),
    # The global average takes any size: small images keep the test fast.
    (papers.papernot_cifar("complex"), facts_of((3, 8, 8)), 2 * REAL_CIFAR),
    (papers.papernot_cifar("real"), facts_of((3, 8, 8), is_complex=False), REAL_CIFAR),
    (papers.papernot_cifar("real_pairs"), facts_of((3, 8, 8)), REAL_CIFAR + 32 * 27),
    (papers.ecg(), facts_of((512,), 2), 2 * (512 * 256 + 256 + 256 * 128 + 128 + 128 * 2 + 2)),
    (papers.speech(8), facts_of((1, 17, 20), 8), 2 * (8 * 10 + 16 * 73 + 32 * 145 + 64 * 289 + 64 * 65 + 8 * 65)),
    # Convolutions, two numbers for each channel of a norm, and the last layer.
    (papers.mri_sequence(4), facts_of((1, 32, 32), 4), 2 * (32 * 10 + 64 * 289 + 128 * 577 + 2 * (32 + 64 + 128) + 4 * 129)),
    # 14 norms' channels: two a block of 4, 8, 16, 8, 4, one for each of two upward steps.
    (
        SMALL_UNET,
        facts_of((1, 16, 16), None),
        2 * (9 * (4 + 16 + 32 + 64 + 128 + 256) + 4 * (128 + 32) + 9 * (128 + 64 + 32 + 16) + 5 + 2 * (2 * (4 + 8 + 16 + 8 + 4) + 8 + 4)),
    ),
]
"""Network, data set, and how many real numbers its parameters are."""


def all_steps(loop: PrivateLoop, state: TrainingState) -> TrainingState:
    """From ``state`` to the plan's last step."""
    while state.step < loop.plan.steps:
        state = loop.step(state)
    return state
