r"""Obfuscation with complex-valued features: no table has an epsilon, since no such guarantee is claimed; k-anonymity is."""

from __future__ import annotations

from zetadp.app.papers.schemas import Experiment

EXPERIMENTS = (
    Experiment(
        task="complex-valued ResNets, LeNet, VGG and AlexNet on CIFAR-10, CIFAR-100, CUB-200 and CelebA",
        unit="input",
        note="Tables 1 to 6 print error rates, reconstruction errors and errors of the estimated angle. The guarantee claimed is "
        "k-anonymity, for no stated k.",
    ),
)
