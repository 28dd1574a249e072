r"""What a certificate says of the parts of a comparison: several trainings on one data set, all of them released."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field

from accountants.events import Event
from app.certificates.decimals import DecimalText
from app.certificates.errata import ErratumNote
from app.certificates.evaluation import CountsFacts
from app.certificates.guarantee import Words
from app.certificates.sections import Sections
from app.certificates.steps import StepFacts
from mechanisms.base import Count, Value
from trainer.plans import PartName


def _is_none(value: object) -> bool:
    return value is None


@final
class PartGuarantee(Value):
    r"""What one part's releases guarantee to someone who sees them alone; not a guarantee of the run, whose parts are all released.

    Attributes:
      epsilon: rounded up, at ``delta`` (exact); null where the part has no guarantee.
      pure_epsilon: of the part as pure differential privacy, rounded up; absent where it isn't.
      route: how epsilon was found.
      reason: why there is none.
    """

    epsilon: DecimalText | None
    delta: DecimalText
    pure_epsilon: Annotated[DecimalText | None, Field(exclude_if=_is_none)] = None
    route: Annotated[Words | None, Field(exclude_if=_is_none)] = None
    reason: Annotated[Words | None, Field(exclude_if=_is_none)] = None


@final
class PartFacts(Sections):
    r"""One training.

    Attributes:
      by_itself: its own guarantee.
      expected_batch_size: the constant that its noisy sums were divided by; absent where there are none.
      counts: of held-out records, that its event ends with; absent where there are none.
      errata: rows that apply to its algorithm.
      event: its share of the whole.
      (others): as in ``Sections``.
    """

    name: PartName
    algorithm: Annotated[str, Field(min_length=1, max_length=200)]
    by_itself: PartGuarantee
    steps: StepFacts
    expected_batch_size: Annotated[Count | None, Field(exclude_if=_is_none)] = None
    counts: Annotated[CountsFacts | None, Field(exclude_if=_is_none)] = None
    errata: Annotated[tuple[ErratumNote, ...], Field(max_length=1000)]
    event: Event


@final
class ComparisonFacts(Value):
    """The parts in their order; ``meaning`` says what their own figures are, and that choosing among them is paid for."""

    parts: Annotated[tuple[PartFacts, ...], Field(min_length=1, max_length=256)]
    meaning: Words
