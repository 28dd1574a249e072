r"""From what one kind of attack can do: a point of the trade-off curve, or the largest advantage. Proofs: proofs/notions.md, section 8.

Each allows a mechanism that reveals the record with some probability, so no loss is bounded; tests are. All of it is rational
arithmetic, done exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import final

from zetadp.accountants.notions import digits
from zetadp.accountants.notions.answer import Answer, exact, exact_delta, impossible, step
from zetadp.accountants.notions.digits import ONE, ZERO
from zetadp.accountants.notions.values import Advantage, Target, ToApproximate, ToTradeOff, TradeOff, as_decimal
from zetadp.mechanisms.base import Step


@final
@dataclass(frozen=True)
class _Point:
    """Both orders of neighbours put (low, high) and (high, low) under the curve, low <= high; their sum is below 1, or high is 0."""

    low: Fraction
    high: Fraction

    @property
    def revealed(self) -> Fraction:
        """delta of the mechanism that reveals: the curve starts no lower than high / (1 - low)."""
        return 1 - self.high / (1 - self.low)

    @property
    def odds(self) -> Fraction:
        """e^-epsilon of the randomised response that just meets the point: low / (1 - high)."""
        return self.low / (1 - self.high) if self.low > 0 else Fraction(0)

    def miss(self, alpha: Fraction) -> Fraction:
        """The least false negative rate at this false positive rate."""
        low, high = self.low, self.high
        if alpha <= low:
            return high * (1 - alpha) / (1 - low)
        if low == 0:
            return Fraction(0)
        if alpha < high:
            return max(1 - (1 - high) * alpha / low, low * (1 - alpha) / (1 - high))
        return max(Fraction(0), 1 - (1 - low) * alpha / high)


def from_trade_off(given: TradeOff, to: Target) -> Answer:
    """A point with alpha + beta < 1; nothing follows from beta = 0."""
    alpha, beta = Fraction(given.alpha), Fraction(given.beta)
    point = _Point(min(alpha, beta), max(alpha, beta)) if beta > 0 else _Point(Fraction(0), Fraction(0))
    revealed = digits.up(point.revealed)
    name = f"publish the record with probability {revealed!r} = 1 - h / (1 - l), l and h being the smaller and the larger of alpha and beta"
    response = f"randomised response with e^-eps = l / (1 - h) = {digits.up(point.odds)!r}"
    if isinstance(to, ToTradeOff):
        missed = digits.down(point.miss(Fraction(to.alpha)))
        two = f"two outputs, one with probability {to.alpha!r} without the record and 1 - {missed!r} with it, or the two exchanged"
        return exact(max(0.0, missed), two)
    odds = _decimal(point.odds)
    reveals, responds = _decimal(point.revealed), (ONE - odds) / (ONE + odds)
    shown = (step("reveals", revealed, "1 - h / (1 - l)", 8), step("t", digits.up(point.odds), "l / (1 - h)", 8))
    if to.kind == "advantage":
        return exact_delta(max(reveals, responds), name if reveals >= responds else response, *shown)
    if not isinstance(to, ToApproximate):
        return impossible(_unbounded(name), *shown)
    if to.epsilon is not None:
        # e^epsilon t >= 1 leaves nothing to randomised response, and its exponential may be beyond every exponent.
        log = Decimal(to.epsilon) + odds.ln() if odds > ZERO else None
        second = ONE if log is None else (ONE - digits.exp(min(log, ZERO))) / (ONE + odds)
        return exact_delta(max(reveals, second), name if reveals >= second else response, *shown)
    assert to.delta is not None  # exactly one of the two is given
    return _epsilon(as_decimal(to.delta), reveals, odds, (name, response), shown)


def _epsilon(delta: Decimal, reveals: Decimal, odds: Decimal, names: tuple[str, str], shown: tuple[Step, ...]) -> Answer:
    responds = (ONE - odds) / (ONE + odds)
    if delta < reveals or (odds == ZERO and delta < ONE):
        return impossible(f"{names[0]}: an output proves membership with a probability above {delta}, so no epsilon suffices", *shown)
    if delta >= responds:
        return exact(0.0, names[0] if reveals >= responds else names[1], *shown)
    epsilon = (ONE - delta * (ONE + odds)).ln() - odds.ln()
    return exact(max(0.0, digits.up(epsilon, Decimal("1e-40") * (ONE + abs(odds.ln())))), names[1], *shown)


def from_advantage(given: Advantage, to: Target) -> Answer:
    """Total variation distance of at most ``value``, in (0, 1]."""
    value = Fraction(given.value)
    name = f"publish the record with probability {given.value!r}, else nothing"
    if to.kind == "advantage":
        return exact(given.value, name, log_value=digits.log_up(Decimal(given.value)))
    if isinstance(to, ToTradeOff):
        missed = max(Fraction(0), 1 - value - Fraction(to.alpha))
        return exact(max(0.0, digits.down(missed)), "two outputs whose probabilities under the neighbours differ by the advantage")
    if not isinstance(to, ToApproximate):
        return impossible(_unbounded(name))
    if to.epsilon is not None:
        return exact(given.value, name, log_value=digits.log_up(Decimal(given.value)))
    assert to.delta is not None  # exactly one of the two is given
    if as_decimal(to.delta) >= Decimal(given.value):
        return exact(0.0, name)
    return impossible(f"{name}: an output proves membership with a probability above delta = {to.delta}, so no epsilon suffices")


def _unbounded(name: str) -> str:
    return (
        f"{name}: what is published with the record is never published without it, so the privacy loss and every Renyi divergence are "
        "infinite, and no mu's curve lies below"
    )


def _decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


def same_laws(given: TradeOff) -> bool:
    """Whether the point says that nothing is revealed: exactly on the line of blind guesses, or above it by rounding."""
    return 0.0 < given.alpha < 1.0 and Fraction(given.alpha) + Fraction(given.beta) >= 1
