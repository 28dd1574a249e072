r"""From Gaussian differential privacy, and mu from the corner of randomised response. Proofs: proofs/notions.md, sections 4 and 5."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import scipy

from zetadp.accountants.notions import digits
from zetadp.accountants.notions import randomized_response as rr
from zetadp.accountants.notions.answer import Answer, exact, impossible, step
from zetadp.accountants.notions.digits import ONE
from zetadp.accountants.notions.values import Gdp, Target, ToApproximate, ToRdp, ToTradeOff, ToZcdp, as_decimal
from zetadp.accountants.routes.closed.closed_form import GdpProfile
from zetadp.accountants.routes.closed.gdp_inversion import epsilon_upper_at
from zetadp.mechanisms.numerics.gdp import gdp_log_delta, log_delta_error

_RELIABLE_MU = 1e14
"""``log_delta_error`` is proved up to here."""
_ROUNDING = 4e-15
"""Relative error of erf, erfcx and the few operations around them, taken for granted as in mechanisms/proofs/gdp_numerics.md."""


def from_gdp(given: Gdp, to: Target) -> Answer:
    """N(0, 1) against N(mu, 1) dominates; mu > 0."""
    mu = given.mu
    name = f"the Gaussian mechanism with mu = {mu!r}: noise of std 1/mu on a value in [0, 1]"
    if to.kind == "gdp":
        return exact(mu, name)
    if to.kind == "pure":
        return impossible(
            f"{name}: its privacy loss is N(mu^2/2, mu^2), which exceeds every epsilon with probability Phi(mu/2 - epsilon/mu) > 0"
        )
    if isinstance(to, ToZcdp | ToRdp):
        order = Fraction(to.order) if isinstance(to, ToRdp) else Fraction(1)
        return exact(digits.up(order * Fraction(mu) ** 2 / 2), name)
    if isinstance(to, ToTradeOff):
        return exact(min(digits.down(1 - Fraction(to.alpha)), GdpProfile(mu, ()).trade_off(to.alpha)), name)
    if isinstance(to, ToApproximate) and to.delta is not None:
        return _epsilon(mu, as_decimal(to.delta), name)
    return _delta(mu, 0.0 if not isinstance(to, ToApproximate) or to.epsilon is None else to.epsilon, name)


def _delta(mu: float, epsilon: float, name: str) -> Answer:
    x = Fraction(epsilon) / Fraction(mu) - Fraction(mu) / 2
    at = step("eps/mu - mu/2", digits.up(x), "where Phi of its negative is the first term", 4)
    if mu > _RELIABLE_MU:
        # delta <= Phi(-x) <= e^{-x^2/2} / 2; else nothing below 1 is claimed.
        log = digits.up(-x * x / 2) if x > 0 else 0.0
        return Answer("bound", min(1.0, math.nextafter(math.exp(log), 2.0)), log_value=log, lower=0.0, attained_by=None, steps=(at,))
    value = gdp_log_delta(mu, epsilon)
    log = min(0.0, value + log_delta_error(value))
    # e^log is within one unit; one more than that is added.
    return exact(min(1.0, max(math.exp(log) * (1.0 + 4e-16), math.ulp(0.0))), name, at, log_value=log)


def _epsilon(mu: float, delta: Decimal, name: str) -> Answer:
    if delta == ONE:
        return exact(0.0, name)
    if delta == digits.ZERO:
        return impossible(f"{name}: its privacy loss exceeds every epsilon with positive probability, so delta is never 0")
    log = digits.log_down(delta)
    return exact(epsilon_upper_at(mu, log) if log < 0.0 else epsilon_upper_at(mu, -math.ulp(0.0)), name)


def mu_of_randomized_response(epsilon: Decimal) -> float:
    """The mu whose curve meets that of randomised response at its corner, Phi(-mu/2) = 1 / (1 + e^epsilon), rounded up.

    >>> with digits.precise(): round(mu_of_randomized_response(Decimal(1)), 12)
    1.232035385345
    """
    advantage = rr.advantage(epsilon)
    if advantage < Decimal("0.5"):
        # 2 Phi(mu/2) - 1 = erf(mu / sqrt 8).
        target = digits.up(advantage)
        mu = math.sqrt(8.0) * float(scipy.special.erfinv(target))
        return _raised(mu, lambda m: math.erf(m * math.sqrt(0.125)) * (1.0 - _ROUNDING) >= target)
    # log Phi(-mu/2) = -mu^2/8 + log(erfcx(mu / sqrt 8) / 2).
    log_target = digits.down(-epsilon - digits.log1p(digits.exp(-epsilon)))
    mu = -2.0 * float(scipy.special.ndtri_exp(log_target))
    return _raised(mu, lambda m: _log_tail(m) <= log_target)


def _log_tail(mu: float) -> float:
    """Upper end of log Phi(-mu/2)."""
    square, tail = 0.125 * mu * mu, math.log(0.5 * float(scipy.special.erfcx(mu * math.sqrt(0.125))))
    return -square + tail + _ROUNDING * (square + abs(tail) + 1.0)


def _raised(mu: float, enough: Callable[[float], bool]) -> float:
    grown = mu
    width = 1e-15 * mu
    while not enough(grown):
        grown = mu + width
        width *= 1.5
    return grown
