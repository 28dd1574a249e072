r"""A network in memory with the records that it learns from and is measured on: the starting point of every training of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, final

import numpy as np
import torch
from torch import Tensor, nn

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataRecipe, DataSet, DataSetOnDisk, data_set_facts
from zetadp.trainer.data.files.stored import StoredRecords
from zetadp.trainer.engine.evaluation import HeldOutRecords
from zetadp.trainer.engine.gradients.lazy_rows import LazyRows, StoredLoader
from zetadp.trainer.engine.noise.randomness import stream_of
from zetadp.trainer.engine.precision import compute_in
from zetadp.trainer.engine.run import Setting
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.models import build
from zetadp.trainer.models.front import passed_through, split_front
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.models.named_networks import ModelSpec

IN_MEMORY_BYTES = 2**30
"""Features that take more stay on disk where they can."""

Pair = tuple[Tensor, Tensor]


@final
@dataclass(frozen=True)
class LoadedNetwork:
    r"""A network and its records, on the run's device.

    Attributes:
      front: the fixed modules that the network begins with; all records have passed through them, or pass when they are read.
      network: the rest, which is trained.
      features, targets: those of the training records, (records, ...). Tensors, or ``LazyRows``, as in ``Problem``. Features have passed
        through the front if the records weren't to be kept.
    """

    front: nn.Sequential
    network: nn.Module
    layout: ParameterLayout
    features: Tensor
    targets: Tensor
    held_out: HeldOutRecords

    @staticmethod
    def of(
        spec: TrainingSpec, model: ModelSpec, data: DataSet | DataSetOnDisk, setting: Setting, *, keeps_records: bool = False
    ) -> LoadedNetwork:
        """Raises InvalidParameter if the network has no half precision, or if public held-out records contain nothing to measure on."""
        # Initial weights are public and have their own stream.
        stream = stream_of(spec, "model initialisation")
        front, network = split_front(build(model, setting.facts, stream).to(setting.device))
        compute_in(setting.runtime, network)
        layout = ParameterLayout.of(network)
        (features, targets), held = _sides(data, nn.Sequential() if keeps_records else front, front, setting.device)
        held_out = HeldOutRecords(network, layout, *held)
        if spec.held_out == "public":
            held_out.check_measurable()
        return LoadedNetwork(front, network, layout, features, targets, held_out)


def records_of(recipe: DataRecipe, setting: Setting) -> DataSet | DataSetOnDisk:
    r"""The data set that the run's facts are about, on disk or in memory as the runtime says.

    Raises:
      InvalidParameter: the files aren't what they were when the facts were found, or these data can't be read record by record.
    """
    wanted = setting.runtime.records
    stored = None if wanted == "memory" else recipe.on_disk()
    if stored is None and wanted == "disk":
        raise InvalidParameter("runtime.records", "'auto' or 'memory' for data that aren't stored record by record", wanted)
    if stored is None or (wanted == "auto" and stored.bytes <= IN_MEMORY_BYTES):
        return recipe.read()
    # The files are open, and what is read from now on is compared with what they are now.
    if data_set_facts(recipe) != setting.facts:
        raise InvalidParameter("data", "unchanged since the run was begun", "files that changed")
    if stored.check is not None:
        stored.check()
    return stored


def _sides(data: DataSet | DataSetOnDisk, front: nn.Sequential, held_front: nn.Sequential, device: torch.device) -> tuple[Pair, Pair]:
    """Features and targets of the training records and of the held-out ones, each behind its front."""
    if isinstance(data, DataSetOnDisk):
        return _lazy(data.training, front, device), _lazy(data.test, held_front, device)
    features, targets, test_features, test_targets = (
        torch.from_numpy(np.ascontiguousarray(array)).to(device)
        for array in (data.training_features, data.training_targets, data.test_features, data.test_targets)
    )
    return (passed_through(front, features), targets), (passed_through(held_front, test_features), test_targets)


def _lazy(records: StoredRecords, front: nn.Sequential, device: torch.device) -> Pair:
    # The engine asks lazy rows only for what they have.
    loader, labels = StoredLoader(records, front, device), records.labels
    targets = cast("Tensor", LazyRows(loader, 1)) if labels is None else torch.from_numpy(labels).to(device)
    return cast("Tensor", LazyRows(loader, 0)), targets
