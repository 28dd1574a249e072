r"""Who may spend from a ledger, and what for, beside what its budget admits. Rules only ever refuse: no guarantee rests on them."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, StringConstraints, model_validator

from zetadp.accountants.filters import AnyBudget, Price
from zetadp.app.ledgers.errors import SettlerRefused
from zetadp.mechanisms.base import Value, is_absent
from zetadp.mechanisms.errors import BudgetExceeded, InvalidParameter

KeyId = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Purpose = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,127}$")]
"""What a spend is for, by whoever asks. The history keeps it for ever."""

MOST_RULES = 100


@final
class Quota(Value):
    r"""How much of the budget one analyst may spend.

    Attributes:
      key: the id of the analyst's key, of its first one where it was rotated: the quota is that of all of them.
      share: of every limit of the budget, in (0, 1]. The budget stays the cap for all together: shares may add up to more than 1.
    """

    key: KeyId
    share: Annotated[float, Strict(), Field(gt=0.0, le=1.0)]


@final
class Rules(Value):
    r"""What a reservation has to meet beside the budget.

    Attributes:
      purposes: a reservation names one of these as its purpose; null: any, or none.
      quotas: only these keys reserve, each up to its share, reserved and committed together; null: every key that may use ledgers.
      approval: ``second_key``: another key than the one that reserved approves a reservation before it can be committed. Nothing of it
        may be released before: trainings of this service wait for it, other releases are up to their makers. Only these two keys settle
        it, and only the one that approved it frees some of it again, but for what a reservation's expiry says and what a job's end shows
        was never released.
    """

    purposes: Annotated[tuple[Purpose, ...] | None, Field(min_length=1, max_length=MOST_RULES, exclude_if=is_absent)] = None
    quotas: Annotated[tuple[Quota, ...] | None, Field(min_length=1, max_length=MOST_RULES, exclude_if=is_absent)] = None
    approval: Literal["none", "second_key"] = "none"

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, listed in (("purposes", self.purposes or ()), ("quotas", tuple(quota.key for quota in self.quotas or ()))):
            if len(set(listed)) != len(listed):
                raise InvalidParameter(f"rules.{name}", "distinct", next(one for k, one in enumerate(listed) if one in listed[:k]))
        return self

    def check_purpose(self, purpose: str | None) -> None:
        """Raises InvalidParameter: it isn't one of those that the ledger is for."""
        if self.purposes is not None and purpose not in self.purposes:
            raise InvalidParameter("purpose", f"one of {', '.join(self.purposes)}", purpose)

    def check_quota(self, budget: AnyBudget, key: str | None, spent: tuple[int, ...], price: Price) -> None:
        r"""Checks one more price against the share of this key.

        Args:
          spent: what the key has reserved and committed, for each limit in steps of its grid.
        Raises:
          BudgetExceeded: the key has no quota, even for what costs nothing, or its share is exceeded. Whole steps are compared, the
            share rounded down.
        """
        mosts = self._mosts(budget, key)
        if mosts is None:
            requested = budget.shown(budget.grids[0].amount(price.steps[0]))
            raise BudgetExceeded(f"{budget.quantities[0]} of the quota of key {key}, which has none,", requested, 0.0)
        within = [had + step <= most for had, step, most in zip(spent, price.steps, mosts, strict=True)]
        if budget.is_kept(within):
            return
        k = within.index(False)
        requested, left = (budget.shown(budget.grids[k].amount(max(0, steps))) for steps in (price.steps[k], mosts[k] - spent[k]))
        raise BudgetExceeded(f"{budget.quantities[k]} of the quota of key {key}", requested, left)

    def quota_rests(self, budget: AnyBudget, key: str | None, spent: tuple[int, ...]) -> tuple[int, ...] | None:
        """What is left of this key's quota, for each limit in steps of its grid; None where it has none."""
        mosts = self._mosts(budget, key)
        return None if mosts is None else tuple(most - had for most, had in zip(mosts, spent, strict=True))

    def _mosts(self, budget: AnyBudget, key: str | None) -> list[int] | None:
        share = next((Fraction(quota.share) for quota in self.quotas or () if quota.key == key), None)
        return None if share is None else [int(share * max(grid.limit, 0)) for grid in budget.grids]

    def check_settler(self, reservation: str, key: str | None, maker: str | None, approver: str | None, *, frees: bool) -> None:
        r"""Checks who settles a reservation, where two keys are asked for.

        Args:
          reservation: its id.
          key: that settles it.
          maker: the key that reserved; ``approver``: the one that approved, None while none has.
          frees: whether some of it is free again: it is released, or only a part of it committed.
        Raises:
          SettlerRefused: by another key than these two, or the maker alone would free what the other approved.
        """
        if self.approval != "second_key":
            return
        if approver is None and key != maker:
            raise SettlerRefused(reservation, "the key that made it")
        if approver is not None and frees and key != approver:
            raise SettlerRefused(reservation, "the key that approved it, since some of it is free again")
        if approver is not None and key not in (maker, approver):
            raise SettlerRefused(reservation, "the key that made or the one that approved it")
