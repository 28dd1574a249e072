"""Ledgers against an exact model, under concurrency, and over time."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from fractions import Fraction
from random import Random

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from tests.app.ledgers_harness import KINDS, TENANT, databases, gaussian, opened, pure, reserved
from tests.selection import chosen
from zetadp.accountants.filters import GdpBudget, PureBudget, RdpBudget, RdpSpend, RdpTargetBudget, ZcdpBudget, ZcdpSpend
from zetadp.app.kit.database import Database, new_id, now
from zetadp.app.ledgers import book
from zetadp.app.ledgers.entries import EntryRecord
from zetadp.app.ledgers.errors import LedgerNotFound, ReservationSettled
from zetadp.app.ledgers.requests import ChargedUsers, Expiry
from zetadp.app.ledgers.resources import Ledger
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.ledgers.states import ReservationState
from zetadp.app.ledgers.sums import Sums
from zetadp.app.tables.jobs import JobRow
from zetadp.mechanisms.errors import BudgetExceeded

ORDERS = (8.0, 16.0)
MOVES = 120
GRID_ERROR = Fraction(MOVES, 2**128)
"""Of a limit: so much may the sums be above the exact ones after this many spends (accountants/proofs/filters.md, section 5)."""


@pytest.fixture(scope="module", params=chosen(KINDS, ["postgresql"]))
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Database]:
    with databases(request.param, tmp_path_factory.mktemp(request.param)) as database:
        yield database


@pytest.fixture
def service(database: Database) -> LedgerService:
    return LedgerService(database, 10.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds by which the ledgers' clock is ahead."""
    ahead = [0.0]
    monkeypatch.setattr(book, "now", lambda: now() + timedelta(seconds=ahead[0]))
    for module in ("service", "verification.replay"):
        monkeypatch.setattr(f"zetadp.app.ledgers.{module}.now", lambda: now() + timedelta(seconds=ahead[0]))
    return ahead


def history(service: LedgerService, ledger: Ledger) -> list[EntryRecord]:
    return list(service.entries(TENANT, ledger.id, 0, 10_000).entries)


def kinds(service: LedgerService, ledger: Ledger) -> list[str]:
    return [entry.act.kind for entry in history(service, ledger)]


def spent(service: LedgerService, ledger: Ledger) -> tuple[float, float]:
    """(reserved, committed)"""
    balance = service.get(TENANT, ledger.id).balance
    assert balance is not None
    return balance.limits[0].reserved, balance.limits[0].committed


@pytest.mark.parametrize(
    "budget",
    [
        PureBudget(epsilon=1.0),
        ZcdpBudget(rho=0.3),
        GdpBudget(mu=1.0),
        RdpBudget(orders=ORDERS, values=(0.5, 2.0)),
        RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=ORDERS),
    ],
    ids=lambda budget: budget.kind,
)
def test_random_histories_are_those_of_an_exact_model(service: LedgerService, clock: list[float], budget, request) -> None:
    """Each sum and each admission, against fractions; the model knows nothing of grids."""
    random = Random(budget.kind)
    ledger = opened(service, budget, f"model {request.node.name} {new_id()}".replace("[", " ").replace("]", " "))
    standing: dict[str, tuple[tuple[Fraction, ...], object, float | None, str | None]] = {}
    committed = [Fraction(0)] * len(budget.limits)

    def drawn(scale: float):
        if isinstance(budget, PureBudget):
            return pure(scale)
        return ZcdpSpend(rho=scale) if random.random() < 0.8 or isinstance(budget, GdpBudget) else pure(scale)

    def total() -> list[Fraction]:
        return [base + sum((charge[k] for charge, *_ in standing.values()), Fraction(0)) for k, base in enumerate(committed)]

    def lapse() -> None:
        for name, (charge, _, until, then) in list(standing.items()):
            if until is not None and until <= clock[0]:
                del standing[name]
                if then == "spent":
                    committed[:] = [a + b for a, b in zip(committed, charge, strict=True)]

    for _ in range(MOVES):
        move = random.choice(("reserve", "reserve", "reserve", "commit", "part", "release", "wait"))
        if move == "wait":
            clock[0] += random.choice((5.0, 400.0))
        lapse()
        if move == "reserve":
            spend = _number(budget, random, drawn)
            cost = budget.cost(spend)
            expiry = Expiry(seconds=300.0, then=random.choice(("spent", "refunded"))) if random.random() < 0.5 else None
            after = [a + b for a, b in zip(total(), cost, strict=True)]
            fits = budget.is_kept([sum_ <= limit for sum_, limit in zip(after, budget.limits, strict=True)])
            slack = min(abs(limit - sum_) / abs(limit) for sum_, limit in zip(after, budget.limits, strict=True))
            try:
                made = reserved(service, ledger, spend, expiry=expiry)
            except BudgetExceeded:
                assert not fits or slack < GRID_ERROR
            else:
                assert fits  # never more than is there, not even by rounding
                standing[made.id] = (cost, spend, None if expiry is None else clock[0] + 300.0, expiry and expiry.then)
        elif move in ("commit", "part", "release") and standing:
            name = random.choice(list(standing))
            charge, spend, *_ = standing.pop(name)
            if move == "release":
                service.release(TENANT, ledger.id, name, None, None)
                continue
            part = _half(spend) if move == "part" else None
            service.commit(TENANT, ledger.id, name, part, None, None)
            kept = charge if part is None else budget.cost(part)
            committed = [a + b for a, b in zip(committed, kept, strict=True)]
    balance = service.get(TENANT, ledger.id).balance
    lapse()
    assert balance is not None
    assert balance.open_reservations == len(standing)
    for k, (use, exact) in enumerate(zip(balance.limits, total(), strict=True)):
        assert use.committed + use.reserved >= 0.0
        assert _amount(service, ledger, k) >= exact
        assert _amount(service, ledger, k) - exact <= abs(budget.limits[k]) * GRID_ERROR * 4
    assert service.verify(TENANT, ledger.id).verdict == "sound", service.verify(TENANT, ledger.id).problems


def _number(budget, random: Random, drawn):
    size = random.choice((0.001, 0.01, 0.1)) * random.random()
    if isinstance(budget, GdpBudget):
        return pure(size) if random.random() < 0.5 else gaussian(1.0 / (size + 1e-3))
    if isinstance(budget, RdpBudget | RdpTargetBudget):
        return RdpSpend(orders=ORDERS, values=(size, size * random.uniform(0.5, 5.0)))
    return drawn(size)


def _half(spend):
    match spend.kind:
        case "pure":
            return pure(spend.epsilon / 2.0)
        case "zcdp":
            return ZcdpSpend(rho=spend.rho / 3.0)
        case "rdp":
            return RdpSpend(orders=spend.orders, values=(spend.values[0] / 7.0, spend.values[1]))
        case _:
            return spend


def _amount(service: LedgerService, ledger: Ledger, k: int) -> Fraction:
    """Reserved and committed of the k-th limit, exactly, from the stored sums."""
    with service._database.reading() as session:
        row = session.execute(text("SELECT sums FROM ledgers WHERE id = :id"), {"id": ledger.id}).scalar_one()
    sums = Sums.read(ledger.id, ledger.definition, row)
    return ledger.definition.budget.grids[k].amount(sums.reserved[k] + sums.committed[k])


def test_sixty_four_clients_spend_what_is_there_and_no_more(service: LedgerService) -> None:
    ledger = opened(service, PureBudget(epsilon=100.0), f"clients {new_id()}")

    def client(number: int) -> int:
        """Reservations admitted; every third is released and every third committed."""
        admitted = 0
        for k in range(3):
            try:
                made = reserved(service, ledger, pure(1.0), key=f"{number}-{k}")
                assert reserved(service, ledger, pure(1.0), key=f"{number}-{k}").id == made.id
            except BudgetExceeded:
                continue
            admitted += 1
            if number % 3 == 1:
                service.commit(TENANT, ledger.id, made.id, None, None, None)
        return admitted

    barrier = threading.Barrier(64)
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda _: barrier.wait(), range(64)))
        admitted = sum(pool.map(client, range(64)))
    assert admitted == 100
    balance = service.get(TENANT, ledger.id).balance
    assert balance is not None
    assert balance.limits[0].reserved + balance.limits[0].committed == 100.0
    report = service.verify(TENANT, ledger.id)
    assert (report.verdict, report.balance) == ("sound", balance)
    assert kinds(service, ledger).count("reserved") == 100


def test_a_reservation_is_settled_once_however_many_try(service: LedgerService) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"race {new_id()}")
    made = reserved(service, ledger, pure(0.5))

    def settle(number: int) -> bool:
        act = service.release if number % 2 else lambda *given: service.commit(given[0], given[1], given[2], None, None, None)
        try:
            act(TENANT, ledger.id, made.id, None, None)
        except ReservationSettled:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(settle, range(32))) == 1
    assert len(kinds(service, ledger)) == 3


@pytest.mark.parametrize(("then", "left"), [("spent", (0.0, 0.5)), ("refunded", (0.0, 0.0))])
def test_an_overdue_reservation_lapses_as_it_said(service: LedgerService, clock: list[float], then: str, left: tuple[float, float]) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"lapse {then} {new_id()}")
    made = reserved(service, ledger, pure(0.5), expiry=Expiry(seconds=60.0, then=then))
    clock[0] = 59.0
    assert spent(service, ledger) == (0.5, 0.0)
    clock[0] = 61.0
    # From here on nothing can be committed: what was refunded may have gone to somebody else.
    with pytest.raises(ReservationSettled, match="is lapsed and can't be settled again"):
        service.commit(TENANT, ledger.id, made.id, None, None, None)
    assert spent(service, ledger) == left
    assert service.reservation(TENANT, ledger.id, made.id).state is ReservationState.LAPSED
    assert kinds(service, ledger) == ["opened", "reserved", "lapsed"]
    assert service.verify(TENANT, ledger.id).verdict == "sound"


def test_a_reservation_without_an_end_stays(service: LedgerService, clock: list[float]) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"stays {new_id()}")
    reserved(service, ledger, pure(0.5))
    clock[0] = 1e8
    assert spent(service, ledger) == (0.5, 0.0)


def test_a_clock_that_jumps_back_refunds_nothing_twice(service: LedgerService, clock: list[float]) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"clock {new_id()}")
    made = reserved(service, ledger, pure(1.0), expiry=Expiry(seconds=60.0, then="refunded"))
    clock[0] = 100.0
    reserved(service, ledger, pure(1.0))
    clock[0] = -1000.0
    with pytest.raises(ReservationSettled):
        service.commit(TENANT, ledger.id, made.id, None, None, None)
    with pytest.raises(BudgetExceeded):
        reserved(service, ledger, pure(0.1))


def test_a_reservation_of_a_job_does_not_lapse_before_the_job_has_ended(
    service: LedgerService, database: Database, clock: list[float]
) -> None:
    job = new_id()
    with database.writing() as session:
        session.add(JobRow(id=job, tenant=TENANT, state="running", created=now(), document={}))
    ledger = opened(service, PureBudget(epsilon=1.0), f"job {job}")
    reserved(service, ledger, pure(0.5), expiry=Expiry(seconds=60.0, then="refunded"), job=job)
    clock[0] = 1000.0
    assert spent(service, ledger) == (0.5, 0.0)
    with pytest.raises(BudgetExceeded):
        reserved(service, ledger, pure(0.75))
    with database.writing() as session:
        session.execute(text("UPDATE jobs SET state = 'failed' WHERE id = :id"), {"id": job})
    clock[0] = 2000.0
    assert spent(service, ledger) == (0.0, 0.0)


def test_a_user_is_charged_with_what_uses_its_records_and_nothing_else(service: LedgerService) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"users {new_id()}", protects="each_user", unit="user")
    random, exact = Random(5), {f"user-{k}": Fraction(0) for k in range(8)}
    for _ in range(60):
        names = tuple(random.sample(sorted(exact), random.randint(1, 4)))
        epsilon = random.random() / 3.0
        fits = {name for name in names if exact[name] + Fraction(epsilon) <= 1}
        try:
            made = reserved(service, ledger, pure(epsilon), ChargedUsers(names=names, short_of_budget="leave_out"))
        except BudgetExceeded:
            assert not fits
            continue
        assert set(made.users) == fits
        assert set(made.left_out) == set(names) - fits
        if random.random() < 0.3:
            service.release(TENANT, ledger.id, made.id, None, None)
            continue
        for name in made.users:
            exact[name] += Fraction(epsilon)
    for name, total in exact.items():
        assert service.user(TENANT, ledger.id, name).limits[0].reserved == pytest.approx(float(total), abs=1e-12)
    assert service.verify(TENANT, ledger.id).verdict == "sound"


def test_another_tenant_finds_nothing(service: LedgerService) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"tenants {new_id()}")
    made = reserved(service, ledger, pure(0.5))
    for call in (
        lambda: service.get("other", ledger.id),
        lambda: service.entries("other", ledger.id, 0, 10),
        lambda: service.reservation("other", ledger.id, made.id),
        lambda: service.commit("other", ledger.id, made.id, None, None, None),
        lambda: service.release("other", ledger.id, made.id, None, None),
        lambda: service.close("other", ledger.id, None, None),
        lambda: service.priced("other", ledger.id, pure(0.1)),
    ):
        with pytest.raises(LedgerNotFound):
            call()
    assert service.page("other", None, None, 10).ledgers == ()


def test_a_refused_spend_leaves_no_trace(service: LedgerService) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"trace {new_id()}")
    before = service.get(TENANT, ledger.id)
    with pytest.raises(BudgetExceeded):
        reserved(service, ledger, pure(1.5))
    assert service.get(TENANT, ledger.id) == before


def test_the_database_refuses_to_change_or_delete_an_entry(service: LedgerService, database: Database) -> None:
    ledger = opened(service, PureBudget(epsilon=1.0), f"append {new_id()}")
    for statement in ("UPDATE ledger_entries SET kind = 'x' WHERE ledger_id = :id", "DELETE FROM ledger_entries WHERE ledger_id = :id"):
        with pytest.raises(DatabaseError, match="append-only"), database.writing() as session:
            session.execute(text(statement), {"id": ledger.id})
