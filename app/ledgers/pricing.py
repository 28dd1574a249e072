r"""What a spend costs on a ledger, computed before any lock is taken; and whether one spend is part of another."""

from __future__ import annotations

from functools import lru_cache

from pydantic import TypeAdapter

from zetadp.accountants.deadline import time_limit
from zetadp.accountants.events import releases
from zetadp.accountants.filters import GdpSpend, Price, PureSpend, RdpSpend, ZcdpSpend
from zetadp.app.ledgers.errors import CostTakesTooLong
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.mechanisms.errors import InvalidParameter, TimeLimitReached

LONGEST_KEPT = 4096
"""Characters of a spend whose price is kept; events of training are a few hundred long."""

_SPENT: TypeAdapter[Spent] = TypeAdapter(Spent)


def price_of(definition: LedgerDefinition, spend: Spent, seconds: float) -> Price:
    r"""What ``spend`` takes from each limit; repeated requests are cached.

    Raises:
      UnsupportedEvent: it has no cost in the budget's currency.
      IncompatibleEvent: the event has another adjacency or unit.
      InvalidParameter: it is not an event that an accountant can read, or has other orders than the budget.
      CostTakesTooLong: more than ``seconds``.
    """
    text = _SPENT.dump_json(spend).decode()
    try:
        with time_limit(seconds):
            if len(text) > LONGEST_KEPT:
                return definition.opened().price(spend)
            return _price(definition, text)  # pyright: ignore[reportArgumentType] (a frozen value is hashable)
    except TimeLimitReached as reached:
        raise CostTakesTooLong(reached.seconds) from reached


@lru_cache(maxsize=4096)
def _price(definition: LedgerDefinition, spend: str) -> Price:
    return definition.opened().price(_SPENT.validate_json(spend))


def check_part(released: Spent, whole: Spent) -> None:
    r"""Check that what was released is part of what was reserved: some of its releases and no others, or a smaller number of its kind.

    Raises:
      InvalidParameter: it isn't.
    """
    if not _is_part(released, whole):
        expected = "a part of what was reserved: some of its releases and no others, or a smaller number of the same kind"
        raise InvalidParameter("released", expected, released.kind)


def _is_part(released: Spent, whole: Spent) -> bool:
    match released, whole:
        case PureSpend(), PureSpend():
            return released.epsilon <= whole.epsilon
        case ZcdpSpend(), ZcdpSpend():
            return released.rho <= whole.rho
        case GdpSpend(), GdpSpend():
            return released.mu <= whole.mu
        case RdpSpend(), RdpSpend():
            return released.orders == whole.orders and all(a <= b for a, b in zip(released.values, whole.values, strict=True))
        case (PureSpend() | ZcdpSpend() | GdpSpend() | RdpSpend(), _) | (_, PureSpend() | ZcdpSpend() | GdpSpend() | RdpSpend()):
            return False
        case _:
            available = releases(whole)
            return all(count <= available.get(leaf, 0) for leaf, count in releases(released).items())
