r"""What a certificate says about attacks on obfuscated features: figures next to what guessing gives; none is a guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, final

from pydantic import Field

from zetadp.app.certificates.facts.decimals import DecimalText, SignedDecimalText, exact, fraction, lower, upper
from zetadp.app.certificates.facts.guarantee import Words
from zetadp.mechanisms.base import Count, Value, is_absent
from zetadp.trainer.specs.findings.attacks import RESOLUTION, SHARES, AttackFigure, AttackFindings, AttackName, Measure, key_bits

DIGITS = 4
"""Significant digits of a measured figure; intervals are rounded outwards."""

TOLERANCE = 1e-9
"""Relative, between a stated parameter and the same computed again."""

MEANING = (
    "attacks were tried on {victims} public records on which neither the network nor the attackers were trained, by attackers trained on "
    "{public} public records; intervals are for other records of the same kind, with 95 % confidence each. The figures are lower bounds on "
    "what somebody can learn, only for this network, these data and these attackers: an attack that fails here proves nothing. What the "
    "paper calls k-anonymity is its critic's loss at k - 1 angles; it isn't k-anonymity, and no figure here is a guarantee"
)

KEY = (
    "the secret of one encoding is one angle, the same for the whole feature: at a resolution of {resolution} radians it has {bits} bits, "
    "which can be found by trial"
)

ATTACKS: dict[AttackName, str] = {
    "angle_by_mean": "the angle from the mean",
    "angle_by_cone": "the angle from the smallest phase",
    "angle_by_principal_axis": "the angle from the principal axis",
    "angle_by_fourth_cumulant": "the angle from the fourth cumulant",
    "angle_by_learned_quadratures": "the angle from a learned judge of both quadratures",
    "inversion_by_angle": "the image by way of the estimated angle (the paper's inversion 1)",
    "inversion_direct": "the image straight from what is sent (the paper's inversion 2)",
    "inversion_with_key": "the image with the true angle",
    "inversion_mean_image": "the mean public image, for comparison",
    "property_from_images": "a property, by a classifier of images, from the reconstruction (the paper's inference 1)",
    "property_from_features": "a property from the feature as estimated (the paper's inference 2)",
    "property_from_reconstructions": "a property from reconstructions (the paper's inference 3)",
    "property_nearest_neighbour": "a property from the nearest public feature (the paper's inference 4, k 1)",
    "property_three_nearest_neighbours": "a property from the three nearest public features (the paper's inference 4, k 3)",
    "property_nearest_neighbours": "a property from the five nearest public features (the paper's inference 4, k 5)",
    "candidate_pair": "whether a given image is one of the two that were sent",
    "repeated_query": "the feature from two encodings of one image",
    "label_without_key": "the answer by way of the estimated angle",
    "label_by_scan": "the answer by trying out angles",
    "label_with_key": "the answer with the angle (what the owner gets)",
}

MEASURES: dict[Measure, str] = {
    "mean_error_radians": "mean error in radians",
    "mean_error_radians_mod_quarter_turn": "mean error in radians, modulo a quarter turn",
    "share_below_tenth_radian": "share with an error below 0.1 radian",
    "mean_squared_error": "mean squared error",
    "accuracy": "share that is right",
    "true_positive_rate": "true positive rate",
    "false_positive_rate": "false positive rate",
    "median_relative_error": "median relative error",
}

CHANCE: dict[Measure, float] = {"mean_error_radians": math.pi / 2.0, "mean_error_radians_mod_quarter_turn": math.pi / 8.0}
"""Mean distance of a uniform angle from any other, on the circle and modulo a quarter turn."""

CHANCE_TOLERANCE = 1e-3


@final
class AttackFigureFacts(Value):
    r"""One figure of one attack.

    Attributes:
      value: rounded to four digits; ``lower`` and ``upper`` of its interval, rounded outwards.
      chance: what somebody who sees nothing reaches.
      trials: that it was measured on.
    """

    attack: AttackName
    measure: Measure
    value: SignedDecimalText
    lower: SignedDecimalText
    upper: SignedDecimalText
    chance: SignedDecimalText
    trials: Count


Figures = Annotated[tuple[AttackFigureFacts, ...], Field(min_length=1, max_length=64)]


@final
class AttackCurvePoint(Value):
    r"""The attacks at one noise.

    Attributes:
      noise_multiplier: std over 2 C; exact.
      std: of the noise on each coordinate of a feature; exact.
      mu: of one query with this noise, rounded up.
    """

    noise_multiplier: DecimalText
    std: DecimalText
    mu: DecimalText
    figures: Figures


@final
class AttackFacts(Value):
    r"""The attacks of one run.

    Attributes:
      victims, public_records: attacked, and trained on by the attackers.
      coordinates: the number of coordinates of one feature.
      attackers: what each learned attacker was.
      figures: as the run's method sends features.
      curve: the same network at other noises; absent where the method has none of a stated scale.
    """

    victims: Count
    public_records: Count
    coordinates: Count
    attackers: Annotated[dict[AttackName, Words], Field(max_length=32)]
    figures: Figures
    curve: Annotated[tuple[AttackCurvePoint, ...], Field(max_length=32, exclude_if=is_absent)] = ()


def attack_facts(found: AttackFindings | None) -> AttackFacts | None:
    """Of what a run reports; None where nothing was attacked."""
    if found is None:
        return None
    return AttackFacts(
        victims=found.victims,
        public_records=found.public_records,
        coordinates=found.coordinates,
        attackers=dict(found.attackers),
        figures=tuple(_figure(one) for one in found.figures),
        curve=tuple(
            AttackCurvePoint(
                noise_multiplier=exact(point.noise_multiplier),
                std=exact(point.std),
                mu=upper(1.0 / point.noise_multiplier),
                figures=tuple(_figure(one) for one in point.figures),
            )
            for point in found.curve
        ),
    )


def attacks_in_words(facts: AttackFacts) -> tuple[str, str]:
    """What these figures are and aren't, and how many bits the angle has as a key."""
    what = MEANING.replace("{victims}", str(facts.victims)).replace("{public}", str(facts.public_records))
    return what, KEY.replace("{resolution}", f"{RESOLUTION:g}").replace("{bits}", lower(key_bits(RESOLUTION)))


def attack_problems(facts: AttackFacts | None, clipping_norm: float | None) -> Iterator[str]:
    """Contradictions between the stated figures; ``clipping_norm``: C of features that had noise, None if none had."""
    if facts is None:
        return
    yield from _figure_problems("run.attacks.figures", facts.figures)
    if facts.curve and clipping_norm is None:
        yield "run.attacks.curve: a noise of a stated scale belongs to clipped features, and the plan has none"
    multipliers = [fraction(point.noise_multiplier) for point in facts.curve]
    if any(later <= earlier for earlier, later in pairwise(multipliers)):
        yield "run.attacks.curve: noise multipliers must ascend"
    for place, point in enumerate(facts.curve):
        where = f"run.attacks.curve[{place}]"
        yield from _figure_problems(f"{where}.figures", point.figures)
        if fraction(point.mu) * fraction(point.noise_multiplier) < 1:
            yield f"{where}.mu: one query with noise multiplier {point.noise_multiplier} has mu 1 over it, got {point.mu}"
        if clipping_norm is not None:
            std = 2 * fraction(point.noise_multiplier) * Fraction(clipping_norm)
            if abs(fraction(point.std) / std - 1) > TOLERANCE:
                yield f"{where}.std: a multiplier of {point.noise_multiplier} and C {clipping_norm} make another one than {point.std}"


def _figure(one: AttackFigure) -> AttackFigureFacts:
    return AttackFigureFacts(
        attack=one.attack,
        measure=one.measure,
        value=_rounded(one.value, ROUND_HALF_EVEN),
        lower=_rounded(one.lower, ROUND_FLOOR),
        upper=_rounded(one.upper, ROUND_CEILING),
        chance=_rounded(one.chance, ROUND_HALF_EVEN),
        trials=one.trials,
    )


def _rounded(value: float, rounding: str) -> str:
    return exact(float(Context(prec=DIGITS, rounding=rounding).create_decimal(Decimal(value))))


def _figure_problems(where: str, figures: Figures) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for one in figures:
        name = f"{where}: {one.attack}, {one.measure}"
        if (one.attack, one.measure) in seen:
            yield f"{name}: stated twice"
        seen.add((one.attack, one.measure))
        low, value, high = fraction(one.lower), fraction(one.value), fraction(one.upper)
        if not low <= value <= high:
            yield f"{name}: {one.value} isn't within {one.lower} to {one.upper}"
        if one.measure in SHARES and not all(0 <= share <= 1 for share in (low, high, fraction(one.chance))):
            yield f"{name}: a share must be in [0, 1]"
        guessed = CHANCE.get(one.measure)
        if guessed is not None and abs(float(one.chance) - guessed) > CHANCE_TOLERANCE:
            yield f"{name}: guessing has {guessed:.4g}, got {one.chance}"
