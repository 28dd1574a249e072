r"""A run's networks and records in memory, and the checks before the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.obfuscation.critic import CriticNetwork
from zetadp.trainer.algorithms.obfuscation.networks import DividedNetwork, build, check_equivariant, divided
from zetadp.trainer.algorithms.obfuscation.trained import Trained
from zetadp.trainer.algorithms.obfuscation.training import Batch, JointTraining
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.engine.noise.randomness import stream_of
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.obfuscation.division import Division, Records, distinct_images, divide
from zetadp.trainer.specs.obfuscation.methods import Turned
from zetadp.trainer.specs.plan_base import Plan


@final
@dataclass(frozen=True)
class Placed:
    """``Records`` as tensors on the device."""

    images: Tensor
    labels: Tensor
    properties: Tensor

    @staticmethod
    def of(records: Records, device: torch.device) -> Placed:
        arrays = (records.images, records.labels, records.properties)
        return Placed(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays))


@final
@dataclass(frozen=True)
class Prepared:
    r"""A run's networks and records.

    Attributes:
      kinds: which image each training record has, int64 (records,).
      victims, protected: see ``Division``.
    """

    spec: Obfuscation
    network: DividedNetwork
    training: JointTraining
    trained: Trained
    records: Placed
    kinds: Tensor
    victims: Placed | None
    protected: Placed | None
    classes: int
    properties: int

    @staticmethod
    def of(spec: Obfuscation, plan: Plan, facts: DataSetFacts, device: torch.device, tick: Callable[[], None]) -> Prepared:
        r"""Reads the data, builds the networks and checks that they can be trained.

        Raises:
          InvalidParameter: they can't; the message says why.
        """
        division = divide(spec, spec.data.read())
        kinds = distinct_images(division.training.images)
        shapes = divided(spec.network, spec.method, facts.shape, division.classes)
        network = build(shapes, stream_of(spec, "model initialisation")).to(device)
        records = Placed.of(division.training, device)
        trained = Trained(network, spec.method, plan.noise_std, records.images, tick)
        check_trainable(spec, division, kinds, trained, device)
        if shapes.turned:
            check_equivariant(network.processing, shapes.feature)
        critic = None
        if isinstance(spec.method, Turned) and spec.method.adversarial_weight > 0.0:
            critic = CriticNetwork(spec.method.critic.channels, shapes.feature, stream_of(spec, "critic initialisation")).to(device)
        return Prepared(
            spec=spec,
            network=network,
            training=JointTraining(spec, network, critic, plan.noise_std, tick),
            trained=trained,
            records=records,
            kinds=torch.from_numpy(kinds).to(device),
            victims=None if division.victims is None else Placed.of(division.victims, device),
            protected=None if division.protected is None else Placed.of(division.protected, device),
            classes=division.classes,
            properties=division.properties,
        )

    def batch(self, rows: Tensor) -> Batch:
        r"""Some training records, by number.

        If a batch happens to hold only one image, its last record is replaced by the first with another image: otherwise b would be a.
        """
        if self.network.divided.turned and bool((self.kinds[rows] == self.kinds[rows[0]]).all()):
            rows = rows.clone()
            rows[-1] = (self.kinds != self.kinds[rows[0]]).nonzero()[0, 0]
        return Batch(self.records.images[rows], self.records.labels[rows], self.kinds[rows])


def check_trainable(spec: Obfuscation, division: Division, kinds: np.ndarray, trained: Trained, device: torch.device) -> None:
    r"""Checks that the records suit the method.

    Args:
      kinds: which image each training record has.
      trained: the network before its first step.
    Raises:
      InvalidParameter: there is nothing to take a counterpart from, or an image whose feature hides nothing at any angle.
    """
    if spec.batch_size < 2:
        expected = ">= 2: a record's counterpart and the norms' statistics come from its batch"
        raise InvalidParameter("batch_size", expected, spec.batch_size)
    if not trained.turned:
        return
    if int(kinds.max()) == 0:
        raise InvalidParameter(
            "data", "a data set with at least two different training images: a record's counterpart must not be itself", "one image"
        )
    # Protected records aren't looked at: a refusal would reveal something about them.
    public = (("training", division.training), ("attacked", division.victims))
    for side, records in public:
        if records is None:
            continue
        empty = trained.unclipped(Placed.of(records, device).images).flatten(1).eq(0.0).all(dim=1).nonzero().reshape(-1)
        if len(empty):
            expected = "such that no image's feature is all zero (rotated by any angle it stays zero, and shows that it is)"
            raise InvalidParameter("data", expected, f"{len(empty)} of the {side} records, the first of them is number {int(empty[0])}")
