r"""``convert``: one notion in terms of another, on the safe side, with the reason and a mechanism that shows it."""

from __future__ import annotations

from zetadp.accountants.notions.answer import Answer, exact, identical, impossible, quantity_of
from zetadp.accountants.notions.attacks import from_advantage, from_trade_off, same_laws
from zetadp.accountants.notions.digits import ONE, precise
from zetadp.accountants.notions.divergences import from_rdp, from_zcdp
from zetadp.accountants.notions.gaussian import from_gdp
from zetadp.accountants.notions.matrix import pair_of_kinds
from zetadp.accountants.notions.pure import from_approximate, from_pure
from zetadp.accountants.notions.values import (
    Advantage,
    Approximate,
    Conversion,
    Gdp,
    Notion,
    Pure,
    Rdp,
    Target,
    ToApproximate,
    ToTradeOff,
    TradeOff,
    Zcdp,
    as_decimal,
)

_DIGITS = 60


def convert(given: Notion, to: Target) -> Conversion:
    """The level of ``to`` that every mechanism with the notion ``given`` has.

    Args:
      given: holds for all neighbours, in both orders.
      to: the number to compute, and at which point.

    >>> from zetadp.accountants.notions.values import Pure, ToZcdp
    >>> found = convert(Pure(epsilon=1.0), ToZcdp())
    >>> found.status, round(found.value, 9)
    ('exact', 0.462117157)
    """
    with precise(_DIGITS):
        answer = _answer(given, to)
    words = pair_of_kinds(given.kind, to.kind)
    return Conversion(
        given=given,
        to=to,
        status=answer.status,
        quantity=quantity_of(to),
        value=answer.value,
        log_value=answer.log_value,
        rounding="down" if isinstance(to, ToTradeOff) else "up",
        lower=answer.lower,
        formula=words.formula,
        source=words.source,
        why=words.why if answer.status == words.status or words.otherwise is None else words.otherwise,
        attained_by=answer.attained_by,
        counterexample=answer.counterexample,
        derivation=answer.steps,
    )


def _answer(given: Notion, to: Target) -> Answer:
    if _is_zero(given):
        return identical(to)
    if _is_empty(given):
        return _nothing(to)
    if isinstance(given, Approximate) and as_decimal(given.delta) == 0:
        return from_pure(Pure(epsilon=given.epsilon), to)
    match given:
        case Pure():
            answer = from_pure(given, to)
        case Approximate():
            answer = from_approximate(given, to)
        case Zcdp():
            answer = from_zcdp(given, to)
        case Rdp():
            answer = from_rdp(given, to)
        case Gdp():
            answer = from_gdp(given, to)
        case TradeOff():
            answer = from_trade_off(given, to)
        case Advantage():
            answer = from_advantage(given, to)
    return answer


def _is_zero(given: Notion) -> bool:
    """Whether only mechanisms that ignore the data have it."""
    if isinstance(given, Approximate):
        return given.epsilon == 0.0 and as_decimal(given.delta) == 0
    if isinstance(given, TradeOff):
        return same_laws(given)
    if isinstance(given, Pure):
        return given.epsilon == 0.0
    if isinstance(given, Zcdp):
        return given.rho == 0.0
    if isinstance(given, Gdp):
        return given.mu == 0.0
    return given.value == 0.0


def _is_empty(given: Notion) -> bool:
    """Whether every mechanism has it."""
    if isinstance(given, Approximate):
        return as_decimal(given.delta) == ONE
    if isinstance(given, TradeOff):
        return given.beta == 0.0
    return isinstance(given, Advantage) and given.value == 1.0


def _nothing(to: Target) -> Answer:
    name = "publishing the record, which satisfies this notion, as every mechanism does"
    if isinstance(to, ToTradeOff):
        return exact(0.0, name)
    if to.kind == "advantage" or (isinstance(to, ToApproximate) and to.epsilon is not None):
        return exact(1.0, name, log_value=0.0)
    if isinstance(to, ToApproximate) and to.delta is not None and as_decimal(to.delta) == ONE:
        return exact(0.0, name)
    return impossible(f"{name}: its privacy loss and every Renyi divergence are infinite")
