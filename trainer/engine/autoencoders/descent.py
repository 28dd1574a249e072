r"""Gradient descent on rows that anyone may see, over any number of epochs: post-processing of the release that made them."""

from __future__ import annotations

from typing import final

from torch import Tensor

from zetadp.trainer.engine.autoencoders.batches import Batches
from zetadp.trainer.engine.autoencoders.network import Autoencoder, Slopes
from zetadp.trainer.engine.loop import NO_BOUND, TrainingState
from zetadp.trainer.engine.optimizers import update
from zetadp.trainer.specs.descent import AnyOptimizer


def descended(optimizer: AnyOptimizer, state: TrainingState, gradient: Tensor, steps: int) -> TrainingState:
    """The state after one more of ``steps`` steps."""
    step = state.step + 1
    moved, optimizer_state = update(optimizer, state.optimizer, state.parameters, gradient, step, steps)
    return TrainingState(step, moved, optimizer_state, NO_BOUND)


@final
class RowDescent:
    r"""Descends on batches of rows, each row once in every epoch.

    Args:
      inputs: the encoders' inputs, (rows, n), float32.
      targets: the loss's targets, (rows, ...), as ``slopes_of`` takes them.
      places: which encoder each row goes to, (rows,).
      steps: the number of steps of the whole run.
    """

    def __init__(
        self,
        *,
        network: Autoencoder,
        inputs: Tensor,
        targets: Tensor,
        places: Tensor,
        slopes_of: Slopes,
        optimizer: AnyOptimizer,
        batch_size: int,
        steps: int,
    ) -> None:
        self._network = network
        self._batches = Batches((inputs, targets, network.masks_of(places)), batch_size)
        self._slopes_of = slopes_of
        self._optimizer = optimizer
        self._steps = steps

    def step(self, state: TrainingState) -> TrainingState:
        """The state after one more batch."""
        inputs, targets, masks = self._batches.after(state.step)
        gradient = self._network.gradient(state.parameters, inputs, targets, masks, self._slopes_of)
        return descended(self._optimizer, state, gradient, self._steps)
