r"""How a certified training was set up: nodes, clipping, what of a gradient was released, and what was measured on held-out records."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, StringConstraints

from app.certificates.decimals import DecimalText, SignedDecimalText
from app.certificates.guarantee import Words
from mechanisms.base import Count, Value
from trainer.projection import MOST_LAYERS
from trainer.report import MetricName

AxisCounts = Annotated[tuple[Count, ...], Field(min_length=1, max_length=2)]
LayerText = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]


def _is_none(value: object) -> bool:
    return value is None


@final
class FederationFacts(Value):
    r"""Nodes that hold the data and add the noise themselves.

    Attributes:
      nodes: how many. Every unit lives at one node, whose releases alone depend on it.
      participation: who sends when.
      noise: whose it is.
    """

    nodes: Annotated[Count, Field(le=10_000)]
    participation: Words
    noise: Words


@final
class LayerBoundFacts(Value):
    """One layer's part of a unit's gradient had at most l2 norm ``bound``, exact."""

    layer: LayerText
    bound: DecimalText


@final
class ClippingFacts(Value):
    r"""How each unit's contribution was bounded.

    Attributes:
      bound: exact; of one layer sqrt(layers) less (``per_layer``), of the whole, rounded up from the layers' (``layer_bounds``), or only
        the first step's (``adaptive``). Of the l1 norm for ``l1``, else of the l2 norm.
      layers: of ``layer_bounds``: every trained layer's own bound; else absent.
      quantile, learning_rate: of ``adaptive``: the norms' quantile that the bound follows, and how fast; exact; else absent.
      count_share: of ``adaptive``: of the squared sensitivity, what the count of short gradients takes; exact; else absent.
    """

    kind: Literal["flat", "per_layer", "adaptive", "layer_bounds", "l1"]
    bound: DecimalText
    layers: Annotated[tuple[LayerBoundFacts, ...] | None, Field(min_length=1, max_length=MOST_LAYERS, exclude_if=_is_none)] = None
    quantile: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    learning_rate: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    count_share: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    meaning: Words


@final
class LayerProjectionFacts(Value):
    r"""The frequencies that were released of one layer's weight gradient: so many signals, each with these axes.

    Attributes:
      signals: real signals that the gradient consists of.
      shape: axis lengths of one signal.
      transform: axis lengths of its transform, at least ``shape``.
      kept: K, the first so many rfft frequencies of each axis.
      coordinates_kept: real numbers released of the layer's weight.
      coordinates: real numbers in it.
      noise_variance_ratio: of the noise in one weight to the noise on one released coordinate, on average over the weights; rounded up. A
        figure of the noise, not of privacy.
    """

    layer: LayerText
    signals: Count
    shape: AxisCounts
    transform: AxisCounts
    kept: AxisCounts
    coordinates_kept: Count
    coordinates: Count
    noise_variance_ratio: DecimalText


@final
class ProjectionFacts(Value):
    r"""Which coordinates of a gradient were released, where not all of them were.

    Attributes:
      order: whether norms are those of the kept coordinates (``project_then_clip``) or of the whole gradients.
      layers: those whose gradient has a spectrum; everything else was released whole.
      meaning: that in words, and that no privacy comes from it.
    """

    order: Literal["project_then_clip", "clip_then_filter"]
    layers: Annotated[tuple[LayerProjectionFacts, ...], Field(max_length=MOST_LAYERS)]
    meaning: Words


@final
class EvaluationFacts(Value):
    r"""What was measured on held-out records.

    Attributes:
      kind: ``none``: nothing left the run; ``public``: whoever submitted it declared those records public, and they aren't covered;
        ``private``: noisy counts, which the event and so the guarantee contain; ``encoded``: their noisy features, likewise.
      meaning: that in words.
      metrics: of the final model, exact; null for ``none`` and ``encoded``. Noisy for ``private``.
      counts, noise_std, every_steps: of ``private``: counts released, deviation of each one's noise, and after how many steps; else absent.
    """

    kind: Literal["none", "public", "private", "encoded"]
    meaning: Words
    metrics: Annotated[dict[MetricName, SignedDecimalText], Field(min_length=1)] | None
    counts: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    noise_std: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    every_steps: Annotated[Count | None, Field(exclude_if=_is_none)] = None
