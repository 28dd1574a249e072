r"""From an event to the figures of its guarantee, each rounded to the safe side. They come only from accountants' upper and lower ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from zetadp.accountants import profile
from zetadp.accountants.events import (
    Composed,
    Event,
    FixedSizeSampled,
    Grouped,
    NonPrivate,
    PoissonSampled,
    RandomlyAllocated,
    RandomlyWeighted,
    Release,
    Repeated,
    RepeatedAndSelected,
    Shuffled,
    TruncatedPoissonSampled,
    leaves,
    non_private_reason,
    releases,
)
from zetadp.accountants.profile import PrivacyProfile
from zetadp.app.certificates.facts.decimals import CURVE_DIGITS, exact, lower, upper
from zetadp.app.certificates.facts.guarantee import SEED_SENTENCE, ApproximateDp, DeltaPoint, NoGuarantee, RenyiPoint
from zetadp.mechanisms import NumericalFloor, RandomOrigin, UnsupportedEvent

CURVE = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Points of the delta curve, in multiples of the certified epsilon."""

RENYI_ORDERS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def guarantee_of(event: Event, delta: float, origin: RandomOrigin) -> ApproximateDp | NoGuarantee:
    r"""What a run of this event guarantees at ``delta``.

    Args:
      event: the whole run.
      delta: in (0, 1).
      origin: where its randomness came from. With a user's seed nothing is guaranteed: a seed can be known, or tried.
    """
    if isinstance(event, NonPrivate):
        return NoGuarantee(reason=event.reason)
    if (reason := non_private_reason(event)) is not None:
        return NoGuarantee(reason=f"part of the run has no guarantee: {reason}")
    try:
        claim = _approximate_dp(event, delta)
    except (UnsupportedEvent, NumericalFloor) as error:
        return NoGuarantee(reason=f"no accountant proves a bound for this run: {error}")
    if claim is None:
        return NoGuarantee(reason=f"no finite epsilon was proved at delta = {delta!r}")
    if origin is RandomOrigin.USER_SEED:
        return NoGuarantee(reason=f"{SEED_SENTENCE}: the run's sampling and noise came from a user's seed", if_seed_stays_secret=claim)
    return claim


def is_whole(event: Event) -> bool:
    """Whether every release used all of the data."""
    return all(leaf.is_whole for leaf in leaves(event))


def why_no_epsilon_without_sampling(event: Event) -> str:
    """Why a certificate of this event may state no epsilon without sampling."""
    if is_whole(event):
        return "nothing was sampled: every release used all of the data"
    if without_sampling(event) is None:
        return "samples have a fixed or largest size, or hold every record once, or shares: releases on all of the data don't compare"
    return "no accountant proves a finite epsilon for the same releases on all of the data"


def without_sampling(event: Event) -> Event | None:
    """The same releases, each on all of the data; None if nothing compares with samples as they are drawn."""
    # In a sample of a fixed size one record displaces another, which moves the sum twice as far as in all of the data.
    return None if any(leaf.scheme != "poisson" for leaf in leaves(event)) else _on_all_data(event)


def _on_all_data(event: Event) -> Event:
    match event:
        case PoissonSampled() | TruncatedPoissonSampled() | FixedSizeSampled() | RandomlyAllocated() | Shuffled() | RandomlyWeighted():
            return _on_all_data(event.event)
        case Repeated():
            return Repeated(count=event.count, event=_on_all_data(event.event))
        case RepeatedAndSelected():
            return RepeatedAndSelected(runs=event.runs, event=_on_all_data(event.event))
        case Grouped():
            return Grouped(size=event.size, unit=event.unit, event=_on_all_data(event.event))
        case Composed():
            return Composed(events=tuple(_on_all_data(part) for part in event.events))
        case Release() | NonPrivate():
            return event


def pure_epsilon(event: Event) -> Fraction | None:
    """The sum of every release's epsilon, if each is pure and on all of the data; None if one isn't."""
    total = Fraction(0)
    for leaf, count in releases(event).items():
        own = leaf.mechanism.privacy_loss().pure_epsilon
        if own is None or not leaf.is_whole:
            return None
        total += count * leaf.group * Fraction(own)
    return total if total > 0 else None


def _approximate_dp(event: Event, delta: float) -> ApproximateDp | None:
    """None where the epsilon is infinite."""
    found = profile(event, accountant="auto")
    bound = found.epsilon(delta)
    if not math.isfinite(bound.upper):
        return None
    mu = found.gdp_mu
    pure = pure_epsilon(event)
    return ApproximateDp(
        epsilon=upper(bound.upper),
        delta=exact(delta),
        pure_epsilon=None if pure is None else upper(pure),
        epsilon_lower=lower(bound.lower),
        route=bound.route,
        delta_curve=_delta_curve(found, bound.upper, delta),
        renyi=_renyi(found) or None,
        # One more rounding up: mu itself is a float result, exact to rounding.
        gdp_mu=None if mu is None else upper(mu * (1.0 + 1e-12)),
        epsilon_without_sampling=_without_sampling(event, delta),
    )


def _delta_curve(found: PrivacyProfile, epsilon: float, delta: float) -> tuple[DeltaPoint, ...]:
    """Points of the curve that the accountant can answer; they always include the certified pair."""
    certified = DeltaPoint(epsilon=upper(epsilon), delta=exact(delta))
    points = {float(certified.epsilon): certified}
    for multiple in CURVE:
        # Four digits read better than seventeen, and any epsilon will do.
        position = float(f"{multiple * epsilon:.4g}")
        if multiple == 1.0 or position in points:
            continue
        try:
            points[position] = DeltaPoint(epsilon=exact(position), delta=upper(found.delta(position).upper, CURVE_DIGITS))
        except (NumericalFloor, UnsupportedEvent):
            continue
    return tuple(falling([points[position] for position in sorted(points)], certified))


def falling(points: list[DeltaPoint], certified: DeltaPoint) -> Iterator[DeltaPoint]:
    """The same curve with falling deltas: what holds at an epsilon holds at larger ones, and points may come from different routes."""
    least = "1"
    for point in points:
        if float(point.epsilon) < float(certified.epsilon) and float(point.delta) < float(certified.delta):
            continue  # a better route here than at the certified pair, which is stated as it was found
        least = min(least, point.delta, key=float)
        yield DeltaPoint(epsilon=point.epsilon, delta=least)


def _renyi(found: PrivacyProfile) -> tuple[RenyiPoint, ...]:
    bounds = [(order, found.rdp(order)) for order in RENYI_ORDERS]
    return tuple(
        RenyiPoint(order=exact(order), epsilon=upper(value, CURVE_DIGITS))
        for order, value in bounds
        if value is not None and math.isfinite(value)
    )


def _without_sampling(event: Event, delta: float) -> str | None:
    """Epsilon without amplification; None if there is none to state."""
    whole = None if is_whole(event) else without_sampling(event)
    if whole is None:
        return None
    try:
        bound = profile(whole, accountant="auto").epsilon(delta)
    except (UnsupportedEvent, NumericalFloor):
        return None
    return upper(bound.upper) if math.isfinite(bound.upper) else None
