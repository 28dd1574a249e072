r"""The secret angle from one x, by moments of its coordinates, and how far off an estimate is (errata O7).

Each attacker knows the encoder, so it learns the constant between its statistic and theta (pi/4 for the mean of like a and b, 0 or pi/2
for the axis, 0 or pi/4 for the cumulant) from its own encodings of public images. A statistic that determines theta only modulo part
of the circle is completed by the mean's estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.algorithms.obfuscation.target import Encoded
from zetadp.trainer.specs.findings.attacks import AttackFigure, AttackName

TURN = 2.0 * math.pi
QUARTER = 0.5 * math.pi
NEAR = 0.1
"""Radians below which an angle counts as found."""

CHANCE = 0.5 * math.pi
"""Mean error of a guess, modulo 2 pi; ``CHANCE_MOD_QUARTER`` modulo pi/2; ``CHANCE_NEAR``: how often it is near."""

CHANCE_MOD_QUARTER = math.pi / 8.0
CHANCE_NEAR = NEAR / math.pi

_ROWS = 64

_TINY = 1e-6
"""Times a feature's largest magnitude: a float32 coordinate below it has no meaningful phase."""


def error_mod(estimate: Tensor, theta: Tensor, period: float) -> Tensor:
    r"""Distance on a circle of this length, in [0, period / 2]; in float64.

    >>> error_mod(torch.tensor(0.01), torch.tensor(2.0 * math.pi - 0.01), 2.0 * math.pi).round(decimals=6).item()
    0.02
    """
    off = torch.remainder(estimate.double() - theta.double(), period)
    return torch.minimum(off, period - off)


def angle_figures(attack: AttackName, estimate: Tensor, theta: Tensor, figures: Figures) -> tuple[AttackFigure, ...]:
    """Errors of estimates (victims,) modulo 2 pi and pi/2, and the share that is near."""
    whole, quarter = error_mod(estimate, theta, TURN), error_mod(estimate, theta, QUARTER)
    return (
        figures.mean(attack, "mean_error_radians", whole, chance=CHANCE),
        figures.mean(attack, "mean_error_radians_mod_quarter_turn", quarter, chance=CHANCE_MOD_QUARTER),
        figures.share(attack, "share_below_tenth_radian", whole < NEAR, chance=CHANCE_NEAR),
    )


def by_moments(attacker: Attacker, known: Encoded, sent: Tensor) -> dict[AttackName, Tensor]:
    r"""Estimates of theta (victims,) by each moment attack.

    Args:
      attacker: whose tick is called.
      known: the attacker's own encodings of public images.
      sent: x of the victims (victims, *feature).
    """
    template = known.feature.flatten(1).mean(dim=0)

    def mean(rows: Tensor) -> Tensor:
        return _mean(rows, template)

    def on_all(statistic: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        raw, of_victims = (attacker.in_chunks(lambda part: statistic(part.flatten(1)), rows, _ROWS) for rows in (known.sent, sent))
        return raw - known.theta, of_victims

    by_mean = _calibrated(*on_all(mean), TURN)
    return {
        "angle_by_mean": by_mean,
        "angle_by_cone": _calibrated(*on_all(_cone), TURN),
        "angle_by_principal_axis": _completed(_axis_calibrated(*on_all(_axis)), math.pi, by_mean),
        "angle_by_fourth_cumulant": _completed(_calibrated(*on_all(_cumulant), QUARTER), QUARTER, by_mean),
    }


def _mean(rows: Tensor, template: Tensor) -> Tensor:
    """Phase of the sum of coordinates, each weighted with its public mean: those that are 0 on average only add noise."""
    return (rows * template).sum(dim=1).angle()


def _cone(rows: Tensor) -> Tensor:
    """The smallest phase: where a, b >= 0, all lie in [theta, theta + pi/2]."""
    size = rows.abs()
    total = rows.sum(dim=1)
    phases = (rows * total.conj()[:, None]).angle()
    heard = size > _TINY * size.amax(dim=1, keepdim=True)
    smallest = torch.where(heard, phases, math.inf).amin(dim=1)
    return total.angle() + torch.where(smallest.isfinite(), smallest, 0.0)


def _axis(rows: Tensor) -> Tensor:
    """Direction in which Re and Im of the coordinates vary most, modulo pi; needs var a != var b."""
    return 0.5 * _centred(rows).square().mean(dim=1).angle()


def _cumulant(rows: Tensor) -> Tensor:
    """cum4(e^(i theta) (a + i b)) = e^(4 i theta) (cum4 a + cum4 b): theta modulo pi/2; needs a, b that aren't Gaussian."""
    squares = _centred(rows).square()
    return 0.25 * (squares.square().mean(dim=1) - 3.0 * squares.mean(dim=1).square()).angle()


def _centred(rows: Tensor) -> Tensor:
    """The numbers centred and scaled to unit size, so that no fourth power leaves float32's range."""
    rows = rows - rows.mean(dim=1, keepdim=True)
    size = rows.abs().square().mean(dim=1, keepdim=True).sqrt()
    return rows / torch.where(size > 0.0, size, 1.0)


def _calibrated(off: Tensor, statistic: Tensor, period: float) -> Tensor:
    """A statistic of the victims less the circular average of how far it is off (known,) the angles that the attacker drew itself."""
    return statistic - _mean_angle(off, period)


def _axis_calibrated(off: Tensor, axis: Tensor) -> Tensor:
    """Likewise; a varies more for some records and b for others, so the constant is determined modulo pi/2 first, then which of the two."""
    constant = _mean_angle(off, QUARTER)
    is_other = ((2.0 * (off - constant)).cos().mean() < 0.0).to(off.dtype)
    return axis - constant - QUARTER * is_other


def _mean_angle(angles: Tensor, period: float) -> Tensor:
    """The circular mean modulo a period."""
    times = TURN / period
    return torch.polar(torch.ones_like(angles), times * angles).sum().angle() / times


def _completed(estimate: Tensor, period: float, coarse: Tensor) -> Tensor:
    """Of the angles that the estimate stands for, the one nearest to a coarse estimate."""
    return estimate + period * ((coarse - estimate) / period).round()
