r"""What leaves the training process between steps: checkpoints, metrics and the epsilon spent so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from trainer.engine.checkpoint import Checkpoint
from trainer.engine.loop import TrainingState
from trainer.engine.spent import EpsilonSpent
from trainer.errors import TrainingStopped
from trainer.plan import ExecutionPlan
from trainer.report import CheckpointWritten, Metrics, Progress, TrainingEvent

PROGRESS_SECONDS = 0.5
"""Progress at most twice a second."""

ACCOUNTING_SHARE = 0.15
"""Of the run's time, for computing the epsilon spent: it is for watching, and the last step's is always computed."""


@final
class Publisher:
    r"""Called after every step.

    Metrics are published only of a state that is in a checkpoint. A step that was seen through its accuracy and then lost in a crash
    would be run again with other noise: released twice and counted once.
    """

    def __init__(
        self,
        *,
        plan: ExecutionPlan,
        checkpoint_seconds: float,
        earlier: Checkpoint,
        save: Callable[[Checkpoint], None],
        test_accuracy: Callable[[TrainingState], float],
        report: Callable[[TrainingEvent], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._checkpoint_seconds = checkpoint_seconds
        self._earlier = earlier
        self._save = save
        self._test_accuracy = test_accuracy
        self._report = report
        self._should_stop = should_stop
        self._spent = EpsilonSpent(plan)
        self._started = self._checkpointed = time.monotonic()
        self._progress_due = self._started

    @property
    def seconds(self) -> float:
        """Trained so far, over all attempts."""
        return round(self._earlier.seconds + time.monotonic() - self._started, 1)

    def after_step(self, state: TrainingState) -> None:
        """Publishes what is due. Raises TrainingStopped, with the state saved, where a stop was asked for."""
        last = state.step == self._plan.steps
        stop = self._should_stop() and not last
        now = time.monotonic()
        if last or stop or now - self._checkpointed >= self._checkpoint_seconds:
            self._checkpoint(state)
        if last or now >= self._progress_due:
            self._progress(state.step)
        if stop:
            raise TrainingStopped(state.step)

    def stop_before_first_step(self, state: TrainingState) -> None:
        """Raises TrainingStopped where a stop was asked for while the run was being set up."""
        if self._should_stop() and state.step < self._plan.steps:
            self._save(Checkpoint(state, self._earlier.resumptions, self.seconds))
            raise TrainingStopped(state.step)

    def _checkpoint(self, state: TrainingState) -> None:
        self._save(Checkpoint(state, self._earlier.resumptions, self.seconds))
        self._report(CheckpointWritten(step=state.step))
        self._report(Metrics(step=state.step, test_accuracy=self._test_accuracy(state)))
        self._checkpointed = time.monotonic()

    def _progress(self, step: int) -> None:
        before = time.monotonic()
        epsilon = self._spent.after(step)
        self._report(Progress(step=step, steps=self._plan.steps, epsilon=epsilon, delta=self._plan.delta, seconds=self.seconds))
        cost = time.monotonic() - before
        self._progress_due = before + max(PROGRESS_SECONDS, cost / ACCOUNTING_SHARE)
