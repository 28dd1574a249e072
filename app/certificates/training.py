r"""How a certified training was set up: its nodes, its clipping, and what it measured on held-out records."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field

from app.certificates.decimals import DecimalText, SignedDecimalText
from app.certificates.guarantee import Words
from mechanisms.base import Count, Value
from trainer.report import MetricName


def _is_none(value: object) -> bool:
    return value is None


@final
class FederationFacts(Value):
    r"""Nodes that hold the data and add the noise themselves.

    Attributes:
      nodes: units that live at each; public. Every unit lives at one node, whose releases alone depend on it.
      participation: who sends when.
      noise: whose it is.
    """

    nodes: Annotated[tuple[Count, ...], Field(min_length=1, max_length=10_000)]
    participation: Words
    noise: Words


@final
class ClippingFacts(Value):
    r"""How each unit's contribution was bounded.

    Attributes:
      bound: exact; of one layer sqrt(layers) less (``per_layer``), or only the first step's (``adaptive``).
      quantile, learning_rate: of ``adaptive``: the norms' quantile that the bound follows, and how fast; exact; else absent.
      count_share: of ``adaptive``: of the squared sensitivity, what the count of short gradients takes; exact; else absent.
    """

    kind: Literal["flat", "per_layer", "adaptive"]
    bound: DecimalText
    quantile: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    learning_rate: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    count_share: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    meaning: Words


@final
class EvaluationFacts(Value):
    r"""What was measured on held-out records.

    Attributes:
      kind: ``none``: nothing left the run; ``public``: whoever submitted it declared those records public, and they aren't covered;
        ``private``: noisy counts, which the event and so the guarantee contain.
      meaning: that in words.
      metrics: of the final model, exact; null for ``none``. Noisy for ``private``.
      counts, noise_std, every_steps: of ``private``: counts released, deviation of each one's noise, and after how many steps; else absent.
    """

    kind: Literal["none", "public", "private"]
    meaning: Words
    metrics: Annotated[dict[MetricName, SignedDecimalText], Field(min_length=1)] | None
    counts: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    noise_std: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    every_steps: Annotated[Count | None, Field(exclude_if=_is_none)] = None
