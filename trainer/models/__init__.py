r"""Networks, each built by a short function from the value that describes it (``trainer.specs.models``)."""

from __future__ import annotations

from zetadp.trainer.models.building import build
from zetadp.trainer.models.losses import Losses, losses_for

__all__ = ["Losses", "build", "losses_for"]
