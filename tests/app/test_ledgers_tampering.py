"""A changed history, or a changed figure beside it, is found; and a rewritten one by whoever noted a digest."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.app.jobs_harness import AUTHORIZED, settings
from tests.app.ledgers_harness import TENANT, databases, definition, opened, pure, reserved
from zetadp.accountants.filters import PureBudget
from zetadp.app.kit.database import Database, now
from zetadp.app.ledgers.entries import digest
from zetadp.app.ledgers.errors import EntryUnreadable, LedgerDamaged
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.queries import found_ledger
from zetadp.app.ledgers.requests import Expiry, ReservationRequest
from zetadp.app.ledgers.resources import Head, Ledger
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.ledgers.sums import Sums
from zetadp.app.ledgers.verification.replay import ChainReport, verify_history
from zetadp.app.ledgers.verification.tables import verify_stored
from zetadp.app.main import create_app

Busy = tuple[Database, Ledger, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Generator[Busy]:
    """A ledger with every kind of entry, its history, and a database without the triggers that keep entries as they are."""
    with databases("sqlite", tmp_path_factory.mktemp("tampered")) as database:
        service = LedgerService(database, 10.0)
        ledger = opened(service, PureBudget(epsilon=1.0))
        first, second, third = (reserved(service, ledger, pure(0.25)) for _ in range(3))
        service.commit(TENANT, ledger.id, first.id, pure(0.125), None, None)
        service.release(TENANT, ledger.id, second.id, None, None)
        service.commit(TENANT, ledger.id, third.id, None, None, None)
        reserved(service, ledger, pure(0.25), expiry=Expiry(seconds=1000.0, then="spent"))
        service.close(TENANT, ledger.id, None, None)
        with database.writing() as session:
            for change in ("update", "delete"):
                session.connection().exec_driver_sql(f"DROP TRIGGER ledger_entries_no_{change}")
        assert service.verify(TENANT, ledger.id).verdict == "sound"
        yield database, ledger, [(entry.text, entry.sha256) for entry in service.entries(TENANT, ledger.id, 0, 100).entries]


def verified_after(busy: Busy, tampering: str) -> tuple[int, ChainReport]:
    """How many rows a statement changed, and what is found then; the change is dropped again."""
    database, ledger, _ = busy
    with database.reading() as session:
        changed = session.connection().exec_driver_sql(tampering).rowcount
        return changed, verify_stored(session, found_ledger(session, TENANT, ledger.id))


@pytest.mark.parametrize("number", range(1, 10))
@pytest.mark.parametrize(
    "tampering",
    [
        """UPDATE ledger_entries SET text = replace(text, '"by":null', '"by":"x"')""",
        "UPDATE ledger_entries SET text = substr(text, 2)",
        "UPDATE ledger_entries SET sha256 = replace(sha256, substr(sha256, 1, 1), 'x')",
        "UPDATE ledger_entries SET time = '2020-01-01 00:00:00.000000'",
        "UPDATE ledger_entries SET kind = 'x'",
        "UPDATE ledger_entries SET number = 100 + number",
        "DELETE FROM ledger_entries",
    ],
)
def test_tampering_with_any_entry_is_found(busy: Busy, tampering: str, number: int) -> None:
    changed, report = verified_after(busy, f"{tampering} WHERE number = {number}")
    assert (changed, report.verdict) == (1, "broken")
    assert report.problems


@pytest.mark.parametrize(
    "figure", ["""'"epsilon":0.25', '"epsilon":0.2'""", """'"charge":["8', '"charge":["7'""", """'"then":"spent"', '"then":"refunded"'"""]
)
def test_a_changed_figure_with_a_digest_to_match_is_found_by_the_next_entry(busy: Busy, figure: str) -> None:
    _, ledger, entries = busy
    old, new = (part.strip("'") for part in figure.split(", "))
    k = next(k for k, (text, _) in enumerate(entries) if old in text)
    text = entries[k][0].replace(old, new)
    report = verify_history(ledger.id, [*entries[:k], (text, digest(text)), *entries[k + 1 :]], None)
    assert report.verdict == "broken"
    assert any(problem.startswith(f"entry {k + 2}: the digest of the entry before it must be") for problem in report.problems)


@pytest.mark.parametrize(
    "tampering",
    [
        """UPDATE ledgers SET sums = replace(sums, '"settled": 2', '"settled": 1')""",
        "UPDATE ledgers SET head = replace(head, substr(head, 1, 1), 'x')",
        "UPDATE ledgers SET entries = entries + 1",
        "UPDATE ledgers SET state = 'open'",
        "UPDATE ledgers SET name = 'other'",
        "UPDATE ledgers SET definition = replace(definition, '1.0', '2.0')",
        "DELETE FROM ledger_lapses",
        "UPDATE ledgers SET created = '2020-01-01 00:00:00.000000'",
        "UPDATE ledgers SET next_lapse = NULL",
        "UPDATE ledgers SET next_lapse = '2120-01-01 00:00:00.000000'",
        "UPDATE ledger_lapses SET look_at = '2020-01-01 00:00:00.000000'",
        "UPDATE ledger_lapses SET look_at = '2120-01-01 00:00:00.000000'",
    ],
)
def test_tampering_with_what_is_kept_beside_the_entries_is_found(busy: Busy, tampering: str) -> None:
    changed, report = verified_after(busy, tampering)
    assert (changed, report.verdict) == (1, "broken")


@pytest.fixture
def two_reservations(tmp_path: Path) -> Generator[tuple[Database, LedgerService, Ledger, list[str]]]:
    """A ledger with two reservations, the first one approved and committed, in a database that lets entries be changed."""
    with databases("sqlite", tmp_path) as database:
        service = LedgerService(database, 10.0)
        document = definition(PureBudget(epsilon=1.0)).model_dump(mode="json") | {"rules": {"approval": "second_key"}}
        ledger = service.create(TENANT, LedgerDefinition.model_validate(document), None, None)
        request = ReservationRequest(spend=pure(0.25), expiry=Expiry(seconds=60.0, then="refunded"))
        first, second = (service.reserve(TENANT, ledger.id, request, "ann", None).id for _ in range(2))
        service.approve(TENANT, ledger.id, first, "ben", None)
        service.commit(TENANT, ledger.id, first, None, "ann", None)
        with database.writing() as session:
            session.connection().exec_driver_sql("DROP TRIGGER ledger_entries_no_update")
        yield database, service, ledger, [first, second]


@pytest.mark.parametrize(("kind", "number"), [("reserved", 2), ("approved", 4), ("committed", 5)])
@pytest.mark.parametrize("text", ["''", "substr(text, 2)", "(SELECT text FROM ledger_entries WHERE number = 1)"])
def test_reservations_that_can_be_read_are_shown_and_an_entry_that_cannot_is_named(
    two_reservations: tuple[Database, LedgerService, Ledger, list[str]], kind: str, number: int, text: str
) -> None:
    database, service, ledger, (first, second) = two_reservations
    with database.writing() as session:
        changed = f"UPDATE ledger_entries SET text = {text} WHERE number = {number} AND kind = '{kind}'"
        assert session.connection().exec_driver_sql(changed).rowcount == 1
    page = service.reservations(TENANT, ledger.id, None, None, 10)
    assert ([one.id for one in page.reservations], page.unreadable) == ([second], (number,))
    with pytest.raises(EntryUnreadable, match=f"entry {number} of the ledger's history can't be read"):
        service.reservation(TENANT, ledger.id, first)


def test_an_overdue_reservation_that_cannot_be_read_stays_reserved(
    two_reservations: tuple[Database, LedgerService, Ledger, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    database, service, ledger, (_, second) = two_reservations
    with database.writing() as session:
        session.connection().exec_driver_sql("UPDATE ledger_entries SET text = '' WHERE number = 3")
    for module in ("book", "service"):
        monkeypatch.setattr(f"zetadp.app.ledgers.{module}.now", lambda: now() + timedelta(days=1))
    balance = service.get(TENANT, ledger.id).balance
    assert balance is not None
    assert (balance.limits[0].reserved, balance.open_reservations) == (0.25, 1)
    with pytest.raises(EntryUnreadable, match="entry 3"):
        service.release(TENANT, ledger.id, second, "ann", None)


def test_a_rewritten_history_is_found_by_whoever_noted_a_digest(busy: Busy) -> None:
    """Somebody with the whole database can write a sound history anew, but not one with the digest that was noted."""
    _, ledger, entries = busy
    noted = Head(number=4, sha256=entries[3][1])
    assert verify_history(ledger.id, entries, noted).verdict == "sound"
    assert verify_history(ledger.id, entries[:3], None).verdict == "sound"
    problem = f"entry 4, as noted: expected the digest {noted.sha256}, got no such entry"
    assert verify_history(ledger.id, entries[:3], noted).problems == (problem,)
    assert "expected the digest" in verify_history(ledger.id, entries, Head(number=4, sha256="0" * 64)).problems[0]


def test_a_history_of_another_ledger_is_not_this_one_s(busy: Busy) -> None:
    assert "its ledger must be" in verify_history("x", busy[2], None).problems[0]


def test_an_empty_history_is_not_sound() -> None:
    assert verify_history("x", [], None).problems == ("ledger: it has no entry that opens it",)


def test_a_report_says_how_many_problems_it_does_not_name(busy: Busy) -> None:
    _, ledger, entries = busy
    report = verify_history(ledger.id, [(text, "0" * 64) for text, _ in entries * 3], None)
    assert len(report.problems) == 20
    assert report.further_problems > 3 * len(entries) - 20


DAMAGES = {
    "definition": ["", "{", "[]", "{}", '{"name": "scans"}', '{"budget": {"kind": "pure", "epsilon": -1}}'],
    "sums": [
        "",
        "{",
        "[]",
        "{}",
        '{"reserved": ["0"], "committed": ["0"], "open": 0, "settled": 0}',
        '{"reserved": ["0", "0"], "committed": ["0"], "open": 0, "settled": 0, "period": 0}',
        '{"reserved": ["-1"], "committed": ["0"], "open": 0, "settled": 0, "period": 0}',
        '{"reserved": ["x"], "committed": ["0"], "open": 0, "settled": 0, "period": 0}',
        '{"reserved": ["0"], "committed": ["0"], "open": null, "settled": 0, "period": 0}',
    ],
    "state": ["", "half open"],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    with TestClient(create_app(settings(tmp_path_factory.mktemp("damaged"))), base_url="http://localhost", headers=AUTHORIZED) as client:
        yield client


@pytest.mark.parametrize(("column", "text"), [(column, text) for column, texts in DAMAGES.items() for text in texts])
def test_a_damaged_ledger_is_named_with_what_to_do_and_the_others_are_served(client: TestClient, column: str, text: str) -> None:
    budget = {"budget": {"kind": "pure", "epsilon": 1.0}, "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    names = (f"{kind} {column} {DAMAGES[column].index(text)}" for kind in ("damaged", "whole"))
    damaged, whole = (client.post("/v1/ledgers", json=budget | {"name": name}).json()["id"] for name in names)
    spend = {"spend": {"kind": "pure", "epsilon": 0.25}}
    made = client.post(f"/v1/ledgers/{damaged}/reservations", json=spend).json()["id"]
    with client.app.state.database.writing() as session:  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        found_ledger(session, "default", damaged).__setattr__(column, text)
    at = f"/v1/ledgers/{damaged}"
    for answer in (
        client.get(at),
        client.get(f"{at}/reservations/{made}"),
        client.post(f"{at}/reservations", json=spend),
        client.post(f"{at}/projections", json=spend),
        client.post(f"{at}/reservations/{made}/commit", json={}),
        client.post(f"{at}/reservations/{made}/release"),
        client.post(f"{at}/close"),
    ):
        told = answer.json()
        assert (answer.status_code, told["type"], answer.headers["content-type"]) == (409, "ledger-damaged", "application/problem+json")
        assert f"the {column} of ledger '{damaged}' can't be used" in told["detail"]
        assert "restore the database from a backup" in told["detail"]
    page = client.get("/v1/ledgers?limit=2").json()
    assert ([one["id"] for one in page["ledgers"]], page["damaged"]) == ([whole], [damaged])
    report = client.get(f"{at}/verification").json()
    assert report["verdict"] == "broken"
    assert f"ledger: its {column} must be" in report["problems"][0]


def test_sums_that_hold_less_than_a_reservation_settle_nothing(tmp_path: Path) -> None:
    with databases("sqlite", tmp_path) as database:
        service = LedgerService(database, 10.0)
        ledger = opened(service, PureBudget(epsilon=1.0))
        made = reserved(service, ledger, pure(0.25))
        with database.writing() as session:
            found_ledger(session, TENANT, ledger.id).sums = Sums((1,), (0,), 1, 0).text()
        for settle in (
            lambda: service.commit(TENANT, ledger.id, made.id, None, None, None),
            lambda: service.release(TENANT, ledger.id, made.id, None, None),
        ):
            with pytest.raises(LedgerDamaged, match="the sums of ledger"):
                settle()
        assert service.verify(TENANT, ledger.id).verdict == "broken"
