r"""Calls that wait together are answered in one go, each by itself; nobody waits for ever and nobody gets another's answer."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.app.jobs_harness import postgresql_server, wait_until
from tests.selection import chosen
from zetadp.accountants.filters import PureBudget, PureSpend
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings
from zetadp.app.ledgers.errors import LedgerKeyReused, LedgerNotFound
from zetadp.app.ledgers.group_commit import LARGEST, GroupCommit
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.requests import ReservationRequest
from zetadp.app.ledgers.resources import Reservation
from zetadp.app.ledgers.service import LedgerService
from zetadp.mechanisms import Adjacency
from zetadp.mechanisms.errors import BudgetExceeded

KEY = ("tenant", "ledger")
PATIENCE = 120.0


class Answers:
    """Answers a number with its double and refuses negative ones. The first call waits until it is let go."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self._failure = failure

    def __call__(self, key: tuple[str, str], asked: list[int]) -> list[int | Exception]:
        assert key == KEY
        self.batches.append(asked)
        if len(self.batches) == 1:
            assert self.go.wait(PATIENCE)
        elif self._failure is not None:
            raise self._failure
        return [ValueError(str(number)) if number < 0 else 2 * number for number in asked]


def ask_behind_the_first(answers: Answers, numbers: list[int]) -> list[Future[int]]:
    """Ask for 1, and for the numbers while that isn't answered yet."""
    together = GroupCommit(answers)
    with ThreadPoolExecutor(len(numbers) + 1) as pool:
        first = pool.submit(together.submit, KEY, 1)
        wait_until(lambda: len(answers.batches) == 1)
        asked: list[Future[int]] = []
        for number in numbers:
            asked.append(pool.submit(together.submit, KEY, number))
            wait_until(lambda: len(together._lines[KEY]) == len(asked))  # they stand in line in this order
        answers.go.set()
        assert first.result(PATIENCE) == 2
        for call in asked:
            call.exception(PATIENCE)
    assert together._lines == {}
    return asked


def test_those_who_wait_are_answered_together_and_each_by_itself() -> None:
    answers = Answers()
    asked = ask_behind_the_first(answers, [2, 3, -4, 5])
    assert answers.batches == [[1], [2, 3, -4, 5]]
    assert [asked[place].result() for place in (0, 1, 3)] == [4, 6, 10]
    with pytest.raises(ValueError, match="-4"):
        asked[2].result()


def test_a_long_line_is_served_in_parts_and_in_order() -> None:
    answers = Answers()
    numbers = list(range(2, LARGEST + 5))
    assert [call.result() for call in ask_behind_the_first(answers, numbers)] == [2 * number for number in numbers]
    assert answers.batches == [[1], numbers[:LARGEST], numbers[LARGEST:]]


def test_what_goes_wrong_for_all_is_told_to_each_and_the_next_is_served() -> None:
    answers = Answers(RuntimeError("the database is gone"))
    asked = ask_behind_the_first(answers, [2, 3])
    for call in asked:
        with pytest.raises(RuntimeError, match="the database is gone"):
            call.result()


@pytest.fixture(params=chosen(["sqlite", "postgresql"], ["postgresql"]))
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[LedgerService]:
    def opened(settings: Settings) -> Generator[LedgerService]:
        database = Database(settings)
        database.migrate()
        yield LedgerService(database, 10.0)
        database.close()

    if request.param == "sqlite":
        yield from opened(Settings(data_dir=tmp_path))
        return
    with postgresql_server() as url:
        yield from opened(Settings(data_dir=tmp_path, database_url=url))


def ledger(service: LedgerService, epsilon: float) -> str:
    definition = LedgerDefinition(
        name="together", budget=PureBudget(epsilon=epsilon), adjacency=Adjacency.ADD_REMOVE, unit="record", protects="data_set"
    )
    return service.create("default", definition, None, None).id


def reserved_at_once(service: LedgerService, ledger_id: str, asked: list[tuple[float, str | None]]) -> list[Reservation | Exception]:
    """Reservations of one transaction: of these epsilons, with these idempotency keys."""
    together = service._reservations
    go, answer = threading.Event(), together._answer

    def held(key: tuple[str, str], batch: list[object]) -> object:
        assert go.wait(PATIENCE)
        return answer(key, batch)

    together._answer = held  # pyright: ignore[reportAttributeAccessIssue]
    key = ("default", ledger_id)
    with ThreadPoolExecutor(len(asked) + 1) as pool:
        first = pool.submit(service.reserve, "default", ledger_id, ReservationRequest(spend=PureSpend(epsilon=0.25)), None, None)
        wait_until(lambda: key in together._lines and not together._lines[key])  # it is being answered
        calls: list[Future[Reservation]] = []
        for epsilon, name in asked:
            request = ReservationRequest(spend=PureSpend(epsilon=epsilon))
            calls.append(pool.submit(service.reserve, "default", ledger_id, request, None, name))
            wait_until(lambda: len(together._lines[key]) == len(calls))
        go.set()
        first.result(PATIENCE)
        failures = [call.exception(PATIENCE) for call in calls]
    found: list[Reservation | Exception] = []
    for call, failure in zip(calls, failures, strict=True):
        assert failure is None or isinstance(failure, Exception)
        found.append(call.result() if failure is None else failure)
    return found


def test_a_request_that_is_refused_takes_nobody_with_it(service: LedgerService) -> None:
    made = ledger(service, 1.0)
    small, large, last = reserved_at_once(service, made, [(0.25, None), (0.75, None), (0.5, None)])
    assert isinstance(small, Reservation)
    assert isinstance(large, BudgetExceeded)
    assert isinstance(last, Reservation)
    assert (small.entry, last.entry) == (3, 4)
    report = service.verify("default", made)
    assert (report.verdict, report.entries) == ("sound", 4)
    assert service.get("default", made).balance.limits[0].remaining == 0.0  # pyright: ignore[reportOptionalMemberAccess]


def test_the_same_request_twice_in_one_transaction_is_one_reservation(service: LedgerService) -> None:
    made = ledger(service, 10.0)
    first, again, other = reserved_at_once(service, made, [(0.25, "key"), (0.25, "key"), (0.5, "key")])
    assert isinstance(first, Reservation)
    assert again == first
    assert isinstance(other, LedgerKeyReused)
    assert service.verify("default", made).entries == 3


def test_another_tenants_request_is_not_answered_with_ours(service: LedgerService) -> None:
    made = ledger(service, 1.0)
    with pytest.raises(LedgerNotFound):
        service.reserve("other", made, ReservationRequest(spend=PureSpend(epsilon=0.25)), None, None)
