r"""How long a training ran."""

from __future__ import annotations

from typing import final

from mechanisms.base import Count, Value


@final
class StepFacts(Value):
    r"""Steps planned and done: noisy sums released, by each node where there are nodes; of other kinds, steps that release nothing new.

    Steps lost with a killed worker never left it.
    """

    planned: Count
    released: Count
