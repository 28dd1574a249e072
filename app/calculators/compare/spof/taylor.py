r"""POST /v1/compare/taylor: the error of the loss's second-order polynomial, as printed and as proved."""

from __future__ import annotations

import math
from typing import Annotated, Self, final

from fastapi import APIRouter
from pydantic import Field, model_validator

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.proofs import path_of
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis import taylor
from zetadp.mechanisms.analysis.cross_entropy import sigmoid_slope
from zetadp.mechanisms.base import SMALLEST_SCALE, NonNegative, Number, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.published import spof
from zetadp.mechanisms.published import spof_taylor as published

SHOWN_ORDERS = (3, 4, 6, 8, 12, 16, 20)
_PROOF = "proofs/taylor.md"

Coordinate = Annotated[Number, Field(ge=-1e50, le=1e50)]


@final
class TaylorComparison(Value):
    """The loss x softplus(-z) + (1 - x) softplus(z) of one feature, expanded at a to second order.

    Attributes:
      expansion_point: a.
      distance: delta: errors are bounded over |z - a| <= delta.
      target: x, the feature; in [0, 1].
      logit: z, where to give the loss; a + delta if left out.
      stabilisation: c, a public constant added to z.
      derivative_bound: the G of Proposition 1, a bound on every derivative from the third on; there is no such number.
    """

    model_config = example({"expansion_point": 0.0, "distance": 2.0, "target": 1.0, "logit": 2.0, "derivative_bound": 0.25})

    expansion_point: Coordinate
    distance: NonNegative
    target: Annotated[Number, Field(ge=0.0, le=1.0)]
    logit: Coordinate | None = None
    stabilisation: Coordinate = 0.0
    derivative_bound: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if 0.0 < self.distance < SMALLEST_SCALE:
            raise InvalidParameter("distance", f"0 or >= {SMALLEST_SCALE!r}", self.distance)
        return self

    @property
    def z(self) -> float:
        """The logit at which the loss is evaluated, before c."""
        return self.expansion_point + self.distance if self.logit is None else self.logit


@final
class Derivative(Value):
    """softplus^(r)(0), exactly and as a float."""

    order: int
    exact: str
    value: float


@final
class LossAt(Value):
    """The loss at z + c, its true second-order polynomial at a, and the published one (null for c != 0 and a != 0: none is printed).

    Errors are polynomial - loss; losses and errors below the smallest float read 0.
    """

    x: float
    z: float
    exact: float
    polynomial: float
    polynomial_error: float
    published: float | None
    published_error: float | None


@final
class TaylorAnswer(Value):
    """What is proven about the remainder R(z) = loss - polynomial (it doesn't depend on x), and the paper's statements.

    Attributes:
      convergence_radius: of the whole series at a; beyond it no order helps.
      cubic_bound: delta^3 / (36 sqrt 3), for every a.
      quartic_bound: delta^4 / 192, for a = 0.
      largest_error: the maximum of |R| over |z - a| <= delta itself.
      derivatives_at_zero: they grow like r! / pi^r.
    """

    convergence_radius: float
    series_converges: bool
    cubic_bound: float
    quartic_bound: float | None
    largest_error: float
    derivatives_at_zero: tuple[Derivative, ...]
    loss: LossAt
    proof: str
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/taylor", summary="Compare the published Taylor polynomial and its error bound with the true ones")
def compare_taylor(request: TaylorComparison) -> TaylorAnswer:
    """Error bounds of the loss's second-order polynomial, and the loss itself, as published and as proven."""
    a, distance = request.expansion_point, request.distance
    radius = taylor.convergence_radius(a)
    largest = taylor.largest_remainder(a, distance)
    at = _loss_at(request)
    return TaylorAnswer(
        convergence_radius=radius,
        series_converges=distance < radius,
        cubic_bound=taylor.cubic_bound(distance),
        quartic_bound=taylor.quartic_bound(distance) if a == 0.0 else None,
        largest_error=largest,
        derivatives_at_zero=_DERIVATIVES,
        loss=at,
        proof=path_of("taylor.md"),
        published=(_derivative_bound(request), _error_bound(request, largest), _quadratic_coefficient(request), _polynomial(request, at)),
    )


def _loss_at(request: TaylorComparison) -> LossAt:
    x, z, a, c = request.target, request.z, request.expansion_point, request.stabilisation
    at = z + c
    exact = taylor.loss(x, at)
    printed = None
    if c == 0.0:
        printed = published.polynomial(x, z, a)
    elif a == 0.0:
        printed = published.stabilised_polynomial(x, z, c)
    return LossAt(
        x=x,
        z=z,
        exact=exact,
        polynomial=taylor.polynomial(x, at, a),
        polynomial_error=0.0 - taylor.remainder(at, a),
        published=printed,
        published_error=None if printed is None else printed - exact if c != 0.0 else _published_error(x, z, a),
    )


def _published_error(x: float, z: float, a: float) -> float:
    """published - loss, without cancellation: the wrong coefficient of (z - a)^2, and the error of the true polynomial."""
    return (2.0 * x - 1.5) * sigmoid_slope(a) * (z - a) ** 2 - taylor.remainder(z, a)


def _step(symbol: str, value: float, formula: str, source: str = "given") -> Step:
    return Step(symbol=symbol, value=float(value), formula=formula, source=source)


def _derivative_bound(request: TaylorComparison) -> Finding:
    bound = request.derivative_bound
    order = taylor.first_order_above(1.0 if bound is None else bound)
    exceeding = taylor.derivative_at_zero(order)
    return finding(
        "constant that bounds |softplus^(r)(a)| for every r >= 3",
        "spof",
        "Proposition 1, Appendix A",
        printed=bound,
        printed_formula="some G > 0",
        proven=math.inf,
        proven_formula="no constant: limsup (|softplus^(r)(a)| / r!)^(1/r) = 1 / sqrt(a^2 + pi^2) > 0",
        stronger="smaller",
        erratum="S4",
        note="The paper names no G. A bounded sequence of derivatives would make the series converge everywhere; it diverges beyond "
        "sqrt(a^2 + pi^2).",
        derivation=(
            *(_step(f"softplus^({entry.order})(0)", entry.value, f"(2^r - 1) B_r / r = {entry.exact}", _PROOF) for entry in _DERIVATIVES),
            _step("radius", taylor.convergence_radius(request.expansion_point), "sqrt(a^2 + pi^2)", _PROOF),
            _step("sup over r", math.inf, "|softplus^(r)(a)| is unbounded, as r! / radius^r is and the series diverges beyond it", _PROOF),
        ),
        counterexample=Counterexample(
            description=f"The derivative of order {order} at 0 is the first beyond G = {1.0 if bound is None else bound:g}.",
            steps=(
                Step(symbol=f"softplus^({order})(0)", value=str(exceeding), formula="(2^r - 1) B_r / r, exactly", source=_PROOF),
                _step(f"softplus^({order})(0)", float(exceeding), "the same as a float", _PROOF),
            ),
        ),
    )


def _error_bound(request: TaylorComparison, largest: float) -> Finding:
    bound, a, distance = request.derivative_bound, request.expansion_point, request.distance
    steps = [
        _step("delta", distance, "given"),
        _step("cubic bound", taylor.cubic_bound(distance), "delta^3 / (36 sqrt 3): max |softplus'''| = 1 / (6 sqrt 3)", _PROOF),
    ]
    if a == 0.0:
        steps.append(
            _step("quartic bound", taylor.quartic_bound(distance), "delta^4 / 192: softplus'''(0) = 0, max |softplus''''| = 1/8", _PROOF)
        )
    steps.append(_step("largest |R|", largest, "the larger of |R| at a - delta and at a + delta", _PROOF))
    printed = None if bound is None else published.proposition_1_bound(bound, distance)
    return finding(
        "largest error of the true second-order polynomial over |z - a| <= delta",
        "spof",
        "Proposition 1 (10)",
        printed=printed,
        printed_formula="2 G (e^delta - 1 - delta - delta^2 / 2)",
        proven=largest,
        proven_formula="max |R|; at most delta^3 / (36 sqrt 3) for every a, and delta^4 / 192 for a = 0",
        stronger="smaller",
        erratum="S4",
        note=_note_on_bound(bound, printed),
        derivation=tuple(steps),
    )


def _note_on_bound(bound: float | None, printed: float | None) -> str:
    if bound is None:
        return "Send a derivative_bound to see what the printed bound would be."
    if printed is None:
        return "The printed bound is beyond all floats: its logarithm is delta + ln(2 G), to many digits."
    return "Without a G that bounds all derivatives the printed bound is a number without a proof: too small, or far too large."


def _quadratic_coefficient(request: TaylorComparison) -> Finding:
    x, a = request.target, request.expansion_point
    slope = sigmoid_slope(a)
    return finding(
        "coefficient of (z - a)^2",
        "spof",
        "(9), (11), (12)",
        printed=spof.quadratic_coefficient(x, a),
        printed_formula="(2 x - 1) s (1 - s), s = sigmoid(a)",
        proven=0.5 * slope,
        proven_formula="s (1 - s) / 2, which doesn't depend on x; 1/8 at a = 0",
        stronger="neither",
        erratum="S3",
        note="So the published polynomial is off by (2 x - 3/2) s (1 - s) (z - a)^2, at a = 0 by -(3/8 - x/2) z^2: its error is of second "
        "order in z - a, not of third.",
        derivation=(
            _step("a", a, "given"),
            _step("x", x, "given"),
            _step("s (1 - s)", slope, "e^-|a| / (1 + e^-|a|)^2", _PROOF),
            _step("difference", (2.0 * x - 1.5) * slope, "(2 x - 1) s (1 - s) - s (1 - s) / 2", _PROOF),
            _step("coefficient", 0.5 * slope, "s (1 - s) / 2", _PROOF),
        ),
        counterexample=_AT_TWO,
    )


def _polynomial(request: TaylorComparison, at: LossAt) -> Finding:
    c = request.stabilisation
    return finding(
        "second-order polynomial of the loss at z + c",
        "spof",
        "(31)" if c != 0.0 else "(11), (12)",
        printed=at.published,
        printed_formula="ln 2 + c^2 alpha_3 + alpha_2 (1 + 2 c) z + alpha_3 z^2, for a = 0"
        if c != 0.0
        else "loss(a) + (s - x)(z - a) + (2 x - 1) s (1 - s) (z - a)^2",
        proven=at.polynomial,
        proven_formula="loss(a) + (s - x)(z + c - a) + s (1 - s) (z + c - a)^2 / 2",
        stronger="neither",
        erratum="S10" if c != 0.0 else "S3",
        note="For c != 0 the paper prints a polynomial for a = 0 alone."
        if at.published is None
        else "Beside the exact loss, in loss.exact.",
        derivation=(
            _step("exact loss", at.exact, "x softplus(-z - c) + (1 - x) softplus(z + c)", _PROOF),
            _step("error", at.polynomial_error, "true polynomial - exact loss", _PROOF),
            _step("polynomial", at.polynomial, "loss(a) + (s - x)(z + c - a) + s (1 - s) (z + c - a)^2 / 2", _PROOF),
        ),
    )


def _derivatives() -> tuple[Derivative, ...]:
    values = ((order, taylor.derivative_at_zero(order)) for order in SHOWN_ORDERS)
    return tuple(Derivative(order=order, exact=str(value), value=float(value)) for order, value in values)


def _at_two() -> Counterexample:
    x, z = 1.0, 2.0
    return Counterexample(
        description="x = 1, z = 2, a = 0: the published polynomial misses most of the loss, the true one a fraction of it.",
        steps=(
            _step("loss", taylor.loss(x, z), "ln(1 + e^-2)", _PROOF),
            _step("published", published.polynomial(x, z, 0.0), "ln 2 + (1/2 - x) z + (x/2 - 1/4) z^2", "(12)"),
            _step("true polynomial", taylor.polynomial(x, z, 0.0), "ln 2 + (1/2 - x) z + z^2 / 8", _PROOF),
        ),
    )


_DERIVATIVES = _derivatives()
_AT_TWO = _at_two()
