r"""Requests to a ledger."""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from pydantic import Field, StringConstraints, model_validator

from zetadp.app.calculators.schemas import RELEASE, example
from zetadp.app.ledgers.entries import Fate
from zetadp.app.ledgers.ledger_definition import LARGEST_GROUP_OF_USERS, Spent, UserName
from zetadp.app.ledgers.rules import Purpose
from zetadp.mechanisms.base import Number, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import AnyTrainingSpec

Id = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{32}$")]
LONGEST_RESERVATION_SECONDS = 366 * 86_400.0


@final
class ChargedUsers(Value):
    r"""Whose records the release uses; each is charged the whole price.

    Attributes:
      names: of the users; distinct.
      short_of_budget: what happens if some have too little left: ``refuse`` the reservation, or ``leave_out`` those users, who then
        must not be part of the release.
    """

    names: Annotated[tuple[UserName, ...], Field(min_length=1, max_length=LARGEST_GROUP_OF_USERS)]
    short_of_budget: Literal["refuse", "leave_out"]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.names)) != len(self.names):
            twice = next(name for k, name in enumerate(self.names) if name in self.names[:k])
            raise InvalidParameter("names", "distinct", twice)
        return self


@final
class Expiry(Value):
    r"""What happens to a reservation that isn't settled in time. With a job, it never lapses before the job has ended.

    Attributes:
      seconds: from now; 1 to a year.
      then: ``spent``: it counts in full, since something may have been released. ``refunded``: all of it is free again, which is sound only
        if nothing of the release leaves its maker before the commit was answered; afterwards a commit is refused.
    """

    seconds: Annotated[Number, Field(ge=1.0, le=LONGEST_RESERVATION_SECONDS)]
    then: Fate


@final
class ReservationRequest(Value):
    r"""Set a spend aside before its noise is drawn.

    Attributes:
      spend: an event, which the ledger's filter accounts for, or a number in one of its currencies, which is accepted as given.
      users: who is charged; given if and only if the ledger protects each user.
      job: the job it is for; it doesn't lapse before that job has ended.
      purpose: what it is for, for whoever reads the history; it changes nothing about what is admitted.
      expiry: without it, the reservation stays until it is settled.
    """

    model_config = example({"spend": RELEASE, "expiry": {"seconds": 3600.0, "then": "spent"}})

    spend: Spent
    users: ChargedUsers | None = None
    job: Id | None = None
    purpose: Purpose | None = None
    expiry: Expiry | None = None


@final
class CommitRequest(Value):
    r"""What of the reservation was really released.

    Attributes:
      released: a smaller event (some of the reserved releases and no others) or a smaller number of the same kind; null: all of it.
        It must include everything that may have been released.
    """

    model_config = example({"released": None})

    released: Spent | None = None


@final
class ProjectionRequest(Value):
    """How many more spends fit, each like this event or number, like the training of this job, or like a training of this spec."""

    model_config = example({"spend": RELEASE})

    spend: Spent | None = None
    job: Id | None = None
    spec: AnyTrainingSpec | None = None
    user: UserName | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name in ("spend", "job", "spec") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidParameter("spend", "given if neither job nor spec is given, and only then", " and ".join(given) or "none of them")
        return self
