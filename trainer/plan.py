r"""The execution plan: the one object that training runs from and whose event is accounted.

The loop draws its samples from ``sampling``, clips with ``clipping`` and releases through ``mechanism``; ``event`` is computed from
exactly these parts, so there is no second sigma anywhere.
"""

from __future__ import annotations

from typing import Literal, Self, final

from pydantic import model_validator

from accountants.events import Event, PoissonSampled, Release, Repeated
from mechanisms import AnyMechanism
from mechanisms.base import Count, OpenProbability, Positive, Value
from mechanisms.errors import InvalidParameter


@final
class PoissonSampling(Value):
    r"""Every record joins a step's sample independently.

    Attributes:
      records: size of the training set; treated as public.
      expected_batch_size: the public constant that noisy sums are divided by; <= records. The sample's own size is never used, since
        dividing by it would release it (errata Z11).
    """

    kind: Literal["poisson"] = "poisson"
    records: Count
    expected_batch_size: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.expected_batch_size > self.records:
            raise InvalidParameter("expected_batch_size", f"<= the {self.records} training records", self.expected_batch_size)
        return self

    @property
    def probability(self) -> float:
        """Sampling probability of one record, in (0, 1]."""
        return self.expected_batch_size / self.records


@final
class FlatClipping(Value):
    """Each record's whole gradient, as one vector of real pairs, is scaled down to l2 norm ``bound`` where it is longer."""

    kind: Literal["flat"] = "flat"
    bound: Positive


@final
class ExecutionPlan(Value):
    """What training does, step by step; ``event`` is what it costs.

    Attributes:
      steps: how many noisy sums are released.
      delta: at which epsilon is reported.
    """

    sampling: PoissonSampling
    clipping: FlatClipping
    mechanism: AnyMechanism
    steps: Count
    delta: OpenProbability

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mechanism.sensitivity.l2 != self.clipping.bound:
            raise InvalidParameter("mechanism.sensitivity.l2", f"the clipping bound {self.clipping.bound!r}", self.mechanism.sensitivity.l2)
        return self

    @property
    def event(self) -> Event:
        """The event of the whole run."""
        return self.event_after(self.steps)

    def event_after(self, steps: int) -> Event:
        """The event of the first ``steps`` steps, >= 1."""
        sampled = PoissonSampled(probability=self.sampling.probability, event=Release(mechanism=self.mechanism))
        return Repeated(count=steps, event=sampled)
