r"""The paper's networks: as layers in a row, cut in three, and as torch modules."""

from __future__ import annotations

from zetadp.trainer.algorithms.obfuscation.networks.building import DividedNetwork, build, parameter_count, set_statistics, statistics
from zetadp.trainer.algorithms.obfuscation.networks.checks import check_equivariant, turning_error
from zetadp.trainer.specs.obfuscation.shapes import Divided, divided

__all__ = [
    "Divided",
    "DividedNetwork",
    "build",
    "check_equivariant",
    "divided",
    "parameter_count",
    "set_statistics",
    "statistics",
    "turning_error",
]
