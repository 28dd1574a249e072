"""Our own errors as HTTP answers: every one has a row of its own in the table."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from zetadp.app import main
from zetadp.app.kit.errors import ServiceError, Unavailable
from zetadp.app.kit.field_errors import field_errors
from zetadp.app.kit.problems import PRIVACY_PROBLEMS, problem_of
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.mechanisms import BudgetExceeded, PrivacyError
from zetadp.mechanisms.conventions import NoiseStatement


# The trainer's own stay in its process; whether they are imported here depends on which tests run before.
@pytest.mark.parametrize("kind", [kind for kind in PrivacyError.__subclasses__() if not kind.__module__.startswith("zetadp.trainer.")])
def test_every_error_of_the_privacy_layers_has_a_status(kind: type[PrivacyError]) -> None:
    assert kind in PRIVACY_PROBLEMS


def test_problem_types_are_told_apart() -> None:
    assert main.VERSION  # the application imports every module of errors
    raised = [kind for kind in _subclasses(ServiceError) if "problem" in vars(kind)]
    names = [problem.name for problem in (*PRIVACY_PROBLEMS.values(), *(kind.problem for kind in raised))]
    assert len(raised) > 25
    assert sorted(names) == sorted(set(names))


def test_every_error_of_the_service_that_has_no_subclass_names_its_problem() -> None:
    assert all("problem" in vars(kind) for kind in _subclasses(ServiceError) if not kind.__subclasses__() and kind is not Unavailable)


def _subclasses(kind: type[ServiceError]) -> list[type[ServiceError]]:
    below = [found for one in kind.__subclasses__() for found in (one, *_subclasses(one))]
    return list(dict.fromkeys(below))  # one may have two bases


def test_a_spend_beyond_its_budget_is_a_conflict_that_says_what_remains() -> None:
    problem = problem_of(BudgetExceeded("epsilon", 2.0, 0.5))
    assert (problem.status, problem.type) == (409, "budget-exceeded")
    assert problem.detail == "the spend needs epsilon = 2.0, but only 0.5 of the budget remains"


def _errors_of_noise(body: object) -> list[tuple[str, str, str]]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter[object](NoiseStatement).validate_python(body)
    return [(error.field, error.message, error.got) for error in field_errors(caught.value.errors(), {"noise": body})]


def test_a_value_that_does_not_say_which_kind_it_is_is_told_where_to_say_it() -> None:
    ((_, message, got),) = _errors_of_noise({"sigma": 1.0})
    assert (message, got) == ("must say which kind it is in its field 'convention'", "none")


def test_an_unknown_kind_is_answered_with_those_there_are() -> None:
    ((field, message, got),) = _errors_of_noise({"convention": "variance", "sigma": 1.0})
    assert field == "convention"
    assert message.startswith("must be one of 'total', 'per_component', 'covariance'")
    assert got == "'variance'"


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (["no number"], [("[0]", "must be a valid integer, unable to parse string as an integer", "'no number'")]),
        ([], [("body", "must have at least 1 entry", "0")]),
        ([1, 2, 3], [("body", "must have at most 2 entries", "3")]),
    ],
)
def test_a_list_is_said_to_be_too_short_only_if_it_came_so(sent: list[object], told: list[tuple[str, str, str]]) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Annotated[tuple[int, ...], Field(min_length=1, max_length=2)]).validate_python(sent)
    assert [(one.field, one.message, one.got) for one in field_errors(refused.value.errors(), sent)] == told


def test_an_error_of_the_whole_value_names_the_field_alone_or_what_the_whole_is_called() -> None:
    budget = {"name": "a", "budget": {"kind": "pure", "epsilon": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "each_user"}
    twice = {"protects": "data_set", "rules": {"purposes": ["a", "a"]}}
    share = {"protects": "data_set", "rules": {"quotas": [{"key": "a", "share": 1.5}]}}
    wrong = (
        (budget | {"renews_after_days": 1}, "renews_after_days"),
        (budget | twice, "rules.purposes"),
        (budget | share, "rules.quotas[0].share"),
        ([], "settings"),
    )
    for sent, field in wrong:
        with pytest.raises(ValidationError) as refused:
            LedgerDefinition.model_validate(sent)
        assert [one.field for one in field_errors(refused.value.errors(), sent, "settings")] == [field]
