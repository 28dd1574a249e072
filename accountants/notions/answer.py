r"""The finding of each module of this package for one target, before ``matrix.py`` adds the words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, final

from zetadp.accountants.notions import digits
from zetadp.accountants.notions.values import Status, Target, ToApproximate, ToTradeOff
from zetadp.mechanisms.base import Step

PROOF = "accountants/proofs/notions.md"
ZERO_LEVEL = "any mechanism whose output doesn't depend on the data; no other mechanism has this notion"


@final
@dataclass(frozen=True)
class Answer:
    """The numbers of a ``Conversion``, and the mechanism that shows its status."""

    status: Status
    value: float
    log_value: float | None = None
    lower: float | None = None
    attained_by: str | None = None
    counterexample: str | None = None
    steps: tuple[Step, ...] = ()


Convert: TypeAlias = Callable[[Target], Answer]


def exact(value: float, attained_by: str, *steps: Step, log_value: float | None = None) -> Answer:
    """A value that this mechanism has."""
    return Answer("exact", value, log_value=log_value, attained_by=attained_by, steps=steps)


def exact_delta(delta: Decimal, attained_by: str, *steps: Step) -> Answer:
    """A probability, with its logarithm, rounded up."""
    log = min(0.0, digits.log_up(delta))
    return exact(min(1.0, digits.up(delta)), attained_by, *steps, log_value=log)


def impossible(counterexample: str, *steps: Step) -> Answer:
    """No finite level, as this mechanism shows."""
    return Answer("impossible", float("inf"), counterexample=counterexample, steps=steps)


def step(symbol: str, value: float | str, formula: str, section: int) -> Step:
    """A line that rests on a section of this package's proof."""
    return Step(symbol=symbol, value=value, formula=formula, source=f"{PROOF}, section {section}")


def identical(to: Target) -> Answer:
    """What holds where the two laws are the same: the level 0 of every notion."""
    if isinstance(to, ToTradeOff):
        return exact(digits.down(1 - digits.fraction(to.alpha)), ZERO_LEVEL)
    has_log = to.kind == "advantage" or (isinstance(to, ToApproximate) and to.epsilon is not None)
    return exact(0.0, ZERO_LEVEL, log_value=float("-inf") if has_log else None)


def quantity_of(to: Target) -> str:
    """The name of the requested number."""
    if isinstance(to, ToApproximate):
        return "delta" if to.epsilon is not None else "epsilon"
    names = {"pure": "epsilon", "zcdp": "rho", "rdp": "value", "gdp": "mu", "trade_off": "beta", "advantage": "value"}
    return names[to.kind]
