r"""Networks, each built by a short function from the value that describes it.

Torch is loaded when the first network is built: the API imports only the specs next to this file and never builds one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mechanisms.source import RandomStream
from trainer.data.base import DataSetFacts
from trainer.models.spec import ModelSpec

if TYPE_CHECKING:
    from torch import nn

    from trainer.engine.problem import Losses

__all__ = ["build", "losses_for"]


def build(spec: ModelSpec, facts: DataSetFacts, stream: RandomStream) -> nn.Module:
    """The network with fresh weights from ``stream``, which is public. No layer mixes records.

    It takes features (n, *shape) as in the data set, and returns real class scores (n, classes) or complex images (n, *shape).

    Raises:
      InvalidParameter: the network doesn't fit the data set; ``shapes.check_model`` says so without torch.
    """
    from trainer.models.building import network

    return network(spec, facts, stream)


def losses_for(facts: DataSetFacts) -> Losses:
    """Each record's own loss (n,) from outputs and targets: cross-entropy, or the mean of |difference|^2 over a record's pixels."""
    from trainer.models import losses

    return losses.losses_for(facts)
