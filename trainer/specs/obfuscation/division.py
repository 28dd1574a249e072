r"""Who is trained on, who is attacked and who is protected: a data set divided as the spec says. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data.base import DataSet
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.obfuscation.methods import NoisyRotation

PUBLIC_SEED = 0
"""The seed of the shuffle that sets records apart to be attacked: everybody can repeat it."""

_PURPOSE = "evaluation records of an obfuscated network"


@final
@dataclass(frozen=True)
class Records:
    r"""Images with the labels that the task asks for and those that it doesn't.

    Attributes:
      images: float32 (records, channels, height, width).
      labels: the task's labels, int64 (records,).
      properties: the data set's own labels, int64 (records,); the same as ``labels`` if the task is to predict these.
    """

    images: NDArray[Any]
    labels: NDArray[Any]
    properties: NDArray[Any]

    def rows(self, chosen: NDArray[Any]) -> Records:
        """The chosen records."""
        return Records(self.images[chosen], self.labels[chosen], self.properties[chosen])

    def __len__(self) -> int:
        return len(self.images)


@final
@dataclass(frozen=True)
class Division:
    r"""A data set's records by their part in the run.

    Attributes:
      training: public; network and attackers are trained on them.
      victims: public too, and not trained on: the held-out records, or ``evaluation_records`` of the training split; None where nobody
        is attacked or measured.
      protected: the held-out records under ``noisy_rotation``, which nothing but the noisy release may look at; None elsewhere.
      classes: number of classes of the task; ``properties``: of the data set's labels.
    """

    training: Records
    victims: Records | None
    protected: Records | None
    classes: int
    properties: int


def divide(spec: Obfuscation, data: DataSet) -> Division:
    r"""The division of ``data``, the same for the same spec and data.

    Raises:
      InvalidParameter: not enough training records are left, or the data set isn't one of real images with classes.
    """
    if data.classes is None or data.training_features.ndim != 4 or np.iscomplexobj(data.training_features):
        raise InvalidParameter("data", "real images (channels, height, width) with classes", data.training_features.shape)
    given, held_out = (
        _records(spec, data.classes, *pair)
        for pair in ((data.training_features, data.training_targets), (data.test_features, data.test_targets))
    )
    classes = data.classes if spec.task_groups is None else len(spec.task_groups)
    apart = spec.evaluation_records or 0
    if len(given) - apart < spec.batch_size:
        raise InvalidParameter("batch_size", f"<= the {max(0, len(given) - apart)} records that remain for training", spec.batch_size)
    if not isinstance(spec.method, NoisyRotation):
        return Division(given, held_out if spec.held_out_is_public else None, None, classes, data.classes)
    order = shuffled(len(given), PUBLIC_SEED, _PURPOSE)
    # In the data set's order: the batches drawn shouldn't depend on the shuffle.
    victims = given.rows(np.sort(order[:apart])) if apart else None
    return Division(given.rows(np.sort(order[apart:])), victims, held_out, classes, data.classes)


def shuffled(count: int, seed: int, purpose: str) -> NDArray[Any]:
    """The numbers 0 .. count - 1 in a random order, int64, for records that aren't protected: each of them moves others.

    Our own stream draws it, since NumPy doesn't promise the same permutation from the same seed in its next version.
    """
    return np.argsort(RandomStream.from_seed(seed, purpose).uniform(count), kind="stable")


def distinct_images(images: NDArray[Any]) -> NDArray[Any]:
    """A number for each record, (records,) int64; two records have the same number exactly if their images are the same."""
    flat = np.ascontiguousarray(images.reshape(len(images), -1))
    rows = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).reshape(-1)
    return np.unique(rows, return_inverse=True)[1].astype(np.int64)


def _records(spec: Obfuscation, classes: int, images: NDArray[Any], labels: NDArray[Any]) -> Records:
    if spec.task_groups is None:
        return Records(images, labels, labels)
    group_of = np.empty(classes, dtype=np.int64)
    for number, group in enumerate(spec.task_groups):
        group_of[list(group)] = number
    return Records(images, group_of[labels], labels)
