r"""Which frequencies of a network's gradient are released, layer by layer. Free of torch; ``engine.gradients.spectral_vector`` does it."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self, final

from pydantic import Field, StringConstraints, model_validator

from zetadp.mechanisms.base import Count, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.spectrum import LowPass
from zetadp.mechanisms.spectral import AxisNumbers

LayerName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
"""A module's name, with which its parameters' names begin."""

MOST_LAYERS = 128


@final
class LayerSpectrum(Value):
    r"""The frequencies of one layer's weight gradient that are kept.

    The gradient is ``signals`` real signals of ``shape``: the kernels of a convolution, the circulant blocks of a linear layer. Each is
    padded with zeros to ``transform``, transformed (unitary), cut to the first ``kept`` rfft frequencies of each axis, transformed
    back and cropped. Where ``transform`` is ``shape`` that is an orthogonal projection P onto ``kept_dimensions`` coordinates; where it is
    longer it is A = E^T P E with E the padding: symmetric, eigenvalues in [0, 1]. What is released are the coordinates A^(1/2) g in an
    orthonormal basis of A's range, at most prod(shape) of them, and A^(1/2) maps them back. Biases and everything else of the layer are
    released as they are.

    Attributes:
      layer: name of the module.
      signals: how many real signals its weight's gradient consists of.
      shape: axis lengths of one of them, one or two.
      transform: axis lengths of the transform; at least ``shape``.
      kept: frequencies kept on each axis, 1 to floor(transform / 2) + 1.
    Raises:
      ValidationError: different numbers of axes, a transform shorter than the signal, or more frequencies than there are.
    """

    layer: LayerName
    signals: Count
    shape: AxisNumbers
    transform: AxisNumbers
    kept: AxisNumbers

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.transform) != len(self.shape) or any(long < short for long, short in zip(self.transform, self.shape, strict=False)):
            raise InvalidParameter("transform", f"at least {list(self.shape)}, axis by axis", list(self.transform))
        most = [length // 2 + 1 for length in self.transform]
        if len(self.kept) != len(most) or any(count > limit for count, limit in zip(self.kept, most, strict=False)):
            raise InvalidParameter("kept", f"at most {most} frequencies", list(self.kept))
        return self

    @property
    def low_pass(self) -> LowPass:
        """The filter on signals of the transform's lengths."""
        return LowPass(self.transform, self.kept)

    @property
    def is_projection(self) -> bool:
        """Whether it is an orthogonal projection: the transform has the signal's own lengths."""
        return self.transform == self.shape

    @property
    def is_whole(self) -> bool:
        """Whether nothing is filtered away."""
        return self.low_pass.kept_dimensions == self.low_pass.dimensions

    @property
    def coordinates(self) -> int:
        """The number of real numbers released of one signal: the rank of A, a product over the axes."""
        return math.prod(min(kept, length) for kept, length in zip(self.low_pass.kept_per_axis, self.shape, strict=True))


@final
class SpectralProjection(Value):
    r"""What spectral training releases instead of whole gradients. It changes the noise, never the privacy loss (errata P4, P20).

    Attributes:
      order: ``project_then_clip``: norms are those of the kept coordinates; ``clip_then_filter``: those of the whole gradients, so that
        more of them are scaled down. One unit moves the released coordinates by at most the clipping bound either way.
      layers: the layers whose gradient has a spectrum, in the network's order.
    """

    order: Literal["project_then_clip", "clip_then_filter"]
    layers: Annotated[tuple[LayerSpectrum, ...], Field(max_length=MOST_LAYERS)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [layer.layer for layer in self.layers]
        if len(set(names)) != len(names):
            raise InvalidParameter("projection.layers", "a list that names each layer once", names)
        return self
