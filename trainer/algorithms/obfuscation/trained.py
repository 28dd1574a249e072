r"""A trained network for encoding, processing and decoding; the attacks use it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Generator, Tensor

from zetadp.trainer.algorithms.obfuscation.encoding import FeatureLaw, angles, clipped, counterpart_as_sent, hidden, others, strangers
from zetadp.trainer.algorithms.obfuscation.layers import from_parts, to_parts, turned, turned_back
from zetadp.trainer.algorithms.obfuscation.networks import DividedNetwork
from zetadp.trainer.algorithms.obfuscation.target import Encoded
from zetadp.trainer.specs.obfuscation.division import distinct_images
from zetadp.trainer.specs.obfuscation.methods import Method, NoisyRotation, Rotation

RECORDS_AT_ONCE = 128

LAW_RECORDS = 2048
"""Whose features give a synthetic counterpart's mean and deviation: known to a fiftieth of the deviation."""


@final
class Trained:
    r"""The ``Scheme`` of a network, statistics frozen and dropout off. Nothing here is differentiated.

    Args:
      network: the network of ``method``.
      std: standard deviation of the noise on each coordinate under ``noisy_rotation``.
      public: images of training records (records, channels, height, width), at least two different ones, whose features are the
        counterparts where the method takes public ones, or gives the law of those made up.
      tick: called between chunks of records; raises to stop.
    """

    def __init__(self, network: DividedNetwork, method: Method, std: float, public: Tensor, tick: Callable[[], None]) -> None:
        self._network, self._method, self._std, self._public, self._tick = network, method, std, public, tick
        self._law: FeatureLaw | None = None

    def with_noise(self, std: float) -> Trained:
        """The same network at another noise level."""
        noisier = Trained(self._network, self._method, std, self._public, self._tick)
        noisier._law = self._law
        return noisier

    @property
    def turned(self) -> bool:
        """Whether features are turned at all."""
        return self._network.divided.turned

    def unclipped(self, images: Tensor) -> Tensor:
        """g(I) as it leaves the encoder, (records, *feature)."""
        return self._piecewise(self._network.encoder, images)

    def features(self, images: Tensor) -> Tensor:
        """See ``Scheme``; clipped under ``noisy_rotation``: what is turned, but for its noise."""
        return self._clipped(self.unclipped(images))

    def encode(self, images: Tensor, generator: Generator) -> Encoded:
        """See ``Scheme``. A baseline's feature is sent as it is: theta and b are zero."""
        feature = self.unclipped(images)
        sent = hidden(self._method, self._std, feature, generator)
        if not self.turned:
            nothing = torch.zeros_like(sent)
            return Encoded(torch.complex(sent, nothing), torch.zeros(len(sent), device=sent.device), sent, nothing, None)
        counterpart, places = self._counterparts(images, feature, generator)
        counterpart = counterpart_as_sent(self._method, self._std, counterpart, generator)
        theta = angles(len(sent), generator, sent.device)
        return Encoded(from_parts(turned(sent, counterpart, theta)), theta, sent, counterpart, places)

    def process(self, sent: Tensor) -> Tensor:
        """See ``Scheme``; a baseline's answer has no imaginary part."""
        if self.turned:
            return self._piecewise(lambda piece: from_parts(self._network.processing(to_parts(piece))), sent)
        answer = self._piecewise(self._network.processing, sent.real)
        return torch.complex(answer, torch.zeros_like(answer))

    def decide(self, processed: Tensor) -> Tensor:
        """See ``Scheme``."""
        return self._piecewise(self._network.decoder, processed)

    def answers(self, images: Tensor, generator: Generator) -> Tensor:
        """Logits (records, classes) for someone who has the key, from one fresh encoding each."""
        encoded = self.encode(images, generator)
        return self.decide(turned_back(to_parts(self.process(encoded.sent)), encoded.theta))

    def public_counterparts(self, count: int, generator: Generator) -> Tensor:
        """This many public or made-up features, (count, *feature), as ``method`` says; no image is excluded."""
        if self._takes("synthetic"):
            return self.law().draw(count, generator)
        places = torch.randint(len(self._public), (count,), generator=generator, device=generator.device).to(self._public.device)
        return self.unclipped(self._public[places])

    def law(self) -> FeatureLaw:
        """Of at most ``LAW_RECORDS`` public features, evenly chosen; kept until ``network_changed``."""
        if self._law is None:
            chosen = self._public[:: -(-len(self._public) // LAW_RECORDS)]
            self._law = FeatureLaw.of(self.unclipped(piece) for piece in chosen.split(RECORDS_AT_ONCE))
        return self._law

    def network_changed(self) -> None:
        """Discards what was computed from the features of an earlier state."""
        self._law = None

    def _counterparts(self, images: Tensor, feature: Tensor, generator: Generator) -> tuple[Tensor, Tensor | None]:
        """b, and which record of the call it is of; where a call has one image only, a public record's stands in."""
        if self._takes("synthetic"):
            return self.law().draw(len(feature), generator), None
        kinds = torch.from_numpy(distinct_images(images.cpu().numpy()))
        if self._takes("other_record") and bool((kinds != kinds[0]).any()):
            places = others(kinds, generator).to(feature.device)
            return feature[places], places
        return self.unclipped(self._public[strangers(images, self._public, generator)]), None

    def _takes(self, counterpart: str) -> bool:
        return isinstance(self._method, Rotation | NoisyRotation) and self._method.counterpart == counterpart

    def _clipped(self, feature: Tensor) -> Tensor:
        return clipped(feature, self._method.clipping_norm) if isinstance(self._method, NoisyRotation) else feature

    def _piecewise(self, function: Callable[[Tensor], Tensor], records: Tensor) -> Tensor:
        """``function`` of records (records, ...), some at a time, as in evaluation."""
        before = self._network.training
        self._network.eval()
        pieces: list[Tensor] = []
        try:
            with torch.no_grad():
                for piece in records.split(RECORDS_AT_ONCE):
                    self._tick()
                    pieces.append(function(piece))
        finally:
            self._network.train(before)
        return torch.cat(pieces)
