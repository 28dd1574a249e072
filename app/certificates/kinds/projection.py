r"""The spectral part of noisy sums: which coordinates of a gradient are released, recomputed from axis lengths and kept frequencies."""

from __future__ import annotations

import math
from collections.abc import Iterator

from app.certificates.decimals import upper
from app.certificates.training import ClippingFacts, LayerProjectionFacts, ProjectionFacts
from mechanisms.errors import InvalidParameter
from trainer.projection import LayerSpectrum, SpectralProjection

MEANING = {
    "project_then_clip": (
        "of each layer's weight gradient only the stated low frequencies are kept, before its norm is taken: norms are those of the kept "
        "coordinates"
    ),
    "clip_then_filter": (
        "each gradient is scaled down by the norms of what it was before any filter, and then only the stated low frequencies are kept of "
        "each layer's weight gradient"
    ),
}

NO_PRIVACY = (
    "noise of the full stated deviation is added to every released coordinate; filtering earns no privacy: mu and epsilon are those of the "
    "same noise without any filter, and the variance ratio is a figure of the noise in the weights, not of the guarantee"
)


def meaning(order: str) -> str:
    """What the projection does, and that no privacy comes from it."""
    return f"{MEANING[order]}; {NO_PRIVACY}"


def projection_facts(projection: SpectralProjection) -> ProjectionFacts:
    """What the certificate says of a plan's projection."""
    return ProjectionFacts(
        order=projection.order, layers=tuple(_layer(layer) for layer in projection.layers), meaning=meaning(projection.order)
    )


def projection_problems(projection: ProjectionFacts, clipping: ClippingFacts) -> Iterator[str]:
    """What doesn't follow from shapes and kept frequencies, or names a layer that has no bound."""
    names = [layer.layer for layer in projection.layers]
    if len(set(names)) != len(names):
        yield "projection.layers: a layer is named twice"
    bounded = None if clipping.layers is None else {layer.layer for layer in clipping.layers}
    for index, stated in enumerate(projection.layers):
        place = f"projection.layers[{index}]"
        if bounded is not None and stated.layer not in bounded:
            yield f"{place}.layer: {stated.layer!r} isn't among the layers that have a bound"
        try:
            derived = _layer(
                LayerSpectrum(layer=stated.layer, signals=stated.signals, shape=stated.shape, transform=stated.transform, kept=stated.kept)
            )
        except (InvalidParameter, ValueError) as error:
            yield f"{place}: there is no such filter: {' '.join(str(error).split())[:300]}"
            continue
        for name in ("coordinates_kept", "coordinates", "noise_variance_ratio"):
            said, given = getattr(stated, name), getattr(derived, name)
            if said != given:
                yield f"{place}.{name}: the certificate says {said}, shape and kept frequencies give {given}"


def projection_lines(projection: ProjectionFacts) -> Iterator[str]:
    """Read aloud: one line for the whole, one for each layer."""
    yield f"Released of each gradient: {projection.meaning}."
    for layer in projection.layers:
        padded = "" if layer.transform == layer.shape else f", filled up to {_axes(layer.transform)}"
        yield (
            f"  Layer {layer.layer}: {layer.coordinates_kept} of {layer.coordinates} numbers ({layer.signals} signals of "
            f"{_axes(layer.shape)}{padded}, the first {_axes(layer.kept)} frequencies); noise variance in a weight: "
            f"{layer.noise_variance_ratio} of that on a released number."
        )


def _layer(layer: LayerSpectrum) -> LayerProjectionFacts:
    return LayerProjectionFacts(
        layer=layer.layer,
        signals=layer.signals,
        shape=layer.shape,
        transform=layer.transform,
        kept=layer.kept,
        coordinates_kept=layer.signals * layer.coordinates,
        coordinates=layer.signals * math.prod(layer.shape),
        # The diagonal of a filter's projection is constant, so cropping to the signal keeps the average.
        noise_variance_ratio=upper(layer.low_pass.variance_ratio),
    )


def _axes(lengths: tuple[int, ...]) -> str:
    return " x ".join(str(length) for length in lengths)
