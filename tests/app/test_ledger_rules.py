"""Ledgers with rules: quotas below the cap, purposes, approvals by a second key, and budgets that are renewed."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from tests.app.ledgers_harness import KINDS, TENANT, databases, pure
from tests.selection import thinned
from zetadp.accountants import Release
from zetadp.accountants.filters import PureBudget, RdpSpend, RdpTargetBudget
from zetadp.app.kit.database import Database, now
from zetadp.app.ledgers import book
from zetadp.app.ledgers.entries import Entry
from zetadp.app.ledgers.errors import ApproverRefused, ReservationNotApproved, ReservationSettled, SettlerRefused
from zetadp.app.ledgers.export import as_csv, spend_rows
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.queries import check_job_rules
from zetadp.app.ledgers.requests import Expiry, ReservationRequest
from zetadp.app.ledgers.resources import Ledger, Reservation
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.ledgers.verification.replay import verify_history
from zetadp.app.tables.ledgers import LedgerUserRow
from zetadp.mechanisms import Adjacency, Laplace, Sensitivity
from zetadp.mechanisms.errors import BudgetExceeded, InvalidParameter

ANN, BEN, EVE = "ann", "ben", "eve"


@pytest.fixture(scope="module", params=thinned(KINDS, every=2))
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Database]:
    with databases(request.param, tmp_path_factory.mktemp(request.param)) as database:
        yield database


@pytest.fixture
def service(database: Database) -> LedgerService:
    return LedgerService(database, 10.0)


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The days by which the ledgers' clock is ahead."""
    ahead = [0]
    monkeypatch.setattr(book, "now", lambda: now() + timedelta(days=ahead[0]))
    for module in ("service", "verification.replay"):
        monkeypatch.setattr(f"zetadp.app.ledgers.{module}.now", lambda: now() + timedelta(days=ahead[0]))
    return ahead


def opened(service: LedgerService, name: str, budget: object = None, **more: object) -> Ledger:
    document = {"name": name, "budget": budget or PureBudget(epsilon=1.0), "adjacency": "add_remove", "unit": "record"}
    return service.create(TENANT, LedgerDefinition.model_validate(document | {"protects": "data_set"} | more), None, None)


def reserve(service: LedgerService, ledger: Ledger, spend: Spent, by: str | None = ANN, purpose: str | None = None) -> Reservation:
    return service.reserve(TENANT, ledger.id, ReservationRequest(spend=spend, purpose=purpose), by, None)


def history(service: LedgerService, ledger: Ledger) -> list[Entry]:
    return [Entry.model_validate_json(one.text) for one in service.entries(TENANT, ledger.id, 0, 1000).entries]


def check_sound(service: LedgerService, ledger: Ledger) -> None:
    assert service.verify(TENANT, ledger.id).problems == ()
    entries = service.entries(TENANT, ledger.id, 0, 1000).entries
    assert verify_history(ledger.id, [(one.text, one.sha256) for one in entries], None).problems == ()


def test_an_analyst_spends_up_to_a_share_and_all_of_them_up_to_the_cap(service: LedgerService) -> None:
    ledger = opened(service, "quotas", rules={"quotas": [{"key": ANN, "share": 0.5}, {"key": BEN, "share": 0.75}]})
    first = reserve(service, ledger, pure(0.375))
    with pytest.raises(BudgetExceeded, match=r"of the quota of key ann.*0\.25.*0\.125"):
        reserve(service, ledger, pure(0.25))
    # What wasn't released is free again, in the quota as in the budget.
    service.release(TENANT, ledger.id, first.id, ANN, None)
    service.commit(TENANT, ledger.id, reserve(service, ledger, pure(0.5)).id, pure(0.25), ANN, None)
    reserve(service, ledger, pure(0.25))
    with pytest.raises(BudgetExceeded, match="of the quota of key ann"):
        reserve(service, ledger, pure(0.001))
    for nobody in (EVE, None):
        with pytest.raises(BudgetExceeded, match=f"of the quota of key {nobody}"):
            reserve(service, ledger, pure(0.001), nobody)
        with pytest.raises(BudgetExceeded, match=f"of the quota of key {nobody}, which has none"):
            reserve(service, ledger, pure(0.0), nobody)
    # The cap: 0.5 is spent, so Ben doesn't get his 0.75.
    with pytest.raises(BudgetExceeded) as refused:
        reserve(service, ledger, pure(0.625), BEN)
    assert "quota" not in str(refused.value)
    reserve(service, ledger, pure(0.5), BEN)
    check_sound(service, ledger)


def test_a_quota_counts_where_one_order_of_several_is_enough(service: LedgerService) -> None:
    budget = RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=(8.0, 16.0))
    ledger = opened(service, "orders", budget, rules={"quotas": [{"key": ANN, "share": 0.5}]})
    limits = [float(limit) for limit in budget.limits]
    reserve(service, ledger, RdpSpend(orders=(8.0, 16.0), values=(0.4 * limits[0], 0.9 * limits[1])))
    with pytest.raises(BudgetExceeded, match="quota"):
        reserve(service, ledger, RdpSpend(orders=(8.0, 16.0), values=(0.2 * limits[0], 0.1 * limits[1])))
    check_sound(service, ledger)


def test_a_projection_is_for_the_key_that_asks(service: LedgerService) -> None:
    quotas = [{"key": ANN, "share": 0.5}, {"key": BEN, "share": 1.0}]
    ledger = opened(service, "projected quotas", PureBudget(epsilon=1.0), rules={"quotas": quotas})
    reserve(service, ledger, pure(0.25))
    event = Release(mechanism=Laplace(scale=8.0, sensitivity=Sensitivity(l1=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")))
    for key, fits in ((ANN, 2), (BEN, 6), (EVE, 0), (None, 0)):
        found = service.project(TENANT, ledger.id, event, None, key)
        assert (found.separately, found.together, found.after is None) == (fits, fits, fits == 0)
    # What costs nothing is unlimited for those who have a quota, and no other.
    assert [service.project(TENANT, ledger.id, pure(0.0), None, key).separately for key in (ANN, EVE)] == [None, 0]
    for _ in range(2):
        reserve(service, ledger, event)
    with pytest.raises(BudgetExceeded, match="of the quota of key ann"):
        reserve(service, ledger, event)


def test_a_quota_that_was_changed_in_the_tables_is_found(service: LedgerService, database: Database) -> None:
    ledger = opened(service, "tampered", rules={"quotas": [{"key": ANN, "share": 0.5}]})
    reserve(service, ledger, pure(0.25))
    forgotten = '{"reserved": ["0"], "committed": ["0"], "open": 0, "settled": 0, "period": 0}'
    with database.writing() as session:
        session.execute(update(LedgerUserRow).where(LedgerUserRow.ledger_id == ledger.id).values(sums=forgotten))
    assert "its sums must be" in service.verify(TENANT, ledger.id).problems[0]


def test_a_reservation_names_a_purpose_that_the_ledger_is_for(service: LedgerService) -> None:
    ledger = opened(service, "purposes", rules={"purposes": ["tumour model", "staffing"]})
    reserve(service, ledger, pure(0.25), purpose="staffing")
    for other in ("marketing", None):
        with pytest.raises(InvalidParameter, match="purpose must be one of tumour model, staffing"):
            reserve(service, ledger, pure(0.25), purpose=other)
    check_sound(service, ledger)


def test_another_key_approves_before_anything_is_committed(service: LedgerService) -> None:
    ledger = opened(service, "approvals", rules={"approval": "second_key"})
    made = reserve(service, ledger, pure(0.5))
    assert made.approved_by is None
    with pytest.raises(ReservationNotApproved):
        service.commit(TENANT, ledger.id, made.id, None, ANN, None)
    for no_second in (ANN, None):
        with pytest.raises(ApproverRefused):
            service.approve(TENANT, ledger.id, made.id, no_second, None)
    for _ in range(2):
        assert service.approve(TENANT, ledger.id, made.id, BEN, None).approved_by == BEN
    committed = service.commit(TENANT, ledger.id, made.id, None, ANN, None)
    assert (committed.state, committed.approved_by) == ("committed", BEN)
    with pytest.raises(ReservationSettled):
        service.approve(TENANT, ledger.id, made.id, BEN, None)
    # What was never approved can be given back, and an anonymous one can't be approved at all.
    service.release(TENANT, ledger.id, reserve(service, ledger, pure(0.25)).id, ANN, None)
    with pytest.raises(ApproverRefused):
        service.approve(TENANT, ledger.id, reserve(service, ledger, pure(0.25), None).id, BEN, None)
    assert [one.act.kind for one in history(service, ledger)].count("approved") == 1
    check_sound(service, ledger)


def test_what_two_keys_agreed_on_is_settled_by_them_and_freed_by_the_second(service: LedgerService) -> None:
    ledger = opened(service, "second key frees", rules={"approval": "second_key"})
    made = reserve(service, ledger, pure(0.5))
    with pytest.raises(SettlerRefused, match="only by the key that made it"):
        service.release(TENANT, ledger.id, made.id, BEN, None)
    service.approve(TENANT, ledger.id, made.id, BEN, None)
    for settle in (
        lambda: service.release(TENANT, ledger.id, made.id, ANN, None),
        lambda: service.commit(TENANT, ledger.id, made.id, pure(0.0), ANN, None),
    ):
        with pytest.raises(SettlerRefused, match="only by the key that approved it"):
            settle()
    with pytest.raises(SettlerRefused, match="only by the key that made or the one that approved it"):
        service.commit(TENANT, ledger.id, made.id, None, EVE, None)
    service.commit(TENANT, ledger.id, made.id, pure(0.25), BEN, None)
    freed = reserve(service, ledger, pure(0.5))
    service.approve(TENANT, ledger.id, freed.id, BEN, None)
    service.release(TENANT, ledger.id, freed.id, BEN, None)
    check_sound(service, ledger)


def test_nothing_is_approved_where_no_rule_asks_for_it(service: LedgerService) -> None:
    ledger = opened(service, "without")
    made = reserve(service, ledger, pure(0.5))
    with pytest.raises(ApproverRefused):
        service.approve(TENANT, ledger.id, made.id, BEN, None)


def test_a_renewed_budget_is_free_but_for_what_is_still_reserved(service: LedgerService, days: list[int]) -> None:
    ledger = opened(service, "quarters", renews_after_days=90, rules={"quotas": [{"key": ANN, "share": 0.75}]})
    assert ledger.renews_at == ledger.created + timedelta(days=90)
    service.commit(TENANT, ledger.id, reserve(service, ledger, pure(0.5)).id, None, ANN, None)
    open_still = reserve(service, ledger, pure(0.25))
    days[0] = 89
    with pytest.raises(BudgetExceeded):
        reserve(service, ledger, pure(0.5))
    days[0] = 200
    found = service.get(TENANT, ledger.id)
    assert found.balance is not None
    assert (found.balance.limits[0].committed, found.balance.limits[0].reserved) == (0.0, 0.25)
    assert found.renews_at == ledger.created + timedelta(days=270)
    with pytest.raises(BudgetExceeded, match="quota"):
        reserve(service, ledger, pure(0.625))
    reserve(service, ledger, pure(0.5))
    service.commit(TENANT, ledger.id, open_still.id, None, ANN, None)
    assert [one.act.kind for one in history(service, ledger)].count("renewed") == 1
    check_sound(service, ledger)


def test_what_lapses_in_a_new_period_counts_in_it(service: LedgerService, days: list[int]) -> None:
    ledger = opened(service, "lapses", renews_after_days=90)
    expiry = Expiry(seconds=100 * 86_400.0, then="spent")
    service.reserve(TENANT, ledger.id, ReservationRequest(spend=pure(0.75), expiry=expiry), ANN, None)
    days[0] = 110
    # It may have been released on day 95.
    with pytest.raises(BudgetExceeded):
        reserve(service, ledger, pure(0.5))
    assert [one.act.kind for one in history(service, ledger)] == ["opened", "reserved", "renewed", "lapsed"]
    check_sound(service, ledger)


def test_a_clock_that_was_ahead_begins_no_period_twice(service: LedgerService, days: list[int]) -> None:
    ledger = opened(service, "ahead", renews_after_days=90)
    days[0] = 91
    service.commit(TENANT, ledger.id, reserve(service, ledger, pure(0.75)).id, None, ANN, None)
    days[0] = 0
    with pytest.raises(BudgetExceeded):
        reserve(service, ledger, pure(0.5))
    reserve(service, ledger, pure(0.25))
    assert len({entry.time for entry in history(service, ledger)[-3:]}) < 3  # none is dated before the one before it
    assert "its time is ahead of this machine's clock" in service.verify(TENANT, ledger.id).problems[0]
    days[0] = 91
    check_sound(service, ledger)


def test_a_list_shows_budgets_of_the_present_period(service: LedgerService, days: list[int]) -> None:
    ledger = opened(service, "listed", renews_after_days=90)
    service.commit(TENANT, ledger.id, reserve(service, ledger, pure(0.5)).id, None, ANN, None)
    days[0] = 91
    found = next(one for one in service.page(TENANT, None, None, 200).ledgers if one.id == ledger.id)
    assert found.balance is not None
    assert (found.balance.limits[0].committed, found.renews_at) == (0.0, ledger.created + timedelta(days=180))


def test_a_renewal_before_its_time_is_found(service: LedgerService, days: list[int]) -> None:
    ledger = opened(service, "early", renews_after_days=90)
    days[0] = 91
    service.get(TENANT, ledger.id)
    entries = [(one.text, one.sha256) for one in service.entries(TENANT, ledger.id, 0, 10).entries]
    entry = Entry.model_validate_json(entries[1][0])
    early = Entry.model_validate({**dict(entry), "time": entry.time - timedelta(days=60)}).text()
    problems = verify_history(ledger.id, [entries[0], (early, entries[1][1])], None).problems
    assert any("period 1 of the budget hadn't begun" in problem for problem in problems)


def test_an_export_has_a_row_for_each_reservation(service: LedgerService, tmp_path: Path) -> None:
    ledger = opened(service, "export", rules={"purposes": ["staffing"], "approval": "second_key"})
    kept, freed = (reserve(service, ledger, pure(0.5), purpose="staffing") for _ in range(2))
    service.approve(TENANT, ledger.id, kept.id, BEN, None)
    service.commit(TENANT, ledger.id, kept.id, pure(0.25), BEN, None)
    service.release(TENANT, ledger.id, freed.id, ANN, None)
    rows = spend_rows(history(service, ledger))
    assert [(row.key, row.purpose, row.state, row.approved_by, row.limit, row.share) for row in rows] == [
        (ANN, "staffing", "committed", BEN, "epsilon", 0.25),
        (ANN, "staffing", "released", None, "epsilon", 0.0),
    ]
    head, first, *_ = as_csv(rows).splitlines()
    assert head == "entry,time,period,key,purpose,job,state,approved_by,limit,share"
    assert first.endswith(",0,ann,staffing,,committed,ben,epsilon,0.25")


def test_the_shares_of_an_export_add_up_to_what_is_used(service: LedgerService) -> None:
    budget = RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=(8.0, 16.0))
    ledger = opened(service, "several orders", budget)
    limits = [float(limit) for limit in budget.limits]
    # Of each the smaller share is 0.25, at another order: both together use 0.75 of the order that holds longer.
    for shares in ((0.25, 0.6), (0.5, 0.25)):
        reserve(service, ledger, RdpSpend(orders=(8.0, 16.0), values=tuple(a * b for a, b in zip(shares, limits, strict=True))))
    rows = spend_rows(history(service, ledger))
    assert {row.limit for row in rows} == {budget.quantities[0]}
    assert [row.share for row in rows] == pytest.approx([0.25, 0.5])


def test_what_is_still_reserved_counts_in_a_later_period_s_limit(service: LedgerService, days: list[int]) -> None:
    budget = RdpTargetBudget(epsilon=3.0, delta=1e-5, orders=(8.0, 16.0))
    ledger = opened(service, "carried orders", budget, renews_after_days=90)
    limits = [float(limit) for limit in budget.limits]

    def spent(first: float, second: float) -> RdpSpend:
        return RdpSpend(orders=(8.0, 16.0), values=(first * limits[0], second * limits[1]))

    settled, open_still = reserve(service, ledger, spent(0.1, 0.8)), reserve(service, ledger, spent(0.6, 0.1))
    service.commit(TENANT, ledger.id, settled.id, None, ANN, None)
    days[0] = 91
    reserve(service, ledger, spent(0.1, 0.5))
    # First period: 0.7 and 0.9; second, with what is open still: 0.7 and 0.6.
    rows = spend_rows(history(service, ledger))
    assert [(row.period, row.limit) for row in rows] == [(0, budget.quantities[0])] * 2 + [(1, budget.quantities[1])]
    assert [row.share for row in rows] == pytest.approx([0.1, 0.6, 0.5])
    service.release(TENANT, ledger.id, open_still.id, ANN, None)
    assert spend_rows(history(service, ledger))[2].limit == budget.quantities[0]


@pytest.mark.parametrize(
    ("changes", "told"),
    thinned(
        [
            ({"renews_after_days": 0}, "renews_after_days"),
            ({"renews_after_days": 90, "protects": "each_user"}, "renews_after_days must be absent"),
            ({"rules": {"quotas": [{"key": ANN, "share": 0.5}]}, "protects": "each_user"}, "quotas must be absent"),
            ({"rules": {"quotas": [{"key": ANN, "share": 1.5}]}}, "share"),
            ({"rules": {"quotas": [{"key": ANN, "share": 0.5}] * 2}}, "rules.quotas must be distinct"),
            ({"rules": {"purposes": ["a", "a"]}}, "rules.purposes must be distinct"),
        ],
        every=2,
    ),
)
def test_impossible_rules_are_refused(changes: dict[str, object], told: str) -> None:
    document = {"name": "scans", "budget": PureBudget(epsilon=1.0), "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    with pytest.raises(ValidationError, match=told):
        LedgerDefinition.model_validate(document | changes)


def test_a_job_is_refused_at_once_by_who_asks_and_what_for(service: LedgerService) -> None:
    definition = opened(service, "jobs", rules={"purposes": ["staffing"], "quotas": [{"key": ANN, "share": 0.5}]}).definition
    check_job_rules(definition, ANN, "staffing")
    for key in (BEN, None):
        with pytest.raises(InvalidParameter, match=f"ledger must be one in which key {key} has a quota"):
            check_job_rules(definition, key, "staffing")
    with pytest.raises(InvalidParameter, match="purpose must be one of staffing"):
        check_job_rules(definition, ANN, None)
