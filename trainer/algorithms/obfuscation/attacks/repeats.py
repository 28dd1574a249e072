r"""One input encoded twice: the two planes meet in the line of its feature, whatever the angles and counterparts (errata O6)."""

from __future__ import annotations

import torch
from torch import Tensor

from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.algorithms.obfuscation.target import Encoded
from zetadp.trainer.specs.findings.attacks import AttackFigure

AVERAGED = 2048
"""Public records whose mean feature is the guess of somebody who sees nothing."""

_ROWS = 64


def recovered(first: Tensor, second: Tensor, attacker: Attacker) -> Tensor:
    r"""a up to sign, float64 (records, coordinates), of two encodings x (records, *feature) of the same inputs.

    a = cos(theta) Re x + sin(theta) Im x for both: (c1, s1, -c2, -s2) is in the null space of [Re x1, Im x1, Re x2, Im x2], and unit
    norm of (c1, s1) and (c2, s2) fixes its scale. The right singular vector of the smallest singular value is taken, of R of a
    QR decomposition, which loses nothing; the two planes' points are averaged.
    """
    pairs = torch.stack([first.flatten(1), second.flatten(1)], dim=1)

    def some(part: Tensor) -> Tensor:
        planes = torch.stack([part[:, 0].real, part[:, 0].imag, -part[:, 1].real, -part[:, 1].imag], dim=2).double()
        _, upper = torch.linalg.qr(planes)
        null = torch.linalg.svd(upper).Vh[:, -1]
        halves = null.view(-1, 2, 2)
        size = halves.norm(dim=2, keepdim=True)
        turns = halves / torch.where(size > 0.0, size, 1.0)
        return 0.5 * (torch.einsum("rdp,rp->rd", planes[:, :, :2], turns[:, 0]) - torch.einsum("rdp,rp->rd", planes[:, :, 2:], turns[:, 1]))

    return attacker.in_chunks(some, pairs, _ROWS)


def relative_errors(guesses: Tensor, features: Tensor) -> Tensor:
    r"""min over the sign of |guess - a| / |a| (records,); 1 for a feature of zeros, about which there was nothing to find."""
    rows = features.flatten(1).double()
    size = rows.norm(dim=1)
    off = torch.minimum((guesses - rows).norm(dim=1), (guesses + rows).norm(dim=1))
    return torch.where(size > 0.0, off / torch.where(size > 0.0, size, 1.0), 1.0)


def repeat_figure(attacker: Attacker, victims: Encoded, figures: Figures) -> AttackFigure:
    """The median error of a = g(I), without noise; its chance is that of the mean public feature."""
    ground, generator = attacker.ground, attacker.seed_stream("repeated_query")
    features = attacker.features(ground.victim_images)
    again = attacker.encode(ground.victim_images, generator)
    errors = relative_errors(recovered(victims.sent, again.sent, attacker), features)
    blind = attacker.features(ground.public_images[:AVERAGED]).flatten(1).double().mean(dim=0)
    chance = float(relative_errors(blind.expand(len(features), -1), features).median())
    return figures.median("repeated_query", "median_relative_error", errors, chance=chance)
