r"""What the task doesn't ask for, from what the task's features were meant to hide: the four inference attacks of section 4.3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker, most_frequent
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.algorithms.obfuscation.attacks.networks import Classifier, train, weights_of
from zetadp.trainer.specs.findings.attacks import AttackFigure, AttackName

NEIGHBOURS: dict[int, AttackName] = {
    1: "property_nearest_neighbour",
    3: "property_three_nearest_neighbours",
    5: "property_nearest_neighbours",
}

COMPARED = 8192
"""The most public features that a* is compared with."""


@final
@dataclass(frozen=True)
class Recovered:
    r"""What the attacker computes from encodings, its own or the victims'.

    Attributes:
      features: a* = Re[x e^(-i angle)] at the estimated angles (records, *feature).
      images: dec(a*), in [0, 1] (records, channels, height, width).
    """

    features: Tensor
    images: Tensor


def property_figures(
    attacker: Attacker, known: Recovered, known_properties: Tensor, victims: Recovered, public_images: Tensor, figures: Figures
) -> tuple[tuple[AttackFigure, ...], dict[AttackName, str]]:
    r"""Accuracies and what the attackers were.

    Args:
      attacker: who attacks.
      known: of the attacker's own encodings, whose properties are ``known_properties``; of the victims: ``victims``.
      public_images: in [0, 1], with the ground's public properties.
      figures: makes them.
    """
    ground = attacker.ground
    sources: dict[AttackName, tuple[Tensor, Tensor, Tensor, str]] = {
        "property_from_images": (public_images, ground.public_properties, victims.images, "public images, used on dec(a*)"),
        "property_from_features": (known.features, known_properties, victims.features, "a* of encoded public images"),
        "property_from_reconstructions": (known.images, known_properties, victims.images, "dec(a*) of encoded public images"),
    }
    guesses: dict[AttackName, Tensor] = {}
    words: dict[AttackName, str] = {}
    for attack, (rows, properties, of_victims, source) in sources.items():
        module = _learn(attacker, rows, properties, attack)
        guesses[attack] = attacker.in_chunks(lambda part, module=module: module(part).argmax(dim=1), of_victims)
        words[attack] = f"classifier, {weights_of(module)} weights, {attacker.effort.property_steps} steps of Adam on {source}"
    guesses |= _nearest(attacker, victims.features)
    truth = ground.victim_properties
    chance = float((truth == most_frequent(ground.public_properties, ground.properties)).double().mean())
    found = tuple(figures.share(attack, "accuracy", guess == truth, chance=chance) for attack, guess in guesses.items())
    return found, words


def _learn(attacker: Attacker, rows: Tensor, properties: Tensor, purpose: str) -> Classifier:
    generator, effort = attacker.seed_stream(purpose), attacker.effort
    module = Classifier(rows, attacker.ground.properties, generator).to(rows.device)

    def loss() -> Tensor:
        batch = attacker.batch_of(len(rows), generator)
        return functional.cross_entropy(module(rows[batch]), properties[batch])

    train(module, loss, steps=effort.property_steps, learning_rate=effort.learning_rate, tick=attacker.tick)
    return module


def _nearest(attacker: Attacker, features: Tensor) -> dict[AttackName, Tensor]:
    """Majorities among the public features nearest to a*; of equal ones the nearest neighbour's, then the smallest label."""
    ground = attacker.ground
    public = attacker.features(ground.public_images[:COMPARED]).flatten(1)
    most = min(max(NEIGHBOURS), len(public))
    rows = features.flatten(1)
    places = attacker.in_chunks(lambda part: torch.cdist(part, public).topk(most, largest=False).indices, rows)
    votes = functional.one_hot(ground.public_properties[places], ground.properties).double()
    votes[:, 0] *= 1.5
    return {attack: votes[:, :count].sum(dim=1).argmax(dim=1) for count, attack in NEIGHBOURS.items()}
