r"""The geometry of the plot of delta(epsilon), for any medium that draws it.

Drawn as steps: between two stated points only the left one's delta is stated, since delta falls. A straight line between them would show
figures that nobody certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.page.blocks import CurvePlot

WIDTH, HEIGHT = 560.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 16.0, 16.0, 48.0
_TICKS = 6


@final
@dataclass(frozen=True)
class Mark:
    """A tick: where, in units of the plot with the origin at its top left, and its label."""

    place: float
    label: str


@final
@dataclass(frozen=True)
class Geometry:
    """The steps, the points and the certified one as places; ticks of both axes."""

    steps: tuple[tuple[float, float], ...]
    dots: tuple[tuple[float, float], ...]
    certified: tuple[float, float] | None
    across: tuple[Mark, ...]
    upwards: tuple[Mark, ...]


def geometry(plot: CurvePlot) -> Geometry:
    """Epsilon across, delta upwards by its logarithm; points at which delta is 0 lie below every axis and are left to the table."""
    shown = [(epsilon, math.log10(delta)) for epsilon, delta in plot.points if delta > 0.0]
    step = _step(max((epsilon for epsilon, _ in shown), default=1.0) or 1.0)
    end = step * math.ceil(max((epsilon for epsilon, _ in shown), default=1.0) / step) or step
    low = math.floor(min((power for _, power in shown), default=-1.0))
    low = min(low, -1)

    def place(epsilon: float, power: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * epsilon / end
        return round(across, 2), round(TOP + (HEIGHT - TOP - BOTTOM) * power / low, 2)

    dots = tuple(place(*point) for point in shown)
    steps: list[tuple[float, float]] = []
    for dot in dots:
        if steps:
            steps.append((dot[0], steps[-1][1]))
        steps.append(dot)
    if steps:
        steps.append((WIDTH - RIGHT, steps[-1][1]))
    epsilon, delta = plot.certified
    every = math.ceil(-low / _TICKS)
    return Geometry(
        steps=tuple(steps),
        dots=dots,
        certified=place(epsilon, math.log10(delta)) if delta > 0.0 and epsilon <= end else None,
        across=tuple(Mark(place(number * step, 0.0)[0], f"{number * step:g}") for number in range(round(end / step) + 1)),
        upwards=tuple(Mark(place(0.0, power)[1], "1" if power == 0 else f"1e{power}") for power in range(0, low - 1, -every)),
    )


def _step(largest: float) -> float:
    """A round distance of ticks: about six of them reach ``largest``."""
    raw = largest / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * (1.0 - 1e-9))
