r"""Is this image one of the two behind x? Without any angle: g(I) lies in the plane that Re x and Im x span, or it doesn't (errata O5)."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.algorithms.obfuscation.target import Encoded
from zetadp.trainer.specs.findings.attacks import AttackFigure

MOST = 1024
"""Victims, and public images to set the threshold with, that are tried against each other."""

WRONGLY_NAMED = 0.01
"""The share of the public candidates that the threshold wrongly accepts where members and others overlap."""

_LEAST = 1e-12
"""Residual that counts as zero, in float64: the midpoint of logarithms needs a number."""

_ALIKE = 1.0 - 5e-7
"""Cosine above which two features are one: an angle of a thousandth, far above float32's rounding."""

_ROWS = 64


@final
class Verdicts:
    r"""Residuals of candidates against encodings of the same records.

    Args:
      found: residuals (records, records).
      features: g(I) of each record (records, *feature).
      encoded: their encodings. Whose feature has the direction of a member's is a member: two records with one image, and, where b is
        another set's, the record that it was taken from.

    Attributes:
      members: of those that are in the pair (trials,): a's image for each record, b's where it is one of them.
      others: of all other candidates (trials,).
    """

    def __init__(self, found: Tensor, features: Tensor, encoded: Encoded) -> None:
        units = _units(features)
        own = torch.eye(len(units), dtype=torch.bool, device=units.device)
        own |= units @ units.T > _ALIKE
        if encoded.counterparts is not None:
            own |= own[encoded.counterparts]
        own |= _units(encoded.counterpart) @ units.T > _ALIKE
        self.members, self.others = found[own], found[~own]


def residuals(sent: Tensor, candidates: Tensor, attacker: Attacker) -> Tensor:
    r"""|part of g(I) outside span(Re x, Im x)| / |g(I)| of all pairs (records, candidates), in float64.

    A feature of zeros lies in every plane and reveals nothing: its residual is 1.

    Args:
      sent: x (records, *feature).
      candidates: g(I) (candidates, *feature).
      attacker: whose tick is called.
    """
    unit = _units(candidates)
    is_zero = ~unit.any(dim=1)

    def some(part: Tensor) -> Tensor:
        flat = part.flatten(1)
        planes, _ = torch.linalg.qr(torch.stack([flat.real, flat.imag], dim=2).double())
        along = torch.einsum("rdp,cd->rcp", planes, unit)
        # The difference itself, not 1 - |along|^2, would cost records x candidates x coordinates; float64 leaves 1e-8 of it.
        found = (1.0 - along.square().sum(dim=2)).clamp(min=0.0).sqrt()
        return torch.where(is_zero, 1.0, found)

    return attacker.in_chunks(some, sent, _ROWS)


def threshold_of(known: Verdicts) -> float:
    r"""From the attacker's own encodings: between the largest residual of a member and the smallest of another, midway in logarithms.

    Where they overlap, what ``WRONGLY_NAMED`` of the others are below.
    """
    others = known.others.sort().values
    if not len(others):
        return _LEAST
    largest, smallest = float(known.members.max()), float(others[0])
    if largest < smallest:
        return math.sqrt(max(largest, _LEAST) * smallest)
    return float(others[int(WRONGLY_NAMED * len(others))])


def candidate_figures(attacker: Attacker, victims: Encoded, figures: Figures) -> tuple[AttackFigure, ...]:
    r"""True and false positive rates; the candidates of each victim are all victims.

    Somebody who sees nothing names members and others equally often: the chance of each rate is the other one. Where every candidate is
    a member (two victims, or all alike), there is no false positive rate, and naming everybody is right.
    """
    ground = attacker.ground
    known = attacker.encode(ground.public_images[:MOST], attacker.seed_stream("candidate_pair"))
    threshold = threshold_of(_verdicts(attacker, known, ground.public_images[:MOST]))
    tried = _first(victims, MOST)
    found = _verdicts(attacker, tried, ground.victim_images[:MOST])
    named, wrongly = found.members < threshold, found.others < threshold
    count = len(tried.sent)
    if not len(wrongly):
        return (figures.share("candidate_pair", "true_positive_rate", named, chance=1.0, victims=count),)
    right_rate, wrong_rate = float(named.double().mean()), float(wrongly.double().mean())
    return (
        figures.share("candidate_pair", "true_positive_rate", named, chance=wrong_rate, victims=count),
        figures.share("candidate_pair", "false_positive_rate", wrongly, chance=right_rate, victims=count),
    )


def _verdicts(attacker: Attacker, encoded: Encoded, images: Tensor) -> Verdicts:
    features = attacker.features(images)
    return Verdicts(residuals(encoded.sent, features, attacker), features, encoded)


def _units(rows: Tensor) -> Tensor:
    """The rows scaled to length 1, float64 (records, coordinates); zeros stay zeros."""
    flat = rows.flatten(1).double()
    size = flat.norm(dim=1, keepdim=True)
    return flat / torch.where(size > 0.0, size, 1.0)


def _first(encoded: Encoded, count: int) -> Encoded:
    """The first ``count`` encodings; counterparts beyond them count as those of no record here."""
    if len(encoded.sent) <= count:
        return encoded
    parts = (encoded.sent[:count], encoded.theta[:count], encoded.feature[:count], encoded.counterpart[:count])
    counterparts = encoded.counterparts
    if counterparts is None:
        return Encoded(*parts, None)
    own = torch.arange(count, device=counterparts.device)
    kept = counterparts[:count]
    return Encoded(*parts, torch.where(kept < count, kept, own))
