r"""POST /v1/meanings: what a guarantee means for one unit, in figures, in sentences, and in our word for it. Every page shows these."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, final

from fastapi import APIRouter, Depends, Response
from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag

from zetadp.accountants import Release
from zetadp.accountants.attack_sentences import (
    CERTAIN,
    EVEN_ODDS,
    FALSE_POSITIVES,
    Neighbours,
    Tone,
    guessing_sentence,
    naming_rate,
    naming_sentence,
    percent_up,
    plain_decimal,
    publication_sentence,
    strength,
    strengths_in_words,
)
from zetadp.app.calculators.limits import Calculators, calculators
from zetadp.app.calculators.points import LONGEST_LIST, EpsilonPoint
from zetadp.app.calculators.schemas import ProfileRequest, SuccessAt, TradeOffAt, example
from zetadp.mechanisms import Adjacency, PrivacyUnit
from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Count, Number, Value
from zetadp.mechanisms.declared.guarantees import ApproximateGuarantee, PureGuarantee
from zetadp.mechanisms.errors import InvalidParameter

_DECIMAL = r"^(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?(e[+-][0-9]{1,4})?$"
DecimalText = Annotated[str, StringConstraints(strict=True, max_length=64, pattern=_DECIMAL)]
"""A number as certificates write it: it may lie between two floats."""
Share = Annotated[Number, Field(ge=0.0, le=1.0)]


def _at_most_one(text: str) -> str:
    if Decimal(text) > 1:
        raise InvalidParameter("delta", "in [0, 1]", text)
    return text


def _as_written(value: object) -> str:
    return "text" if isinstance(value, str) and value != "Infinity" else "number"


@final
class MeaningRequest(Value):
    r"""A guarantee.

    Attributes:
      epsilon: at least 0, or "Infinity"; as text, such as a certificate's, the float at or above it counts.
      delta: from 0 to 1, as a number or as text.
      adjacency: which data sets are neighbours; null if no part of what was released is private.
      unit: what is protected.
      units: how many there are, all of which delta concerns; null if nobody knows.
      alphas: further false positive rates at which to give the attacker's false negative rate; in [0, 1].
    """

    model_config = example({"epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "patient", "units": 5000})

    epsilon: Annotated[Annotated[EpsilonPoint, Tag("number")] | Annotated[DecimalText, Tag("text")], Discriminator(_as_written)]
    delta: Annotated[
        Annotated[Share, Tag("number")] | Annotated[DecimalText, AfterValidator(_at_most_one), Tag("text")], Discriminator(_as_written)
    ]
    adjacency: Adjacency | None
    unit: PrivacyUnit
    units: Count | None
    alphas: Annotated[tuple[Share, ...], Field(max_length=LONGEST_LIST - 1)] = ()


@final
class Meaning(Value):
    r"""What it means.

    Attributes:
      strength: our word for the protection: strong, moderate, weak, almost no; "no" if nothing is promised.
      tone: how loudly to show it: good, warn or bad.
      guess: a guess from even odds, and how often it is right at most.
      naming: a test that names an absent unit with probability 1 %, and how often it names a present one at most.
      trade_off: the least false negative rates at the requested false positive rates.
      naming_percent: its bound in percent, as in the sentence.
      publication: what delta allows beside that; null where it allows nothing, or nothing is promised.
      strengths: what the words for a strength mean.
    """

    strength: str
    tone: Tone
    guess: SuccessAt
    naming: TradeOffAt
    trade_off: tuple[TradeOffAt, ...]
    naming_percent: str
    publication: str | None
    strengths: str


router = APIRouter()


@router.post("/meanings", summary="Say what a guarantee means", response_model=Meaning)
def create_meaning(request: MeaningRequest, desk: Annotated[Calculators, Depends(calculators)]) -> Response:
    """From epsilon and delta alone: how well the best attack on one unit may do, and our word for that. Rounded to the safe side."""
    return Response(meaning_of(request, desk).model_dump_json(), media_type="application/json")


def meaning_of(request: MeaningRequest, desk: Calculators) -> Meaning:
    """The meaning of what is (epsilon, delta)-DP, whatever it was."""
    epsilon, delta = _float_up(request.epsilon), _float_up(request.delta)
    neighbours: Neighbours | None = None if request.adjacency is None else (request.adjacency, request.unit)
    if neighbours is None or math.isinf(epsilon) or delta >= 1.0:
        guess = SuccessAt(prior=EVEN_ODDS, success=1.0, sentence=guessing_sentence(EVEN_ODDS, 1.0, neighbours))
        naming, *curve = (
            TradeOffAt(alpha=alpha, beta=0.0, sentence=naming_sentence(alpha, 0.0, neighbours))
            for alpha in (FALSE_POSITIVES, *request.alphas)
        )
        word, tone = "no", "bad"
    else:
        event = Release(mechanism=_declared(epsilon, delta, neighbours))
        found = desk.profile(ProfileRequest(event=event, alphas=(FALSE_POSITIVES, *request.alphas), priors=(EVEN_ODDS,)))
        [guess], [naming, *curve] = found.bayes_success, found.trade_off
        found_strength = strength(guess.success, Decimal(str(request.delta)), request.units)
        word, tone = found_strength.name, found_strength.tone
    return Meaning(
        strength=word,
        tone=tone,
        guess=guess,
        naming=naming,
        trade_off=tuple(curve),
        naming_percent=_percent(naming_rate(FALSE_POSITIVES, naming.beta)),
        publication=None if word == "no" else publication_sentence(_as_text(request.delta), request.unit),
        strengths=strengths_in_words(),
    )


def _declared(epsilon: float, delta: float, neighbours: Neighbours) -> ApproximateGuarantee | PureGuarantee:
    adjacency, unit = neighbours
    # Below what can be declared, the least that can be says no less; above, the largest says that nothing is promised.
    scale = min(max(epsilon, SMALLEST_SCALE), LARGEST_SCALE)
    if delta == 0.0:
        return PureGuarantee(epsilon=scale, adjacency=adjacency, unit=unit)
    return ApproximateGuarantee(epsilon=0.0 if epsilon == 0.0 else scale, delta=delta, adjacency=adjacency, unit=unit)


def _percent(rate: Fraction) -> str:
    """Without its sign; a bound this close to 1 is none, as in the sentences."""
    return percent_up(Fraction(1) if rate >= 1 - CERTAIN else rate).removesuffix(" %")


def _as_text(delta: float | str) -> str:
    """As it was sent."""
    return delta if isinstance(delta, str) else plain_decimal(Decimal(repr(delta)))


def _float_up(value: float | str) -> float:
    """The float at or just above a number.

    >>> _float_up("0.1") == 0.1, _float_up("0.3") > 0.3, _float_up(0.3) == 0.3
    (True, True, True)
    """
    near = float(value)
    return near if isinstance(value, float) or Decimal(near) >= Decimal(value) else math.nextafter(near, math.inf)
