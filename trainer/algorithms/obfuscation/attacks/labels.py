r"""The cloud's answer, read without the key: the processing module turns with its input, and the decoder is public (errata O12)."""

from __future__ import annotations

import torch
from torch import Tensor

from zetadp.trainer.algorithms.obfuscation.attacks.angles import TURN
from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker, most_frequent, turned_back
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.specs.findings.attacks import AttackFigure, AttackName

SCANNED = 64
"""Angles that are tried out where none is estimated."""


def answers(attacker: Attacker, sent: Tensor) -> Tensor:
    """h = Phi(x) (records, *processed)."""
    return attacker.in_chunks(attacker.scheme.process, sent)


def decided(attacker: Attacker, processed: Tensor, angles: Tensor) -> Tensor:
    """Labels (records,) at these angles."""
    return attacker.in_chunks(lambda part: attacker.scheme.decide(part).argmax(dim=1), turned_back(processed, angles))


def scanned(attacker: Attacker, processed: Tensor) -> Tensor:
    """Labels (records,) at the angle at which the public decoder is most certain of one."""
    surest = torch.full((len(processed),), -1.0, device=processed.device)
    labels = torch.zeros(len(processed), dtype=torch.int64, device=processed.device)
    for place in range(SCANNED):
        angle = torch.full((len(processed),), place * TURN / SCANNED, device=processed.device)
        logits = attacker.in_chunks(attacker.scheme.decide, turned_back(processed, angle))
        sure, label = logits.softmax(dim=1).max(dim=1)
        labels, surest = torch.where(sure > surest, label, labels), torch.maximum(sure, surest)
    return labels


def label_figures(attacker: Attacker, guesses: dict[AttackName, Tensor], figures: Figures) -> tuple[AttackFigure, ...]:
    """Accuracies of labels (victims,); chance is the most frequent public label."""
    ground = attacker.ground
    chance = float((ground.victim_labels == most_frequent(ground.public_labels, ground.classes)).double().mean())
    return tuple(figures.share(attack, "accuracy", guess == ground.victim_labels, chance=chance) for attack, guess in guesses.items())
