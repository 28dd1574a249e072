r"""What leaves the training process between steps: checkpoints, metrics and the epsilon spent so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from trainer.engine.checkpoint import Checkpoint, Evaluated
from trainer.engine.loop import TrainingState
from trainer.engine.spent import EpsilonSpent
from trainer.errors import TrainingStopped
from trainer.plan import ExecutionPlan
from trainer.plans import AnyPlan
from trainer.report import CheckpointWritten, HeldOut, Metrics, MetricValues, Progress, TrainingEvent

PROGRESS_SECONDS = 0.5
"""Progress at most twice a second."""

ACCOUNTING_SHARE = 0.15
"""Of the run's time, for computing the epsilon spent: it is for watching, and the last step's is always computed."""


@final
@dataclass(frozen=True)
class Evaluation:
    r"""How a state does on held-out records, as far as that may be known.

    Attributes:
      held_out: public: ``measure`` may be called at any time. private: each call is a release that the plan counts; it is called when
        the plan says and never twice for a state that was kept. none: never called.
    """

    held_out: HeldOut
    measure: Callable[[TrainingState], MetricValues]


@final
class Publisher:
    r"""Called after every step.

    Metrics are published only of a state that is in a checkpoint. A step that was seen through its accuracy and then lost in a crash
    would be run again with other noise: released twice and counted once. What a private evaluation released lies in the same checkpoint.
    """

    def __init__(
        self,
        *,
        plan: AnyPlan,
        checkpoint_seconds: float,
        earlier: Checkpoint,
        save: Callable[[Checkpoint], None],
        evaluation: Evaluation,
        report: Callable[[TrainingEvent], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._private = plan.evaluation if isinstance(plan, ExecutionPlan) else None
        self._checkpoint_seconds = checkpoint_seconds
        self._earlier = earlier
        self._save = save
        self._evaluation = evaluation
        self._report = report
        self._should_stop = should_stop
        self._spent = EpsilonSpent(plan)
        self._written = earlier.written
        self._evaluated = earlier.evaluated
        self._started = self._checkpointed = time.monotonic()
        self._progress_due = self._started

    @property
    def seconds(self) -> float:
        """Trained so far, over all attempts."""
        return round(self._earlier.seconds + time.monotonic() - self._started, 1)

    @property
    def held_out(self) -> HeldOut:
        """What becomes of the held-out records."""
        return self._evaluation.held_out

    @property
    def checkpoints(self) -> int:
        """Written so far, over all attempts."""
        return self._written

    def start(self, state: TrainingState) -> None:
        r"""Before the first step: tells again what a private evaluation told last, which a crash may have swallowed.

        Raises:
          TrainingStopped: a stop was asked for while the run was being set up; the state is saved.
        """
        if self._evaluated is not None:
            self._report(Metrics(step=self._evaluated.step, held_out="private", metrics=self._evaluated.metrics))
        if self._should_stop() and state.step < self._plan.steps:
            self._write(state)
            raise TrainingStopped(state.step)

    def after_step(self, state: TrainingState) -> None:
        """Publishes what is due. Raises TrainingStopped, with the state saved, where a stop was asked for."""
        last = state.step == self._plan.steps
        stop = self._should_stop() and not last
        now = time.monotonic()
        counted = self._private is not None and self._private.is_due(state.step, self._plan.steps)
        if last or stop or counted or now - self._checkpointed >= self._checkpoint_seconds:
            self._checkpoint(state, counted=counted)
        if last or now >= self._progress_due:
            self._progress(state.step)
        if stop:
            raise TrainingStopped(state.step)

    def final_metrics(self, state: TrainingState) -> MetricValues | None:
        """Of the last state: measured where the records are public, the last private evaluation's where there is one."""
        match self._evaluation.held_out:
            case "public":
                return self._evaluation.measure(state)
            case "private":
                assert self._evaluated is not None  # one is due after the last step, and lies in its checkpoint
                return self._evaluated.metrics
            case "none":
                return None

    def _checkpoint(self, state: TrainingState, *, counted: bool) -> None:
        if counted:
            self._evaluated = Evaluated(step=state.step, metrics=self._evaluation.measure(state))
        self._write(state)
        self._report(CheckpointWritten(step=state.step))
        if counted and self._evaluated is not None:
            self._report(Metrics(step=state.step, held_out="private", metrics=self._evaluated.metrics))
        if self._evaluation.held_out == "public":
            self._report(Metrics(step=state.step, held_out="public", metrics=self._evaluation.measure(state)))
        self._checkpointed = time.monotonic()

    def _write(self, state: TrainingState) -> None:
        self._written += 1
        self._save(Checkpoint(state, self._earlier.resumptions, self._written, self.seconds, self._evaluated))

    def _progress(self, step: int) -> None:
        before = time.monotonic()
        epsilon = self._spent.after(step)
        self._report(Progress(step=step, steps=self._plan.steps, epsilon=epsilon, delta=self._plan.delta, seconds=self.seconds))
        cost = time.monotonic() - before
        self._progress_due = before + max(PROGRESS_SECONDS, cost / ACCOUNTING_SHARE)


@final
class Follower:
    """What a process beside the publishing one does after a step: nothing but stop where all stop."""

    def __init__(self, plan: AnyPlan, should_stop: Callable[[], bool]) -> None:
        self._plan = plan
        self._should_stop = should_stop

    def start(self, state: TrainingState) -> None:
        """As ``Publisher.start``, without publishing."""
        self.after_step(state)

    def after_step(self, state: TrainingState) -> None:
        """Raises TrainingStopped where a stop was asked for."""
        if self._should_stop() and state.step < self._plan.steps:
            raise TrainingStopped(state.step)
