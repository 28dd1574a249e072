r"""A training's progress on a terminal, and what ``zetadp train`` learns of the trainings in the file that it runs. Free of torch."""

from __future__ import annotations

import math
import sys
from contextvars import ContextVar
from types import TracebackType
from typing import Self, final

from rich import progress as bars
from rich.console import Console

from zetadp.mechanisms.base import Count, Value
from zetadp.mechanisms.numerics.rounding import fixed_up
from zetadp.trainer.specs.report import METRICS, Metrics, Progress, Stage, Started

HELD_OUT = {
    "public": "on held-out records that were declared public, outside the guarantee",
    "private": "on held-out records, with noise: the guarantee covers them",
}
"""What metrics reveal about the people they were measured on."""

SHARE_BETWEEN_LINES = 0.1
"""Where there is no terminal, a line is written after each such part of the steps."""


@final
class CertifiedTraining(Value):
    r"""A training in the caller's program that ended with a certificate.

    Attributes:
      folder, certificate: paths, as the caller gave the folder.
      epsilon: at ``delta``, as the certificate states it; None where it states no guarantee.
      steps: planned.
      steps_released: noisy sums that were released.
      stopped_early: whether they are fewer; the certificate is for all planned steps nevertheless.
    """

    folder: str
    certificate: str
    epsilon: float | None
    delta: float
    steps: Count
    steps_released: Count
    stopped_early: bool


CERTIFIED: ContextVar[list[CertifiedTraining] | None] = ContextVar("certified", default=None)
"""Set while ``zetadp train`` runs a file: each training in it draws its progress and is added here."""


@final
class ProgressBar:
    r"""A line that is updated in a terminal, and a line now and then elsewhere. Use it as a context manager.

    Args:
      console: where it is drawn; standard error by default.
      doing: what is said before the first step.
    """

    def __init__(self, console: Console | None = None, doing: str = "training") -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        columns = (
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=10),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[spent]}"),
            bars.TimeRemainingColumn(),
            bars.TextColumn("left"),
        )
        # What a program prints beside the bar stays on the stream that it was printed to, unless both are the same terminal.
        self._bar = bars.Progress(*columns, console=self._console, refresh_per_second=4, redirect_stdout=sys.stdout.isatty())
        self._task = self._bar.add_task(doing, total=None, spent="")
        self._shown = -1.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, event: object) -> None:
        """Draws what a training event says; others say nothing that is shown."""
        match event:
            case Progress():
                spent = cost(event.epsilon, event.delta, 4)
                self._bar.update(self._task, completed=event.step, total=event.steps, spent=spent)
                self._line(event.step, event.steps, spent, event.seconds)
            case Metrics():
                self.say(f"step {event.step}  {metrics_line(event)}")
            case Started():
                self._bar.update(self._task, description="training")
                if event.resumed_from_step > 0:
                    self.say(f"continued from the checkpoint at step {event.resumed_from_step}")
            case Stage():
                self.do(event.doing)
                if not self._console.is_terminal:
                    self.say(event.doing)
            case _:
                pass

    def do(self, what: str) -> None:
        """Says what is being done, before the bar."""
        self._bar.update(self._task, description=what)

    def say(self, line: str) -> None:
        """A line of its own, above the bar."""
        self._console.print(line, markup=False)

    def _line(self, step: int, steps: int, spent: str, seconds: float) -> None:
        """Without a terminal nothing can be updated."""
        if self._console.is_terminal or (step < steps and step / steps < self._shown + SHARE_BETWEEN_LINES):
            return
        self._shown = step / steps
        left = "" if step == steps else f"  about {seconds / step * (steps - step):.0f} s left"
        self.say(f"step {step}/{steps}  {spent}{left}")


def cost(epsilon: float, delta: float, digits: int | None) -> str:
    """What was spent, with this many decimals of epsilon, rounded up, or all of them; or that nothing is guaranteed.

    >>> cost(0.50001, 1e-5, 4), cost(math.inf, 1e-5, None)
    ('epsilon 0.5001 at delta 1e-05 spent', 'no guarantee')
    """
    if math.isinf(epsilon):
        return "no guarantee"
    if digits is None:
        return f"epsilon {epsilon!r} at delta {delta!r} spent"
    return f"epsilon {fixed_up(epsilon, digits)} at delta {delta:g} spent"


def metrics_line(metrics: Metrics) -> str:
    """Every metric by name, and what protects the held-out records that it was measured on."""
    figures = "  ".join(f"{METRICS.get(name, name)} {value:.4f}" for name, value in metrics.metrics.items())
    return f"{figures} ({HELD_OUT[metrics.held_out]})"
