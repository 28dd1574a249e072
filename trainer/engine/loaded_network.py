r"""A network in memory with the records that it learns from and is measured on: the starting point of every training of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from zetadp.trainer.data import DataSet
from zetadp.trainer.engine.evaluation import HeldOutRecords
from zetadp.trainer.engine.noise.randomness import stream_of
from zetadp.trainer.engine.precision import compute_in
from zetadp.trainer.engine.run import Setting
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.models import build
from zetadp.trainer.models.front import passed_through, split_front
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.models.model_spec import ModelSpec


@final
@dataclass(frozen=True)
class LoadedNetwork:
    r"""A network and its records, on the run's device.

    Attributes:
      front: the fixed modules that the network begins with; all records have passed through them.
      network: the rest, which is trained.
      features, targets: those of the training records, (records, ...).
    """

    front: nn.Module
    network: nn.Module
    layout: ParameterLayout
    features: Tensor
    targets: Tensor
    held_out: HeldOutRecords

    @staticmethod
    def of(spec: TrainingSpec, model: ModelSpec, data: DataSet, setting: Setting) -> LoadedNetwork:
        """Raises InvalidParameter if the network has no half precision, or if public held-out records contain nothing to measure on."""
        # Initial weights are public and have their own stream.
        stream = stream_of(spec, "model initialisation")
        front, network = split_front(build(model, setting.facts, stream).to(setting.device))
        compute_in(setting.runtime, network)
        features, targets, test_features, test_targets = (
            torch.from_numpy(np.ascontiguousarray(array)).to(setting.device)
            for array in (data.training_features, data.training_targets, data.test_features, data.test_targets)
        )
        layout = ParameterLayout.of(network)
        held_out = HeldOutRecords(network, layout, passed_through(front, test_features), test_targets)
        if spec.held_out == "public":
            held_out.check_measurable()
        return LoadedNetwork(front, network, layout, passed_through(front, features), targets, held_out)
