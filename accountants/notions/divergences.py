r"""From zCDP and from one Renyi order. Proofs: proofs/notions.md, sections 5, 6 and 7."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from zetadp.accountants.notions import digits
from zetadp.accountants.notions import randomized_response as rr
from zetadp.accountants.notions.answer import Answer, exact, impossible, step
from zetadp.accountants.notions.digits import ONE, ZERO, precise
from zetadp.accountants.notions.gaussian import mu_of_randomized_response
from zetadp.accountants.notions.regions import Extreme, Region
from zetadp.accountants.notions.values import Rdp, Target, ToApproximate, ToRdp, ToTradeOff, Zcdp, as_decimal
from zetadp.accountants.notions.zcdp_to_gdp import certified_mu
from zetadp.mechanisms.base import Step

_ZETA_2 = math.pi**2 / 6.0
_UNIT = Decimal("1e-40")


def from_zcdp(given: Zcdp, to: Target) -> Answer:
    """Renyi divergence at most rho * order for every order; rho > 0."""
    rho = given.rho
    mu = math.sqrt(2.0 * rho)
    name = f"the Gaussian mechanism with mu = sqrt(2 rho) = {mu:.12g}: its Renyi divergence is rho * order at every order"
    if to.kind == "zcdp":
        return exact(rho, name)
    if to.kind == "pure":
        return impossible(f"{name}, but its privacy loss exceeds every epsilon with probability Phi(mu/2 - epsilon/mu) > 0")
    if isinstance(to, ToRdp):
        return exact(digits.up(Fraction(rho) * Fraction(to.order)), name)
    region = Region(rho=rho)
    with precise(region.digits):
        if to.kind == "gdp":
            return _mu(region, rho)
        return _tests(region, to)


def from_rdp(given: Rdp, to: Target) -> Answer:
    """A Renyi divergence of at most value > 0 at one order."""
    if isinstance(to, ToRdp) and to.order == given.order:
        return exact(given.value, f"randomised response with a Renyi divergence of {given.value!r} at order {given.order!r}")
    region = Region(order=given.order, value=given.value)
    if isinstance(to, ToRdp) and to.order < given.order:
        with precise(region.digits):
            return exact(digits.up(rr.renyi(region.epsilon, Decimal(to.order))), _response(region), _corner(region))
    if isinstance(to, ToApproximate | ToTradeOff) or to.kind == "advantage":
        with precise(region.digits):
            return _tests(region, to)
    return impossible(_heavy_tail(given))


def _tests(region: Region, to: Target) -> Answer:
    """delta, epsilon, the curve of tests or the advantage: what binary pairs decide."""
    if isinstance(to, ToTradeOff):
        return _miss(region, Decimal(to.alpha))
    if isinstance(to, ToApproximate) and to.delta is not None:
        return _epsilon(region, as_decimal(to.delta))
    asked = to.epsilon if isinstance(to, ToApproximate) and to.epsilon is not None else 0.0
    found = region.delta(Decimal(asked))
    answer = _from_extreme(region, found, min(1.0, digits.up(found.value)))
    return Answer(answer.status, answer.value, min(0.0, digits.log_up(found.value)), answer.lower, answer.attained_by, steps=answer.steps)


def _epsilon(region: Region, delta: Decimal) -> Answer:
    if delta == ONE:
        return exact(0.0, _response(region))
    if delta == ZERO:
        reason = "the Gaussian mechanism" if region.rho is not None else "a mechanism with a heavy tail"
        return impossible(
            f"{reason} with this level: its privacy loss exceeds every epsilon with positive probability, so delta is never 0"
        )
    found = region.epsilon_at(delta)
    return _from_extreme(region, found, max(0.0, digits.up(found.value, abs(found.value) * digits.SLACK + region.epsilon * _UNIT)))


def _miss(region: Region, alpha: Decimal) -> Answer:
    if alpha in {ZERO, ONE}:
        return exact(
            float(ONE - alpha), "every mechanism with this notion: what never happens under one neighbour never does under the other"
        )
    found = region.false_negative_rate(alpha)
    return _from_extreme(region, found, max(0.0, digits.down(found.value, abs(found.value) * digits.SLACK + _UNIT)))


def _from_extreme(region: Region, found: Extreme, value: float) -> Answer:
    if found.order is None:
        return exact(value, _response(region), _corner(region))
    order = step("order", found.order, "the Renyi order whose bound decides here", 7)
    if not found.tight or value in {0.0, math.inf}:
        return Answer("bound", value, lower=0.0, steps=(order,))
    pair = f"two outputs; one of them has probability {_shown(found.p)} under one neighbour and {_shown(found.q)} under the other"
    return exact(
        value, pair, step("p", _shown(found.p), "touching point of the tangent", 7), step("q", _shown(found.q), "the same", 7), order
    )


def _mu(region: Region, rho: float) -> Answer:
    attained = mu_of_randomized_response(region.epsilon)
    value = certified_mu(rho, float(region.epsilon), attained)
    return Answer("bound", value, lower=attained * (1.0 - 1e-14), steps=(_corner(region),))


def _corner(region: Region) -> Step:
    formula = "eps tanh(eps / 2) = rho" if region.rho is not None else "log(cosh((2 a - 1) eps / 2) / cosh(eps / 2)) / (a - 1) = value"
    return step("eps", digits.up(region.epsilon), f"of the randomised response with this level: {formula}", 5)


def _response(region: Region) -> str:
    return f"randomised response with eps = {_shown(region.epsilon)}, which tells the truth with probability {_shown(region.corner)}"


def _shown(x: Decimal) -> str:
    return f"{x:.15E}" if x != ZERO and abs(x.adjusted()) > 6 else f"{x:.15f}"


def _heavy_tail(given: Rdp) -> str:
    """Probabilities n^-2 2^-(order n) against n^-2 2^-((order - 1) n): the moment of this order is finite, and of no higher one."""
    a, grown = given.order, math.expm1(min((given.order - 1.0) * given.value, 600.0))
    shrunk = -math.expm1(-math.log1p(0.5 * grown) / (a - 1.0)) if grown > 0.0 else 0.0
    c = 0.99 * min(0.25, 0.5 * grown, shrunk) / _ZETA_2
    return (
        f"outputs n = 0, 1, 2, ...; for n >= 1 of probability Q(n) = c n^-2 2^(-{a!r} n) without the record and P(n) = 2^n Q(n) with it, "
        f"c = {c:.6g}, the rest on n = 0: the divergence of order {a!r} is at most {given.value!r} in both orders of neighbours, "
        "and infinite at every higher order; the privacy loss n log 2 has no bound"
    )
