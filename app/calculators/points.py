r"""The points of a profile: epsilons up to infinity, and deltas smaller than any float, written as text."""

from __future__ import annotations

import math
import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Strict, StringConstraints, Tag, WithJsonSchema

from zetadp.accountants import Bound, PrivacyProfile
from zetadp.mechanisms.base import LARGEST_SCALE, Number, OpenProbability
from zetadp.mechanisms.errors import InvalidParameter

LONGEST_LIST = 1000

_SMALLEST_FLOAT = 1e-300
"""Smaller deltas are handled by their logarithm: floats lose digits below 2.2e-308."""
_EXACT = Context(prec=60, Emin=MIN_EMIN, Emax=MAX_EMAX)


_DECIMAL = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?$"


def _in_range(text: str) -> str:
    if re.fullmatch(_DECIMAL, text, re.ASCII) is None or not 0 < _EXACT.create_decimal(text) < 1:
        raise InvalidParameter("delta", "a number in (0, 1), like 1e-400", text)
    return text


DeltaText = Annotated[
    str, StringConstraints(strict=True, max_length=50), AfterValidator(_in_range), Field(json_schema_extra={"pattern": _DECIMAL})
]


def _as_written(value: Any) -> str:
    return "text" if isinstance(value, str) else "number"


def _bounded(epsilon: float) -> float:
    if LARGEST_SCALE < epsilon < math.inf:
        raise InvalidParameter("epsilon", f"at most {LARGEST_SCALE!r}, or 'Infinity'", epsilon)
    return epsilon


def _infinity_from_text(value: Any) -> Any:
    return math.inf if value == "Infinity" else value


DeltaPoint = Annotated[Annotated[OpenProbability, Tag("number")] | Annotated[DeltaText, Tag("text")], Discriminator(_as_written)]
"""A number in (0, 1), or the decimal text of one: ``"1e-400"``, which no float is."""

EpsilonPoint = Annotated[
    float,
    Strict(),
    Field(ge=0.0),
    AfterValidator(_bounded),
    BeforeValidator(_infinity_from_text),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0.0, "maximum": LARGEST_SCALE}, {"type": "string", "enum": ["Infinity"]}]}),
]
"""A number >= 0 or ``"Infinity"``, where delta is the probability of an output that proves which neighbour is true."""

EpsilonPoints = Annotated[tuple[EpsilonPoint, ...], Field(max_length=LONGEST_LIST)]
DeltaPoints = Annotated[tuple[DeltaPoint, ...], Field(max_length=LONGEST_LIST)]
Orders = Annotated[tuple[Annotated[Number, Field(gt=1.0, le=1e6)], ...], Field(max_length=LONGEST_LIST)]
Alphas = Annotated[tuple[Annotated[Number, Field(ge=0.0, le=1.0)], ...], Field(max_length=LONGEST_LIST)]


def log_delta_of(delta: float | str) -> float:
    """The logarithm of a delta, to about a float's precision.

    >>> log_delta_of(0.5), log_delta_of("1e-400")
    (-0.6931471805599453, -921.0340371976183)
    """
    return math.log(delta) if isinstance(delta, float) else float(_EXACT.ln(_EXACT.create_decimal(delta)))


def epsilon_at(profile: PrivacyProfile, delta: float | str) -> Bound:
    r"""An interval that holds epsilon at exactly this delta.

    Text is rarely a float: the upper end uses the nearest float below (the nearest logarithm, where floats end), the lower end the one
    above. Raises as ``PrivacyProfile.epsilon`` does.

    >>> from zetadp.accountants.routes.closed.closed_form import GdpProfile
    >>> round(epsilon_at(GdpProfile(1.0, ()), "1e-400").upper, 6)
    43.221913
    """
    if isinstance(delta, float):
        return profile.epsilon(delta)
    exact = _EXACT.create_decimal(delta)
    if exact >= Decimal(_SMALLEST_FLOAT):
        nearest = float(exact)
        below = nearest if Decimal(nearest) <= exact else math.nextafter(nearest, 0.0)
        above = nearest if Decimal(nearest) >= exact else math.nextafter(nearest, 1.0)
        lower, upper = profile.epsilon(min(above, math.nextafter(1.0, 0.0))), profile.epsilon(below)
    else:
        log = float(_EXACT.ln(exact))
        lower = profile.epsilon_at_log_delta(math.nextafter(log, 0.0))
        upper = profile.epsilon_at_log_delta(math.nextafter(log, -math.inf))
    return Bound(lower=lower.lower, upper=upper.upper, route=upper.route)
