r"""The calibrations of a sweep: many targets, one event."""

from __future__ import annotations

import time

from zetadp.accountants import Target, accountant_named
from zetadp.accountants.calibration import Solution, solve_many
from zetadp.app.calculators.calibrations import Sweep, SweepPoint, SweepRequest, noise_of
from zetadp.app.kit.problems import problem_of


def compute_sweep(request: SweepRequest) -> Sweep:
    """A calibration for each target; a target that can't be met doesn't affect the others. Raises the accountants' errors."""
    begun = time.thread_time()
    solutions = solve_many(request.event, request.parameter, request.targets, accountant_named(request.accountant))
    points = tuple(_point(target, solution) for target, solution in zip(request.targets, solutions, strict=True))
    return Sweep(parameter=request.parameter, points=points, processor_seconds=time.thread_time() - begun)


def _point(target: Target, solution: Solution | Exception) -> SweepPoint:
    if isinstance(solution, Exception):
        problem = problem_of(solution).marshal()
        return SweepPoint(target=target, value=None, misses_at=None, at_limit=None, noise_multiplier=None, std=None, problem=problem)
    multiplier, std = noise_of(solution.event)
    return SweepPoint(
        target=target,
        value=solution.value,
        misses_at=solution.misses_at,
        at_limit=solution.at_limit,
        noise_multiplier=multiplier,
        std=std,
        problem=None,
    )
