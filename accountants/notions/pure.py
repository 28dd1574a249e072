r"""From pure and approximate differential privacy: randomised response dominates every mechanism, and delta joins by revealing.

Proofs: proofs/notions.md, sections 2 and 3.
"""

from __future__ import annotations

from decimal import Decimal

from zetadp.accountants.notions import digits
from zetadp.accountants.notions import randomized_response as rr
from zetadp.accountants.notions.answer import Answer, exact, exact_delta, impossible, step
from zetadp.accountants.notions.digits import ONE, ZERO
from zetadp.accountants.notions.gaussian import mu_of_randomized_response
from zetadp.accountants.notions.values import Approximate, Pure, Target, ToApproximate, ToPure, ToRdp, ToTradeOff, ToZcdp, as_decimal

_UNIT = Decimal("1e-40")


def from_pure(given: Pure, to: Target) -> Answer:
    """Every mechanism with this epsilon > 0 is a function of randomised response."""
    epsilon = Decimal(given.epsilon)
    name = f"randomised response that tells the truth with probability e^eps / (1 + e^eps), eps = {given.epsilon!r}"
    advantage = digits.up(rr.advantage(epsilon))
    tv = step("tanh(eps/2)", min(1.0, advantage), "(e^eps - 1) / (e^eps + 1)", 2)
    if isinstance(to, ToPure):
        return exact(given.epsilon, name)
    if isinstance(to, ToZcdp):
        return exact(digits.up(rr.concentration(epsilon)), name, tv)
    if isinstance(to, ToRdp):
        return exact(digits.up(rr.renyi(epsilon, Decimal(to.order))), name)
    if to.kind == "gdp":
        mu = mu_of_randomized_response(epsilon)
        return exact(mu, name, step("Phi(-mu/2)", digits.up(digits.exp(-epsilon) / (ONE + digits.exp(-epsilon))), "1 / (1 + e^eps)", 4))
    return _curve(epsilon, ZERO, name, to)


def from_approximate(given: Approximate, to: Target) -> Answer:
    """As pure, except that with probability delta, in (0, 1], anything may be revealed."""
    epsilon, delta = Decimal(given.epsilon), as_decimal(given.delta)
    name = f"publish the record with probability delta = {given.delta}, else use randomised response with eps = {given.epsilon!r}"
    if isinstance(to, ToApproximate | ToTradeOff) or to.kind == "advantage":
        return _curve(epsilon, delta, name, to)
    return impossible(
        f"{name}: an output of probability {given.delta} under one neighbour is impossible under the other, so the privacy loss is "
        "infinite there, and so is every Renyi divergence; the curve of tests starts at 1 - delta instead of 1, below every mu's"
    )


def _curve(epsilon: Decimal, delta: Decimal, name: str, to: Target) -> Answer:
    kept = ONE - delta
    if isinstance(to, ToTradeOff):
        near, far = rr.false_negative_rates(epsilon, delta, Decimal(to.alpha))
        return exact(max(0.0, digits.down(near, _UNIT), digits.down(far)), name)
    if to.kind == "advantage":
        return exact_delta(delta + kept * rr.advantage(epsilon), name)
    assert isinstance(to, ToApproximate)  # the other kinds are answered by the callers
    if to.epsilon is not None:
        return exact_delta(delta + kept * rr.delta(epsilon, Decimal(to.epsilon)), name)
    assert to.delta is not None  # exactly one of the two is given
    return _epsilon(epsilon, delta, as_decimal(to.delta), name)


def _epsilon(epsilon: Decimal, delta: Decimal, asked: Decimal, name: str) -> Answer:
    if asked == delta:
        return exact(digits.nearest(epsilon), name)
    if asked < delta:
        return impossible(f"{name}: an output of probability delta proves which neighbour is true, so no epsilon has a smaller delta")
    share = (asked - delta) / (ONE - delta)
    reached = rr.epsilon_at(epsilon, share)
    return exact(
        digits.up(reached, epsilon * _UNIT) if reached > ZERO else 0.0,
        name,
        step("u", digits.up(share), "(delta' - delta) / (1 - delta)", 3),
    )
