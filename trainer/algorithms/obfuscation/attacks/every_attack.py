r"""All attacks on one network's features, in an order in which later ones use what earlier ones found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from zetadp.trainer.algorithms.obfuscation.attacks import inversion, quadratures
from zetadp.trainer.algorithms.obfuscation.attacks.angles import angle_figures, by_moments
from zetadp.trainer.algorithms.obfuscation.attacks.attacker import Attacker, turned_back
from zetadp.trainer.algorithms.obfuscation.attacks.candidates import candidate_figures
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.algorithms.obfuscation.attacks.inversion import Pixels
from zetadp.trainer.algorithms.obfuscation.attacks.labels import answers, decided, label_figures, scanned
from zetadp.trainer.algorithms.obfuscation.attacks.networks import Quadratures, Reconstruction
from zetadp.trainer.algorithms.obfuscation.attacks.properties import Recovered, property_figures
from zetadp.trainer.algorithms.obfuscation.attacks.repeats import repeat_figure
from zetadp.trainer.algorithms.obfuscation.target import Encoded, Ground, Scheme
from zetadp.trainer.specs.findings.attacks import AttackEffort, AttackFigure, AttackFindings, AttackName

KNOWN = 2048
"""Encodings of public images that the attacker makes and turns back as it does the victims', to train the property attacks on."""

SeedStream = Callable[[str], Generator]


def run_attacks(
    scheme: Scheme, ground: Ground, effort: AttackEffort, *, seed_stream: SeedStream, turned: bool, tick: Callable[[], None]
) -> AttackFindings:
    r"""Every attack on one encoding of each victim, the repeated query on two.

    Args:
      scheme: the trained network.
      ground: who attacks with what; of the victims, the first ``effort.victims``.
      effort: of the learned attackers.
      seed_stream: a generator for each purpose; of a device on which the scheme draws.
      turned: False for a baseline that sends the real feature as x, at angle 0: there is no angle to find, no pair and nothing that a
        second query adds; images, properties and labels are then read off what is sent, without a key.
      tick: called between pieces of work; raises to stop.
    """
    attacker = Attacker(scheme, _cut(ground, effort.victims), effort, seed_stream, tick)
    figures = Figures(seed_stream("intervals"))
    victims = attacker.encode(attacker.ground.victim_images, seed_stream("victims"))
    found = _on_turned(attacker, victims, figures) if turned else _on_plain(attacker, victims, figures)
    return AttackFindings(
        victims=len(victims.sent),
        public_records=len(ground.public_images),
        coordinates=victims.sent[0].numel(),
        attackers=found.attackers,
        figures=found.figures,
    )


def curve_figures(
    scheme: Scheme, ground: Ground, effort: AttackEffort, *, seed_stream: SeedStream, tick: Callable[[], None]
) -> tuple[AttackFigure, ...]:
    r"""The attacks that a curve over the noise shows: angles, labels, images with and without the key, the pair and the repeated query.

    The learned attackers are trained anew, on encodings with the scheme's noise. What the guarantee is about is a, not the
    angle: where only a has noise, the direction in which x varies most shows the angle the better, the more noise there is; only where b
    has as much do errors of the angle grow to chance.

    Args:
      (all): as in ``run_attacks``.
    """
    attacker = Attacker(scheme, _cut(ground, effort.victims), effort, seed_stream, tick)
    figures = Figures(seed_stream("intervals"))
    victims = attacker.encode(attacker.ground.victim_images, seed_stream("victims"))
    angles = _angles(attacker, victims, figures)
    images = _images(attacker, victims, angles.estimates, figures)
    return (*angles.figures, *images.figures, *_pairs(attacker, victims, figures), *_labels(attacker, victims, angles.estimates, figures))


@final
@dataclass(frozen=True)
class _Found:
    figures: tuple[AttackFigure, ...]
    attackers: dict[AttackName, str]


@final
@dataclass(frozen=True)
class _Angles:
    module: Quadratures
    estimates: Tensor
    figures: tuple[AttackFigure, ...]


@final
@dataclass(frozen=True)
class _Images:
    module: Reconstruction
    reconstructed: Tensor
    pixels: Pixels
    figures: tuple[AttackFigure, ...]


def _on_turned(attacker: Attacker, victims: Encoded, figures: Figures) -> _Found:
    angles = _angles(attacker, victims, figures)
    images = _images(attacker, victims, angles.estimates, figures)
    direct = inversion.learn(attacker, inversion.as_sent, images.pixels, "inversion_direct")
    from_planes = _reconstruction_figure(attacker, direct, inversion.as_sent(victims), images.pixels, "inversion_direct", figures)
    properties, words = _properties(attacker, victims, angles, images, figures)
    return _Found(
        (
            *angles.figures,
            *images.figures,
            from_planes,
            *properties,
            *_pairs(attacker, victims, figures),
            *_labels(attacker, victims, angles.estimates, figures),
        ),
        {
            "angle_by_learned_quadratures": quadratures.in_words(angles.module, attacker),
            "inversion_by_angle": inversion.in_words(images.module, attacker, "the features"),
            "inversion_direct": inversion.in_words(direct, attacker, "both planes"),
            **words,
        },
    )


def _on_plain(attacker: Attacker, victims: Encoded, figures: Figures) -> _Found:
    pixels = Pixels(attacker.ground.public_images)
    module = inversion.learn(attacker, inversion.as_sent, pixels, "inversion_direct")
    planes = inversion.as_sent(victims)
    errors = inversion.mean_image_errors(attacker, pixels)
    images = (
        _reconstruction_figure(attacker, module, planes, pixels, "inversion_direct", figures),
        inversion.mean_image_figure(errors, figures),
    )
    known, places = _known(attacker)
    properties, words = property_figures(
        attacker,
        Recovered(known.sent.real, inversion.reconstructed(attacker, module, inversion.as_sent(known))),
        attacker.ground.public_properties[places],
        Recovered(victims.sent.real, inversion.reconstructed(attacker, module, planes)),
        pixels.of(attacker.ground.public_images),
        figures,
    )
    processed = answers(attacker, victims.sent)
    label = decided(attacker, processed, torch.zeros_like(victims.theta))
    return _Found(
        (*images, *properties, *label_figures(attacker, {"label_without_key": label}, figures)),
        {"inversion_direct": inversion.in_words(module, attacker, "both planes"), **words},
    )


def _angles(attacker: Attacker, victims: Encoded, figures: Figures) -> _Angles:
    known, _ = _known(attacker)
    found = [
        figure
        for attack, estimate in by_moments(attacker, known, victims.sent).items()
        for figure in angle_figures(attack, estimate, victims.theta, figures)
    ]
    module = quadratures.learn(attacker, "angle_by_learned_quadratures")
    estimates = quadratures.sweep(attacker, module, victims.sent).to(victims.theta.dtype)
    found += angle_figures("angle_by_learned_quadratures", estimates, victims.theta, figures)
    return _Angles(module, estimates, tuple(found))


def _images(attacker: Attacker, victims: Encoded, estimates: Tensor, figures: Figures) -> _Images:
    """One network, used on what the estimated and what the true angle gives."""
    pixels = Pixels(attacker.ground.public_images)
    module = inversion.learn(attacker, inversion.with_angle, pixels, "inversion_by_angle")
    recovered = turned_back(victims.sent, estimates)
    return _Images(
        module,
        inversion.reconstructed(attacker, module, recovered),
        pixels,
        (
            _reconstruction_figure(attacker, module, recovered, pixels, "inversion_by_angle", figures),
            _reconstruction_figure(attacker, module, victims.feature, pixels, "inversion_with_key", figures),
            inversion.mean_image_figure(inversion.mean_image_errors(attacker, pixels), figures),
        ),
    )


def _reconstruction_figure(
    attacker: Attacker, module: Reconstruction, planes: Tensor, pixels: Pixels, attack: AttackName, figures: Figures
) -> AttackFigure:
    errors = pixels.errors(inversion.reconstructed(attacker, module, planes), attacker.ground.victim_images)
    chance = float(inversion.mean_image_errors(attacker, pixels).double().mean())
    return figures.mean(attack, "mean_squared_error", errors, chance=chance)


def _properties(
    attacker: Attacker, victims: Encoded, angles: _Angles, images: _Images, figures: Figures
) -> tuple[tuple[AttackFigure, ...], dict[AttackName, str]]:
    """The attackers are trained on the output of the learned angle attack for encodings of public images."""
    known, places = _known(attacker)
    features = turned_back(known.sent, quadratures.sweep(attacker, angles.module, known.sent).to(known.theta.dtype))
    return property_figures(
        attacker,
        Recovered(features, inversion.reconstructed(attacker, images.module, features)),
        attacker.ground.public_properties[places],
        Recovered(turned_back(victims.sent, angles.estimates), images.reconstructed),
        images.pixels.of(attacker.ground.public_images),
        figures,
    )


def _pairs(attacker: Attacker, victims: Encoded, figures: Figures) -> tuple[AttackFigure, ...]:
    return (*candidate_figures(attacker, victims, figures), repeat_figure(attacker, victims, figures))


def _labels(attacker: Attacker, victims: Encoded, estimates: Tensor, figures: Figures) -> tuple[AttackFigure, ...]:
    processed = answers(attacker, victims.sent)
    return label_figures(
        attacker,
        {
            "label_without_key": decided(attacker, processed, estimates),
            "label_by_scan": scanned(attacker, processed),
            "label_with_key": decided(attacker, processed, victims.theta),
        },
        figures,
    )


def _known(attacker: Attacker) -> tuple[Encoded, Tensor]:
    """``KNOWN`` encodings of public images, some encoded several times or some not at all, and the record of each."""
    public = len(attacker.ground.public_images)
    generator = attacker.seed_stream("known")
    device = attacker.ground.public_images.device
    rounds = -(-KNOWN // public)
    orders = [torch.randperm(public, generator=generator, device=generator.device) for _ in range(rounds)]
    places = torch.cat(orders)[:KNOWN].to(device)
    return attacker.encode(attacker.ground.public_images[places], generator), places


def _cut(ground: Ground, victims: int | None) -> Ground:
    if victims is None:
        return ground
    return Ground(
        ground.public_images,
        ground.public_labels,
        ground.public_properties,
        ground.victim_images[:victims],
        ground.victim_labels[:victims],
        ground.victim_properties[:victims],
        ground.classes,
        ground.properties,
    )
