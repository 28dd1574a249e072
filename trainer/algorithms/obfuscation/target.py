r"""What an attacker faces: a public network, and features that were rotated by undisclosed angles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

from torch import Generator, Tensor


@final
@dataclass(frozen=True)
class Encoded:
    r"""Features as sent, and the secrets behind them.

    Attributes:
      sent: x = e^(i theta) (a + i b), complex64 (records, *feature).
      theta: secret angles in [0, 2 pi), float32 (records,).
      feature: a as it was turned, with its noise where there is any; float32 (records, *feature).
      counterpart: b, float32 (records, *feature).
      counterparts: which record of the same call each b is the feature of, int64 (records,); None for a synthetic one or another set's.
    """

    sent: Tensor
    theta: Tensor
    feature: Tensor
    counterpart: Tensor
    counterparts: Tensor | None


class Scheme(Protocol):
    """A trained network under attack. Everything but what ``encode`` draws is public: encoder, processing module, decoder."""

    def features(self, images: Tensor) -> Tensor:
        """a = g(I) without noise, float32 (records, *feature), of images float32 (records, channels, height, width)."""
        ...

    def encode(self, images: Tensor, generator: Generator) -> Encoded:
        """Fresh angles, counterparts and noise for each image: two calls give two independent encodings."""
        ...

    def process(self, sent: Tensor) -> Tensor:
        """The cloud's answer, h = Phi(x), complex64 (records, *processed)."""
        ...

    def decide(self, processed: Tensor) -> Tensor:
        """Logits (records, classes) of a real processed feature Re[h e^(-i theta)]."""
        ...


@final
@dataclass(frozen=True)
class Ground:
    r"""The attacker's data, and the victims.

    Attributes:
      public_images: the images that the attacker has and trains on; float32 (records, channels, height, width).
      public_labels: of the task, int64 (records,); ``public_properties`` what the task doesn't ask for, int64 (records,).
      victim_images, victim_labels, victim_properties: those whose features are attacked; no record is on both sides.
      classes, properties: the number of each.
    """

    public_images: Tensor
    public_labels: Tensor
    public_properties: Tensor
    victim_images: Tensor
    victim_labels: Tensor
    victim_properties: Tensor
    classes: int
    properties: int
