r"""The unit of privacy, one of which a guarantee protects: a row of the data, or the user whose rows they are. Free of torch."""

from __future__ import annotations

from zetadp.mechanisms.base import Adjacency, PrivacyUnit
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataRecipe, DataSetFacts, Uploaded
from zetadp.trainer.data.base import SplitRule


def protects_users(unit: PrivacyUnit, records_per_user: int | None, facts: DataSetFacts, field: str = "unit") -> bool:
    r"""Whether the unit of privacy is the user, not the row.

    Args:
      field: the request's field that holds ``unit``, for the message.
    Raises:
      InvalidParameter: the unit is neither, or ``records_per_user`` doesn't fit it.
    """
    if unit == facts.unit:
        if records_per_user is not None:
            raise InvalidParameter("records_per_user", f"absent where the unit is one row ({facts.unit!r})", records_per_user)
        return False
    if facts.user_unit is None or unit != facts.user_unit:
        row = f"{facts.unit!r} (one row of this data set)"
        raise InvalidParameter(field, row if facts.user_unit is None else f"{row} or {facts.user_unit!r} (whose rows they are)", unit)
    if records_per_user is None:
        raise InvalidParameter("records_per_user", f"given where the unit is {unit!r}, who may have several records", None)
    return True


def check_unit(unit: PrivacyUnit, records_per_user: int | None, data: DataRecipe, field: str) -> None:
    """As ``protects_users``, as far as the kind of data set alone says. Of an uploaded one nothing is known before it is looked up."""
    if isinstance(data, Uploaded):
        return
    if unit == data.UNIT:
        if records_per_user is not None:
            raise InvalidParameter("records_per_user", f"absent where the unit is one row ({data.UNIT!r})", records_per_user)
    elif data.USER_UNIT is None or unit != data.USER_UNIT:
        row = f"{data.UNIT!r} (one row of this data set)"
        raise InvalidParameter(field, row if data.USER_UNIT is None else f"{row} or {data.USER_UNIT!r} (whose rows they are)", unit)
    elif records_per_user is None:
        raise InvalidParameter("records_per_user", f"given where the unit is {unit!r}, who may have several records", None)


def check_split(facts: DataSetFacts, adjacency: Adjacency) -> None:
    """``check_split_rule`` for a data set of these facts."""
    check_split_rule(facts.split, adjacency)


def check_split_rule(split: SplitRule, adjacency: Adjacency) -> None:
    r"""Checks that neighbours' held-out records are chosen so that one unit moves no other, and stays on its side if it is replaced.

    Raises:
      InvalidParameter: records are identified by places although one may come or go, or by their content although that may be replaced.
    """
    if adjacency is Adjacency.ADD_REMOVE and split == "position":
        raise InvalidParameter("data.split_by", "'content' under add_remove (one more record would shift those after it)", split)
    if adjacency is Adjacency.REPLACE_ONE and split == "content":
        raise InvalidParameter("data.split_by", "'position' under replace_one (a replacement may fall on the other side)", split)


def units_of(unit: PrivacyUnit, records_per_user: int | None, facts: DataSetFacts, field: str = "unit") -> int:
    """The number of units of privacy in the training data. Raises as ``protects_users`` does."""
    if not protects_users(unit, records_per_user, facts, field):
        return facts.training_records
    assert facts.users is not None  # a data set with a user unit counts its users
    return facts.users
