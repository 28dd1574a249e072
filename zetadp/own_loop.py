r"""``private``: the steps of a private training one by one, for those who write the loop around them themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar, final

from torch import Tensor, nn

from zetadp.app.kit.settings import Settings
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.own_module.evaluation import PrivateRecords, PublicRecords
from zetadp.trainer.algorithms.own_module.handover import HandedOver, Stateful, StepsBegun, hand_over, packed, put, taken, unpack
from zetadp.trainer.engine.finite import all_finite
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.publisher import Publisher
from zetadp.trainer.engine.run import Attempt, RunOptions, begin
from zetadp.trainer.errors import TrainingInterrupted, TrainingStopped
from zetadp.trainer.layers.flat_parameters import ParameterLayout
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.report import RunReport
from zetadp.training import OWN, Asked, Data, OwnRun, Trained
from zetadp.watching import held_alone, interruptible, watched

Result = TypeVar("Result")


@final
@dataclass(frozen=True)
class ReleasedStep:
    r"""A step whose noisy gradient is in ``.grad`` of the module's parameters. Holds nothing else that depends on the data.

    Attributes:
      number: from 1; steps that an interrupted attempt began count.
      steps: planned.
      delta: at which epsilon is meant.
    """

    number: int
    steps: int
    delta: float
    _epsilon: Callable[[int], float]

    @property
    def epsilon(self) -> float:
        """What a run planned for so many steps would cost at most. For watching: the certificate is for all planned steps."""
        return self._epsilon(self.number)


def private(
    module: nn.Module,
    loss: Callable[..., Tensor],
    data: Data,
    *,
    delta: float,
    unit: str,
    clipping_bound: float,
    expected_batch_size: int,
    steps: int,
    folder: str | Path,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    clipping: Literal["flat", "per_layer"] = "flat",
    users: Sequence[object] | None = None,
    records_per_user: int | None = None,
    declared_units: int | None = None,
    evaluation: PublicRecords | PrivateRecords | None = None,
    canaries: int | None = None,
    seed: int | None = None,
    description: str = OWN,
    runtime: RuntimeSpec | None = None,
    keep: Sequence[Stateful] = (),
    progress: bool = False,
    settings: Settings | None = None,
) -> PrivateTraining:
    r"""A private training whose steps you take yourself: see ``PrivateTraining``.

    Args:
      module: trained in place. Its frozen parameters and its buffers are taken as they are now.
      keep: what has a ``state_dict`` and goes on with the run after an interruption: optimizer, schedule.
      (others): as for ``train``.
    Raises:
      InvalidParameter: an argument is out of its range, or module, loss and data can't be trained on privately.
    """
    asked = Asked(
        module=module,
        loss=loss,
        data=data,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        delta=delta,
        unit=unit,
        clipping_bound=clipping_bound,
        clipping=clipping,
        expected_batch_size=expected_batch_size,
        steps=steps,
        users=users,
        records_per_user=records_per_user,
        declared_units=declared_units,
        evaluation=evaluation,
        canaries=canaries,
        seed=seed,
        description=description,
        folder=Path(folder),
        runtime=runtime or RuntimeSpec(),
        settings=settings or Settings(),
    )
    return PrivateTraining(asked, keep, draws=progress)


@final
class PrivateTraining:
    r"""Noisy gradients, one a step, for a loop of your own.

        with zetadp.private(module, loss, data, ..., folder="run", keep=[optimizer]) as training:
            for step in training.steps():
                optimizer.step()
            done = training.finish()

    Each step takes a Poisson sample, clips, sums and adds noise, and puts the result, divided by the expected batch size, into ``.grad`` of
    the module's parameters. The next step's gradients are taken at whatever parameters the module has then. What you see, the step and
    these gradients, is released: whatever you make of it costs nothing more. The guarantee doesn't cover what your code learns from the
    records in other ways, by evaluating on them for instance, nor what the module's own code shows of the records that it is given.

    Leaving the loop early is fine: the choice may depend on what was released, so the certificate is for all planned steps, and says how
    many were released. Steps are counted on disk before they release anything; after an interruption the same program goes on behind the
    last one that began, with the module and the objects to ``keep`` as they were at the last checkpoint.
    """

    def __init__(self, asked: Asked, keep: Sequence[Stateful], *, draws: bool) -> None:
        self._asked, self._keep, self._draws = asked, tuple(keep), draws
        self._handed, self._stack = HandedOver(), ExitStack()
        self._run = OwnRun(asked, lambda _module, _layout: self._handed)
        self._begun = StepsBegun(self._run.work)
        self._layout = ParameterLayout.of(self._run.algorithm.module)
        self._attempt: Attempt | None = None
        self._state: TrainingState | None = None
        self._is_handed = False
        packed(self._keep)  # refused before anything is released, where it can't be kept

    def __enter__(self) -> Self:
        stack, run = self._stack, self._run
        try:
            stack.enter_context(held_alone(run.work))
            run.keep_code()
            should_stop = stack.enter_context(interruptible())
            tell = stack.enter_context(watched(None, draws=self._draws))
            options = RunOptions(self._asked.runtime, run.work, tell, should_stop)
            attempt = self._attempt = self._interrupting(lambda: begin(run.algorithm, options, self._begun.count))
            self._state = attempt.start.state
            if attempt.setting.resumed_from is None:
                # A step that is begun has a checkpoint to go on from.
                self._publisher.keep(self._completed(self._state.parameters))
            else:
                put(self._asked.module, self._layout.unflatten(self._state.parameters))
                unpack(self._state.optimizer, self._keep)
            stack.enter_context(attempt.prepared.working())
        except BaseException:
            stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._is_handed:  # the step isn't lost where the caller's code failed behind it
                parameters = self._taken()
                assert self._state is not None
                self._publisher.keep(self._completed(parameters if all_finite(parameters) else self._state.parameters))
        finally:
            self._is_handed, self._attempt = False, None
            self._stack.close()

    def steps(self) -> Iterator[ReleasedStep]:
        r"""The steps that are left. May be called again after a ``break``, to go on.

        Raises:
          TrainingDiverged: the module's parameters stopped being finite.
          TrainingInterrupted: after Ctrl-C (a KeyboardInterrupt), between two steps; the same program goes on.
          InvalidParameter: the module's parameters changed in shape or type.
        """
        plan, attempt = self._run.plan, self._open()
        while True:
            self._take()
            assert self._state is not None
            if self._state.step >= plan.steps or self._begun.ended_early:
                return
            self._begun.begin()
            with self._publisher.kept_before_telling():
                self._state = attempt.prepared.step(self._state)
            assert self._begun.count == self._state.step
            assert self._handed.gradient is not None
            hand_over(self._layout.unflatten(self._handed.gradient), self._asked.module)
            self._is_handed = True
            yield ReleasedStep(self._state.step, plan.steps, plan.delta, self._publisher.epsilon_after)

    def finish(self) -> Trained:
        r"""Ends the training here, and signs the certificate. No step can follow, and the same program finds it finished.

        Raises:
          InvalidParameter: no step was taken.
        """
        attempt = self._open()
        self._take()
        assert self._state is not None
        if not self._state.step:
            raise InvalidParameter("finish()", "called after at least one step", "no step")
        if self._state.step < self._run.plan.steps:
            self._begun.end_early()
            self._publisher.end_early(self._state)
        report = attempt.report(self._state)
        assert report is not None  # a team of one
        # Whether to go on may have followed from what was released: all planned steps are accounted for.
        return self._run.certified(RunReport.model_validate(dict(report) | {"event": self._run.plan.event}))

    def _open(self) -> Attempt:
        if self._attempt is None:
            raise InvalidParameter("private(...)", "used within 'with private(...) as training:'", "outside of it")
        return self._attempt

    @property
    def _publisher(self) -> Publisher:
        publisher = self._open().publisher
        assert isinstance(publisher, Publisher)
        return publisher

    def _taken(self) -> Tensor:
        return taken(self._asked.module, self._layout, self._open().setting.device)

    def _completed(self, parameters: Tensor) -> TrainingState:
        """The state with these parameters, and with what is kept of the caller's."""
        assert self._state is not None
        return replace(self._state, parameters=parameters, optimizer=packed(self._keep))

    def _take(self) -> None:
        """What the caller's code made of the last step becomes the run's state."""
        if not self._is_handed:
            return
        self._state, self._is_handed = self._completed(self._taken()), False
        state = self._state
        self._interrupting(lambda: self._publisher.after_step(state))

    def _interrupting(self, act: Callable[[], Result]) -> Result:
        try:
            return act()
        except TrainingStopped as stopped:
            raise TrainingInterrupted(stopped.step, str(self._asked.folder)) from stopped
