"""Our own errors as HTTP answers: every one has a row of its own in the table."""

from __future__ import annotations

import pytest

from app.errors import STATUS_OF, problem_of
from mechanisms import BudgetExceeded, PrivacyError


@pytest.mark.parametrize("kind", PrivacyError.__subclasses__())
def test_every_error_of_the_privacy_layers_has_a_status(kind: type[PrivacyError]) -> None:
    assert kind in STATUS_OF


def test_problem_types_are_told_apart() -> None:
    types = [kind for _, kind, _ in STATUS_OF.values()]
    assert len(types) == len(set(types))


def test_a_spend_beyond_its_budget_is_a_conflict_that_says_what_remains() -> None:
    problem = problem_of(BudgetExceeded("epsilon", 2.0, 0.5))
    assert (problem.status, problem.type) == (409, "budget-exceeded")
    assert problem.detail == "the spend needs epsilon = 2.0, and 0.5 remains of the budget"
