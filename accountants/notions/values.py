r"""The notions of privacy as values, and the requests for each.

Every notion is a statement about all pairs of neighbours **in both orders**: neighbours are a symmetric relation, so a bound on one
order of a pair is a bound on the other as well.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Annotated, Literal, Self, TypeAlias, final

from pydantic import AfterValidator, Discriminator, Field, Strict, StringConstraints, Tag, model_validator

from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Extended, NonNegative, Step, Value
from zetadp.mechanisms.errors import InvalidParameter

Kind = Literal["pure", "approximate", "zcdp", "rdp", "gdp", "trade_off", "advantage"]
KINDS: tuple[Kind, ...] = ("pure", "approximate", "zcdp", "rdp", "gdp", "trade_off", "advantage")

Status = Literal["exact", "bound", "impossible"]
"""exact: no smaller level holds for every mechanism with the given notion. bound: this one holds, and a smaller one might.
impossible: no finite level holds for every such mechanism."""

_EXACT = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)
_DECIMAL = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?$"


def _probability_text(text: str) -> str:
    if re.fullmatch(_DECIMAL, text, re.ASCII) is None or not 0 <= _EXACT.create_decimal(text) <= 1:
        raise InvalidParameter("delta", "a number in [0, 1], like 1e-400", text)
    return text


def _as_written(value: object) -> str:
    return "text" if isinstance(value, str) else "number"


def _level(value: float) -> float:
    if 0.0 < value < SMALLEST_SCALE:
        raise InvalidParameter("level", f"0 or in [{SMALLEST_SCALE!r}, {LARGEST_SCALE!r}]", value)
    return value


Level = Annotated[NonNegative, AfterValidator(_level)]
"""0 or in [1e-50, 1e50]: squares and their reciprocals then neither overflow nor vanish."""
UnitInterval = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=0.0, le=1.0)]
Order = Annotated[float, Strict(), Field(allow_inf_nan=False, gt=1.0, le=LARGEST_SCALE)]
Delta = Annotated[
    Annotated[UnitInterval, Tag("number")]
    | Annotated[
        str,
        StringConstraints(strict=True, max_length=50),
        AfterValidator(_probability_text),
        Field(json_schema_extra={"pattern": _DECIMAL}),
        Tag("text"),
    ],
    Discriminator(_as_written),
]
"""A number in [0, 1], or the decimal text of one: ``"1e-400"``, which no float is."""


def as_decimal(number: float | str) -> Decimal:
    """Exactly this number; text is read to sixty digits, far below any rounding that matters."""
    return _EXACT.create_decimal(number) if isinstance(number, str) else Decimal(number)


@final
class Pure(Value):
    r"""P(S) <= e^epsilon Q(S) for every event S."""

    kind: Literal["pure"] = "pure"
    epsilon: Level


@final
class Approximate(Value):
    r"""P(S) <= e^epsilon Q(S) + delta for every event S."""

    kind: Literal["approximate"] = "approximate"
    epsilon: Level
    delta: Delta


@final
class Zcdp(Value):
    r"""Renyi divergence at most rho * order, for every order > 1: zero-concentrated differential privacy."""

    kind: Literal["zcdp"] = "zcdp"
    rho: Level


@final
class Rdp(Value):
    r"""Renyi divergence at most ``value`` at one ``order`` > 1, and nothing said of higher ones."""

    kind: Literal["rdp"] = "rdp"
    order: Order
    value: Level


@final
class Gdp(Value):
    r"""No test does better than the best one between N(0, 1) and N(mu, 1)."""

    kind: Literal["gdp"] = "gdp"
    mu: Level


@final
class TradeOff(Value):
    r"""A test with a false positive rate of at most ``alpha`` has a false negative rate of at least ``beta``, for either neighbour."""

    kind: Literal["trade_off"] = "trade_off"
    alpha: UnitInterval
    beta: UnitInterval

    @model_validator(mode="after")
    def _check(self) -> Self:
        # At the ends a sum of floats hides what is above 1: no test that always, or never, says yes has any other rate.
        if self.alpha + self.beta > 1.0 or (1.0 in {self.alpha, self.beta} and min(self.alpha, self.beta) > 0.0):
            raise InvalidParameter("trade_off", "alpha + beta <= 1 (a guess has alpha + beta = 1)", (self.alpha, self.beta))
        return self


@final
class Advantage(Value):
    r"""True positive rate minus false positive rate is at most ``value`` for every test: the total variation distance."""

    kind: Literal["advantage"] = "advantage"
    value: UnitInterval


Notion: TypeAlias = Annotated[Pure | Approximate | Zcdp | Rdp | Gdp | TradeOff | Advantage, Field(discriminator="kind")]


@final
class ToPure(Value):
    """Requests epsilon."""

    kind: Literal["pure"] = "pure"


@final
class ToApproximate(Value):
    """Requests delta at this epsilon, or epsilon at this delta; give exactly one of the two."""

    kind: Literal["approximate"] = "approximate"
    epsilon: Level | None = None
    delta: Delta | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.epsilon is None) == (self.delta is None):
            raise InvalidParameter(
                "approximate", "requested at either an epsilon or a delta", "both" if self.epsilon is not None else "neither"
            )
        return self


@final
class ToZcdp(Value):
    """Requests rho."""

    kind: Literal["zcdp"] = "zcdp"


@final
class ToRdp(Value):
    """Requests the Renyi divergence at this order."""

    kind: Literal["rdp"] = "rdp"
    order: Order


@final
class ToGdp(Value):
    """Requests mu."""

    kind: Literal["gdp"] = "gdp"


@final
class ToTradeOff(Value):
    """Requests the least false negative rate at this false positive rate."""

    kind: Literal["trade_off"] = "trade_off"
    alpha: UnitInterval


@final
class ToAdvantage(Value):
    """Requests the largest true positive minus false positive rate."""

    kind: Literal["advantage"] = "advantage"


Target: TypeAlias = Annotated[ToPure | ToApproximate | ToZcdp | ToRdp | ToGdp | ToTradeOff | ToAdvantage, Field(discriminator="kind")]


@final
class Conversion(Value):
    r"""What a notion says in terms of another.

    Attributes:
      quantity: which number of the target this is: epsilon, delta, rho, value (of an RDP order or an advantage), mu or beta.
      value: on the safe side (``rounding`` says which); "Infinity" if no finite level follows.
      log_value: logarithm of ``value`` before it was rounded to a float, for a delta or an advantage; rounded up.
      lower: what some mechanism with the given notion attains, if ``value`` is a bound.
      why: why the status is what it is.
      attained_by: a mechanism with the given notion that has ``value``, or comes arbitrarily near; null if impossible.
      counterexample: a mechanism with the given notion that violates every level of the target; null if a level follows.
    """

    given: Notion
    to: Target
    status: Status
    quantity: str
    value: Extended
    log_value: Extended | None
    rounding: Literal["up", "down"]
    lower: Extended | None
    formula: str
    source: str
    why: str
    attained_by: str | None
    counterexample: str | None
    derivation: tuple[Step, ...]
