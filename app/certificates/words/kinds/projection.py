r"""The spectral part of noisy sums: which coordinates of a gradient are released."""

from __future__ import annotations

import math
from collections.abc import Iterator

from zetadp.app.certificates.facts.decimals import upper
from zetadp.trainer.specs.projection import SpectralProjection

MEANING = {
    "project_then_clip": (
        "only the stated low frequencies of each layer's weight gradient are kept, before its norm is taken: norms are those of the kept "
        "coordinates"
    ),
    "clip_then_filter": (
        "each gradient is scaled down by the norms that it had before any filter, and then only the stated low frequencies of each layer's "
        "weight gradient are kept"
    ),
}

NO_PRIVACY = (
    "noise of the full stated deviation is added to every released coordinate; filtering adds no privacy: mu and epsilon are those of the "
    "same noise without any filter, and the variance ratio describes the noise in the weights, not the guarantee"
)


def projection_lines(projection: SpectralProjection) -> Iterator[str]:
    """In words: one line for the whole, one for each layer."""
    yield f"Released of each gradient: {MEANING[projection.order]}; {NO_PRIVACY}."
    for layer in projection.layers:
        padded = "" if layer.transform == layer.shape else f", padded to {_axes(layer.transform)}"
        kept, whole = layer.signals * layer.coordinates, layer.signals * math.prod(layer.shape)
        # The diagonal of a filter's projection is constant, so cropping to the signal keeps the average.
        yield (
            f"  Layer {layer.layer}: {kept} of {whole} numbers ({layer.signals} signals of "
            f"{_axes(layer.shape)}{padded}, the first {_axes(layer.kept)} frequencies); noise variance in a weight: "
            f"{upper(layer.low_pass.variance_ratio)} of that on a released number."
        )


def _axes(lengths: tuple[int, ...]) -> str:
    return " x ".join(str(length) for length in lengths)
