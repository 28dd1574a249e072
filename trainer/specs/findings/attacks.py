r"""The findings of attacks on obfuscated features: figures with intervals, next to what guessing achieves. Free of torch.

An attack that fails proves nothing: another may succeed. None of these figures is a guarantee, and none is anonymity of any kind.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Count, Number, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter

CONFIDENCE = 0.95
"""The confidence of every interval here."""

RESOLUTION = 0.05
"""The resolution in radians to which an angle must be known for the key's entropy to be stated."""

AttackName = Literal[
    "angle_by_mean",
    "angle_by_cone",
    "angle_by_principal_axis",
    "angle_by_fourth_cumulant",
    "angle_by_learned_quadratures",
    "inversion_by_angle",
    "inversion_direct",
    "inversion_with_key",
    "inversion_mean_image",
    "property_from_images",
    "property_from_features",
    "property_from_reconstructions",
    "property_nearest_neighbour",
    "property_three_nearest_neighbours",
    "property_nearest_neighbours",
    "candidate_pair",
    "repeated_query",
    "label_without_key",
    "label_by_scan",
    "label_with_key",
]

Measure = Literal[
    "mean_error_radians",
    "mean_error_radians_mod_quarter_turn",
    "share_below_tenth_radian",
    "mean_squared_error",
    "accuracy",
    "true_positive_rate",
    "false_positive_rate",
    "median_relative_error",
]

SHARES = ("share_below_tenth_radian", "accuracy", "true_positive_rate", "false_positive_rate")


@final
class AttackFigure(Value):
    r"""One measured quantity of one attack on all victims.

    Attributes:
      value: the estimate; ``lower`` and ``upper`` of a 95 % interval (Clopper-Pearson for shares, bootstrap else) over victims: it says
        nothing about other networks, data or attackers.
      chance: what somebody who sees nothing achieves: by a guess, the most frequent label, or the mean image.
      trials: the number of victims, or pairs of victim and candidate, that it was measured on.
    """

    attack: AttackName
    measure: Measure
    value: Number
    lower: Number
    upper: Number
    chance: Number
    trials: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.lower <= self.value <= self.upper:
            raise InvalidParameter(f"{self.attack}.{self.measure}", "within its interval", (self.lower, self.value, self.upper))
        if self.measure in SHARES and not (self.lower >= 0.0 and self.upper <= 1.0 and 0.0 <= self.chance <= 1.0):
            raise InvalidParameter(f"{self.attack}.{self.measure}", "in [0, 1]", (self.lower, self.upper, self.chance))
        return self


@final
class CurvePoint(Value):
    r"""The same network and attackers at one noise level.

    Attributes:
      noise_multiplier: standard deviation over 2 C, how far one record's clipped feature can move; mu of one query is 1 over it.
      std: standard deviation of the noise on each coordinate of the feature.
      figures: include the learned angle attack's errors and the accuracy with and without the key.
    """

    noise_multiplier: Positive
    std: Positive
    figures: Annotated[tuple[AttackFigure, ...], Field(min_length=1, max_length=64)]


@final
class AttackFindings(Value):
    r"""Everything the attacks of one run found.

    Attributes:
      victims: records whose features were attacked; ``public_records``: those that the attackers were trained on.
      coordinates: the number of coordinates of one feature.
      attackers: a description of each learned attacker.
      figures: on features as the run's method sends them.
      curve: the same at other noise levels, ascending; empty where the method has no noise of a stated scale.
    """

    victims: Count
    public_records: Count
    coordinates: Count
    attackers: Annotated[dict[AttackName, str], Field(max_length=32)]
    figures: Annotated[tuple[AttackFigure, ...], Field(min_length=1, max_length=64)]
    curve: Annotated[tuple[CurvePoint, ...], Field(max_length=32)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        multipliers = [point.noise_multiplier for point in self.curve]
        if any(later <= earlier for earlier, later in pairwise(multipliers)):
            raise InvalidParameter("curve", "ascending noise multipliers", multipliers)
        return self


def key_bits(resolution: float) -> float:
    r"""Entropy of an angle that is known to a resolution in radians: log2(2 pi / resolution) (errata O3).

    >>> round(key_bits(0.05), 2)
    6.97
    """
    return math.log2(2.0 * math.pi / resolution)


Steps = Annotated[int, Strict(), Field(ge=1, le=10**6)]


@final
class AttackEffort(Value):
    r"""How hard the learned attackers try.

    Attributes:
      steps: steps of training the two-quadrature discriminator.
      inversion_steps: steps of training each image reconstruction.
      property_steps: steps of training each classifier.
      batch_size: public records in each step.
      learning_rate: Adam's learning rate.
      angles: angles of the sweep over the circle, per victim; a parabola through the best angle's neighbours refines it.
      victims: the most victims attacked; None for all.
    """

    steps: Steps = 1500
    inversion_steps: Steps = 1500
    property_steps: Steps = 1000
    batch_size: Annotated[int, Strict(), Field(ge=2, le=65536)] = 64
    learning_rate: Annotated[float, Strict(), Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1e-3
    angles: Annotated[int, Strict(), Field(ge=8, le=4096)] = 128
    victims: Count | None = None


__all__ = [
    "CONFIDENCE",
    "RESOLUTION",
    "AttackEffort",
    "AttackFigure",
    "AttackFindings",
    "AttackName",
    "CurvePoint",
    "Measure",
    "key_bits",
]
