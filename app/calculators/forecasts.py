r"""Refuses at once what would take far too long, with the cheaper bound beside it: nobody waits for an answer that doesn't come."""

from __future__ import annotations

import math

from zetadp.accountants import Target, accountant_named, profile
from zetadp.accountants.costs import Points, predicted_seconds
from zetadp.accountants.deadline import time_limit
from zetadp.app.calculators.calibrations import CalibrationRequest, SweepRequest
from zetadp.app.calculators.points import epsilon_at, log_delta_of
from zetadp.app.calculators.schemas import ProfileRequest
from zetadp.mechanisms.errors import CheaperBound, CostTooHigh, NumericalFloor, TimeLimitReached, UnsupportedEvent

FACTOR = 2.0
"""A calculation is begun unless its prediction exceeds its limit by this factor. Predictions are themselves below what was measured:
``python -m benchmarks costs``."""
CHEAPER_SECONDS = 1.0
"""The most processor time for the cheaper bounds."""
MOST_CHEAPER = 10
"""Of the points that were asked for."""
CHEAPER = "rdp"


def refuse_too_long(request: ProfileRequest | CalibrationRequest | SweepRequest, seconds: float) -> None:
    r"""Do nothing if the answer may be there in time.

    Args:
      seconds: the limit of processor time.
    Raises:
      CostTooHigh: the prediction is several times as much.
    """
    expected = predicted(request)
    if expected > FACTOR * seconds:
        raise CostTooHigh(seconds, expected, _cheaper(request) if isinstance(request, ProfileRequest) else ())


def predicted(request: ProfileRequest | CalibrationRequest | SweepRequest) -> float:
    """A cautious prediction of the answer's processor time on this machine, in seconds; 0 if it is short, or unknown."""
    return predicted_seconds(request.event, accountant_named(request.accountant), _points(request))


def _points(request: ProfileRequest | CalibrationRequest | SweepRequest) -> Points:
    if isinstance(request, ProfileRequest):
        return Points(frozenset(map(log_delta_of, request.deltas)), frozenset(request.epsilons), bool(request.alphas))
    # A search asks for its target's points more than once, and each of a sweep's at least once.
    targets: tuple[Target, ...] = (request.target,) if isinstance(request, CalibrationRequest) else request.targets
    log_deltas = frozenset(math.log(target.delta) for target in targets if target.delta is not None)
    return Points(log_deltas, frozenset(), any(target.trade_off is not None for target in targets))


def _cheaper(request: ProfileRequest) -> tuple[CheaperBound, ...]:
    """What Renyi accounting says of the first of these points, as far as it gets in time."""
    found: list[CheaperBound] = []
    try:
        with time_limit(CHEAPER_SECONDS):
            known = profile(request.event, CHEAPER)
            found.extend(CheaperBound("epsilon", delta, epsilon_at(known, delta).upper, CHEAPER) for delta in request.deltas[:MOST_CHEAPER])
            rest = request.epsilons[: MOST_CHEAPER - len(found)]
            found.extend(CheaperBound("delta", epsilon, known.delta(epsilon).upper, CHEAPER) for epsilon in rest)
    except (UnsupportedEvent, NumericalFloor, TimeLimitReached):
        pass  # what was found until then is true
    return tuple(found)
