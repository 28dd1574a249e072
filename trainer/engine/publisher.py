r"""What leaves the training process between steps: checkpoints, metrics and the epsilon spent so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import final

from zetadp.trainer.engine.checkpoint import Checkpoint, Evaluated
from zetadp.trainer.engine.finite import Verdict
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.spent import EpsilonSpent
from zetadp.trainer.errors import TrainingAborted, TrainingDiverged, TrainingStopped
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.report import CheckpointWritten, HeldOut, Metrics, MetricValues, Progress, TrainingEvent

PROGRESS_SECONDS = 0.5
"""Reports progress at most twice a second."""

WRITING_SHARE = 0.05
"""Share of the run's time for checkpoints that are written only to report progress."""

ACCOUNTING_SHARE = 0.15
"""Share of the run's time for computing the epsilon spent: it is only for watching, and is always computed for the last step."""


@final
@dataclass(frozen=True)
class Evaluation:
    r"""How a state does on held-out records, as far as this may be known.

    Attributes:
      held_out: public: ``measure`` may be called at any time. private: each call is a release that the plan counts; it is called when
        the plan says so and never twice for a state that was kept. none: never called.
    """

    held_out: HeldOut
    measure: Callable[[TrainingState], MetricValues]


@final
class Publisher:
    r"""Called after every step.

    Everything published about a step, even its number, concerns a state that is in a checkpoint. A step that was seen and then lost in a
    crash would be run again with other noise: released twice and counted once. That checkpoint also has private evaluations' results.

    This holds for the run's end too, since the end is an output: whether the parameters are still finite after a step is a function of all
    releases so far. So a run that diverges ends with its last state on disk, and trying it again gives the same answer. A step that
    an error ended counts as executed and isn't run again, as far as the disk can be written. A killed process publishes nothing more; the
    steps since its last checkpoint were seen by nobody, except for when it was killed and by what, which no guarantee covers.

    Args:
      looks_later: whether parameters that nothing is published of are looked at after the next step, when an accelerator has computed them
        anyway. If they weren't finite, that step's release goes nowhere: the run ends with the state before it.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        checkpoint_seconds: float,
        earlier: Checkpoint,
        save: Callable[[Checkpoint], None],
        evaluation: Evaluation,
        report: Callable[[TrainingEvent], None],
        should_stop: Callable[[], bool],
        looks_later: bool = False,
    ) -> None:
        self._plan = plan
        self._looks_later = looks_later
        self._unseen: tuple[TrainingState, Verdict] | None = None
        self._private = plan.counts
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
        self._progress_due = self._writing_due = self._started
        self._saved_step = earlier.state.step
        self._before: TrainingState = earlier.state
        self._reached: TrainingState | None = None

    @property
    def seconds(self) -> float:
        """Seconds trained so far, over all attempts."""
        return round(self._earlier.seconds + time.monotonic() - self._started, 1)

    @property
    def held_out(self) -> HeldOut:
        """How the held-out records are used."""
        return self._evaluation.held_out

    @property
    def checkpoints(self) -> int:
        """Checkpoints written so far, over all attempts."""
        return self._written

    def start(self, state: TrainingState) -> None:
        r"""Before the first step: publishes the last result of a private evaluation again, which a crash may have swallowed.

        Raises:
          TrainingDiverged: an earlier attempt ended with parameters that aren't finite, and reported this.
          TrainingStopped: a stop was requested while the run was being set up; the state is saved.
        """
        if self._evaluated is not None:
            self._report(Metrics(step=self._evaluated.step, held_out="private", metrics=self._evaluated.metrics))
        _check_finite(state)
        done = state.step == self._plan.steps
        if done and self._private is not None and (self._evaluated is None or self._evaluated.step < state.step):
            self._checkpoint(state, counted=True)  # an error ended the last step, and with it this count
        if self._should_stop() and not done:
            self._write(state)
            raise TrainingStopped(state.step)

    def after_step(self, state: TrainingState) -> None:
        r"""Publishes what is due.

        Raises:
          TrainingDiverged: the parameters stopped being finite; this very state is saved.
          TrainingStopped: a stop was requested; the state is saved.
        """
        self._reached = state
        self._look()
        self._unseen = (state, Verdict(state.parameters))
        if not self._looks_later:
            self._look()
        last = state.step == self._plan.steps
        stop = self._should_stop() and not last
        now = time.monotonic()
        counted = self._private is not None and self._private.is_due(state.step, self._plan.steps)
        if last or stop or counted or now - self._checkpointed >= self._checkpoint_seconds:
            self._checkpoint(state, counted=counted)
        is_saved = self._saved_step == state.step
        if last or (now >= self._progress_due and (is_saved or now >= self._writing_due)):
            self._look()
            if not is_saved:
                self._save_and_tell(state)
            self._progress(state.step)
        if stop:
            raise TrainingStopped(state.step)
        self._before, self._reached = state, None

    def _look(self) -> None:
        """At the parameters that weren't looked at yet. Raises TrainingDiverged, with their state saved."""
        unseen, self._unseen = self._unseen, None
        if unseen is not None and not unseen[1].is_finite():
            self._save_and_tell(unseen[0])
            raise TrainingDiverged(unseen[0].step)

    def keep(self, state: TrainingState) -> None:
        """Saves the state from which a step was begun and given up, before this is reported."""
        self._look()
        self._write(state)

    def end_early(self, state: TrainingState) -> None:
        """The state after the last step that is taken, though more were planned; with a last count where the plan has counts."""
        is_counted = self._evaluated is not None and self._evaluated.step == state.step
        self._checkpoint(state, counted=self._private is not None and not is_counted)

    def epsilon_after(self, step: int) -> float:
        """What a run planned for so many steps would cost at most, at the plan's delta."""
        return self._spent.after(step)

    @contextmanager
    def kept_before_telling(self) -> Generator[None]:
        r"""Encloses the steps: an error in a step will be reported, so that step goes into a checkpoint first, if possible.

        Raises:
          TrainingAborted: from the error, whose step counts as executed.
        """
        try:
            yield
        except (TrainingStopped, TrainingDiverged):
            raise
        except Exception as error:
            # The step may have failed because of what it released: it isn't run again with other noise; the next one starts where it did.
            state = replace(self._before, step=self._before.step + 1) if self._reached is None else self._reached
            try:
                if self._saved_step != state.step:
                    self._write(state)
            except OSError:
                raise error from None  # a full disk may well be the cause
            raise TrainingAborted(state.step) from error

    def final_metrics(self, state: TrainingState) -> MetricValues | None:
        """The last state's metrics: measured if the records are public, those of the last private evaluation if there is one."""
        match self._evaluation.held_out:
            case "public":
                return self._evaluation.measure(state)
            case "private":
                assert self._evaluated is not None  # one is due after the last step, and is in its checkpoint
                return self._evaluated.metrics
            case "none":
                return None

    def _checkpoint(self, state: TrainingState, *, counted: bool) -> None:
        self._look()
        if counted:
            self._evaluated = Evaluated(step=state.step, metrics=self._evaluation.measure(state))
        self._save_and_tell(state)
        if counted and self._evaluated is not None:
            self._report(Metrics(step=state.step, held_out="private", metrics=self._evaluated.metrics))
        if self._evaluation.held_out == "public":
            self._report(Metrics(step=state.step, held_out="public", metrics=self._evaluation.measure(state)))
        self._checkpointed = time.monotonic()

    def _save_and_tell(self, state: TrainingState) -> None:
        self._write(state)
        self._report(CheckpointWritten(step=state.step))

    def _write(self, state: TrainingState) -> None:
        before = time.monotonic()
        self._written += 1
        self._save(Checkpoint(state, self._earlier.resumptions, self._written, self.seconds, self._evaluated))
        self._saved_step = state.step
        after = time.monotonic()
        self._writing_due = after + (after - before) / WRITING_SHARE

    def _progress(self, step: int) -> None:
        before = time.monotonic()
        epsilon = self._spent.after(step)
        self._report(Progress(step=step, steps=self._plan.steps, epsilon=epsilon, delta=self._plan.delta, seconds=self.seconds))
        cost = time.monotonic() - before
        self._progress_due = before + max(PROGRESS_SECONDS, cost / ACCOUNTING_SHARE)


@final
class Follower:
    """What every process but the publishing one does after a step: it only stops where all stop."""

    def __init__(self, plan: Plan, should_stop: Callable[[], bool]) -> None:
        self._plan = plan
        self._should_stop = should_stop

    def start(self, state: TrainingState) -> None:
        """As ``Publisher.start``, without publishing."""
        self.after_step(state)

    def after_step(self, state: TrainingState) -> None:
        """Raises TrainingDiverged if the parameters stopped being finite, TrainingStopped if a stop was requested."""
        _check_finite(state)
        if self._should_stop() and state.step < self._plan.steps:
            raise TrainingStopped(state.step)

    def keep(self, state: TrainingState) -> None:
        """Does nothing: only the process that publishes writes."""

    @contextmanager
    def kept_before_telling(self) -> Generator[None]:
        """Does nothing: only the process that publishes writes."""
        yield


def _check_finite(state: TrainingState) -> None:
    """Raises TrainingDiverged if a parameter isn't finite."""
    if not Verdict(state.parameters).is_finite():
        raise TrainingDiverged(state.step)
