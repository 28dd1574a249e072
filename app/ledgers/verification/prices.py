r"""Recomputes what the spends of a history cost, within a limit of processor time: those that are soonest computed first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, final

from zetadp.app.ledgers.entries import Charge
from zetadp.app.ledgers.errors import CostTakesTooLong
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.pricing import price_of
from zetadp.mechanisms.errors import PrivacyError

PRICES_DIFFER = 10**9
"""A charge may be below the price computed here by one part in this: prices are rounded, and another machine may round otherwise."""

FIRST_SHARE_SECONDS = 0.05
"""How long each spend's price may take in the first round; each further round allows four times as long."""


@final
class Clock:
    r"""The processor time of this thread that one verification may take.

    Args:
      seconds: from now; infinite for no limit.
    """

    def __init__(self, seconds: float) -> None:
        self._ends = time.thread_time() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left; 0 once they are over."""
        return max(0.0, self._ends - time.thread_time())


class _Charged(NamedTuple):
    """The entry of this number charges this for a spend, or for a part of one that is charged ``most`` in all."""

    entry: int
    charge: Charge
    most: Charge | None


@final
@dataclass(slots=True)
class Prices:
    """What a history's entries charge, by spend. Equal spends are computed once."""

    _charged: dict[Spent, list[_Charged]] = field(default_factory=dict[Spent, list[_Charged]])

    def add(self, entry: int, spend: Spent, charge: Charge, most: Charge | None) -> None:
        """An entry's charge, of the budget's length; ``most`` is by what a part is charged at most."""
        self._charged.setdefault(spend, []).append(_Charged(entry, charge, most))

    def problems(self, definition: LedgerDefinition, clock: Clock) -> Iterator[tuple[int, str]]:
        """The entries that charge less than their spend costs, and those whose spend has no price; what isn't reached stays here."""
        share = FIRST_SHARE_SECONDS
        while self._charged and (left := clock.left) > 0:
            share = math.inf if left == math.inf else share
            for spend in list(self._charged):
                if (left := clock.left) <= 0:
                    return
                try:
                    price = price_of(definition, spend, min(share, left)).steps
                except CostTakesTooLong:
                    continue
                except PrivacyError as broken:
                    yield from ((one.entry, f"its spend has no price: {broken}") for one in self._charged.pop(spend))
                    continue
                yield from _too_small(self._charged.pop(spend), price)
            if share == math.inf:
                return  # what stays then was stopped by somebody else's limit
            share *= 4

    @property
    def waiting(self) -> list[int]:
        """The entries whose price wasn't recomputed, in order."""
        return sorted({one.entry for charged in self._charged.values() for one in charged})


def _too_small(charged: list[_Charged], price: Charge) -> Iterator[tuple[int, str]]:
    for one in charged:
        least = price if one.most is None else tuple(min(pair) for pair in zip(price, one.most, strict=True))
        if any(part < whole - whole // PRICES_DIFFER for part, whole in zip(one.charge, least, strict=True)):
            yield one.entry, "its charge is less than its spend costs"
