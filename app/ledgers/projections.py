r"""How many more spends fit: in closed form if each is its own reservation, by search if one reservation repeats the event."""

from __future__ import annotations

from collections.abc import Callable

from zetadp.accountants.deadline import time_limit
from zetadp.accountants.events import LARGEST_COUNT, Repeated, releases
from zetadp.accountants.filters import Filter, GdpSpend, PureSpend, RdpSpend, ZcdpSpend, repetitions
from zetadp.app.ledgers.errors import CostTakesTooLong
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.resources import Projection, balance_of
from zetadp.app.ledgers.sums import Sums
from zetadp.mechanisms.errors import TimeLimitReached

LARGEST_REPETITION = 10**12


def projected(definition: LedgerDefinition, sums: Sums, spend: Spent, seconds: float, quota: tuple[int, ...] | None = None) -> Projection:
    r"""How many more fit after these sums, and what one of them would leave.

    Args:
      quota: what is left of the quota of whoever asks, for each limit in steps of its grid; None where no quota limits them.
    Raises:
      UnsupportedEvent, IncompatibleEvent, InvalidParameter: the spend has no cost there.
      CostTakesTooLong: more than ``seconds``.
    """
    try:
        with time_limit(seconds):
            state = sums.filter(definition)
            price = state.price(spend)
            separately = state.repetitions(price)
            if quota is not None:
                own = repetitions(definition.budget, quota, price)
                separately = own if separately is None else separately if own is None else min(own, separately)
            together = None if separately is None else _together(state, spend, separately, quota)
            after = None if separately == 0 else balance_of(definition, sums.admitted(definition, price))
            return Projection(separately=separately, together=together, after=after)
    except TimeLimitReached as reached:
        raise CostTakesTooLong(reached.seconds) from reached


def _together(state: Filter, spend: Spent, separately: int, quota: tuple[int, ...] | None) -> int | None:
    if isinstance(spend, PureSpend | ZcdpSpend | GdpSpend | RdpSpend):
        return None
    most = min(LARGEST_REPETITION, LARGEST_COUNT // sum(releases(spend).values()))

    def fits(count: int) -> bool:
        price = state.price(Repeated(count=count, event=spend))
        return state.admits(price) and (quota is None or repetitions(state.budget, quota, price) != 0)

    found = largest(fits, separately, most)
    return None if found == most else found


def largest(holds: Callable[[int], bool], guess: int, most: int) -> int:
    r"""The largest number in [0, most] for which ``holds``, which is true of 0 and, from some number on, false; exact, fast near the guess.

    >>> largest(lambda number: number <= 1000, 998, 10**12)
    1000
    """
    low, high, step = 0, most + 1, 1
    probe = min(max(guess, 1), most)
    while low + 1 < high:
        if holds(probe):
            low, probe = probe, min(probe + step, most) if high > most else (probe + high) // 2
        else:
            high, probe = probe, max(probe - step, 1) if low == 0 else (low + probe) // 2
        step *= 2
        if not low < probe < high:
            probe = (low + high) // 2
    return low
