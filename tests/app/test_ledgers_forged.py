"""Histories that somebody wrote anew, every digest right: what the service would never have written is found."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tests.app.ledgers_harness import gaussian, pure
from zetadp.accountants.filters import Price, PureBudget
from zetadp.app.ledgers.entries import (
    BEFORE_THE_FIRST,
    Act,
    Approved,
    Charge,
    Committed,
    Entry,
    EntryRecord,
    Fate,
    Lapsed,
    Opened,
    Released,
    Renewed,
    Reserved,
    act_in,
    digest,
)
from zetadp.app.ledgers.errors import CostTakesTooLong
from zetadp.app.ledgers.export import as_csv, entries_in, spend_rows
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.pricing import price_of
from zetadp.app.ledgers.resources import Head
from zetadp.app.ledgers.verification import prices
from zetadp.app.ledgers.verification.replay import verify_history
from zetadp.mechanisms.errors import InvalidParameter

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ANN, BEN, EVE = "ann", "ben", "eve"
Written = tuple[float, str | None, Act]
"""The day, the key, and what happened."""


def ledger(**more: object) -> LedgerDefinition:
    document = {"name": "scans", "budget": PureBudget(epsilon=1.0), "adjacency": "add_remove", "unit": "record", "protects": "data_set"}
    return LedgerDefinition.model_validate(document | more)


def steps(part: float) -> Charge:
    return (int(part * PureBudget(epsilon=1.0).grids[0].limit),)


def reserved(
    charge: Charge,
    spend: Spent | None = None,
    days: float | None = None,
    then: Fate | None = None,
    analyst: str | None = None,
    job: str | None = None,
) -> Reserved:
    expires = None if days is None else BEGIN + timedelta(days=days)
    about = {"users": (), "left_out": (), "job": job, "analyst": analyst, "expires": expires, "then": then}
    return Reserved.model_validate({"reservation": "r", "spend": spend or pure(0.5), "charge": charge} | about)


def history(definition: LedgerDefinition, acts: Sequence[Written]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    previous = BEFORE_THE_FIRST
    for number, (day, by, act) in enumerate([(0.0, None, Opened(definition=definition)), *acts], 1):
        time = BEGIN + timedelta(days=day)
        text = Entry(ledger="x", number=number, time=time, by=by, previous=previous, act=act).text()
        previous = digest(text)
        found.append((text, previous))
    return found


def problems(definition: LedgerDefinition, *acts: Written) -> tuple[str, ...]:
    return verify_history("x", history(definition, acts), None).problems


HALF = steps(0.5)
RENEWED = ledger(renews_after_days=90)
QUOTAS = ledger(rules={"quotas": [{"key": ANN, "share": 0.5}]})
APPROVALS = ledger(rules={"approval": "second_key"})
MADE, AGREED = (1.0, ANN, reserved(HALF)), (2.0, BEN, Approved(reservation="r"))
ALL = Committed(reservation="r", released=None, charge=HALF)
PART = Committed(reservation="r", released=pure(0.25), charge=steps(0.25))


@pytest.mark.parametrize(
    ("definition", "acts"),
    [
        (ledger(), [MADE, (2.0, EVE, PART)]),
        (RENEWED, [MADE, (91.0, None, Renewed(period=1)), (91.0, ANN, ALL)]),
        (QUOTAS, [(1.0, ANN, reserved(HALF, analyst=ANN)), (2.0, ANN, Released(reservation="r"))]),
        (APPROVALS, [MADE, AGREED, (3.0, ANN, ALL)]),
        (APPROVALS, [MADE, AGREED, (3.0, BEN, PART)]),
        (APPROVALS, [MADE, (3.0, ANN, Released(reservation="r"))]),
        (APPROVALS, [(1.0, ANN, reserved(HALF, job="j")), AGREED, (3.0, None, PART)]),
        (ledger(), [(1.0, ANN, reserved((HALF[0] - HALF[0] // 10**10,)))]),
    ],
)
def test_what_the_service_writes_is_sound(definition: LedgerDefinition, acts: list[Written]) -> None:
    assert problems(definition, *acts) == ()


@pytest.mark.parametrize(
    ("definition", "acts", "told"),
    [
        (ledger(), [(1.0, ANN, reserved(steps(0.25)))], "entry 2: its charge is less than its spend costs"),
        (ledger(), [(1.0, ANN, reserved(HALF, gaussian(5.0)))], "entry 2: its spend has no price"),
        (ledger(), [MADE, (2.0, ANN, Committed(reservation="r", released=pure(0.5), charge=(0,)))], "entry 3: its charge is less than"),
        (ledger(), [MADE, (2.0, ANN, Committed(reservation="r", released=pure(0.25), charge=steps(0.125)))], "entry 3: its charge is less"),
        (ledger(), [MADE, (0.5, ANN, ALL)], "entry 3: its time is before that of an earlier entry"),
        (ledger(), [(10**5, ANN, reserved(HALF))], "entry 2: its time is ahead of this machine's clock"),
        (RENEWED, [(10**5, None, Renewed(period=1))], "entry 2: its time is ahead of this machine's clock"),
        (RENEWED, [(91.0, ANN, Renewed(period=1))], "entry 2: the service itself writes that, not key ann"),
        (RENEWED, [MADE, (91.0, ANN, ALL)], "entry 3: period 1 of the budget had begun, and no entry says so"),
        (
            RENEWED,
            [(1.0, ANN, reserved(HALF, days=80, then="spent")), (91.0, None, Lapsed(reservation="r", then="spent"))],
            "entry 3: period",
        ),
        (
            ledger(),
            [(1.0, ANN, reserved(HALF, days=80, then="refunded")), (2.0, None, Lapsed(reservation="r", then="refunded"))],
            "lapses before",
        ),
        (ledger(), [MADE, (2.0, None, Lapsed(reservation="r", then="spent"))], "entry 3: it lapses as spent, reserved was None"),
        (ledger(), [(1.0, ANN, reserved(HALF, analyst=ANN)), (2.0, ANN, ALL)], "entry 2: it counts in a quota, and the ledger has none"),
        (APPROVALS, [(1.0, ANN, reserved(HALF, analyst=ANN)), (2.0, ANN, Released(reservation="r"))], "entry 2: it counts in a quota"),
        (QUOTAS, [(1.0, EVE, reserved((0,), pure(0.0), analyst=EVE))], "of the quota of key eve, which has none"),
        (ledger(), [(1.0, ANN, reserved((*HALF, 0)))], "entry 2: it must charge each limit of the budget, 1, got 2"),
        (QUOTAS, [(1.0, ANN, reserved((), analyst=ANN))], "entry 2: it must charge each limit of the budget, 1, got 0"),
        (ledger(), [MADE, (2.0, ANN, Committed(reservation="r", released=None, charge=()))], "entry 3: it must charge each limit"),
        (APPROVALS, [MADE, (2.0, EVE, Released(reservation="r"))], "only by the key that made it"),
        (APPROVALS, [MADE, AGREED, (3.0, ANN, Released(reservation="r"))], "only by the key that approved it"),
        (APPROVALS, [MADE, AGREED, (3.0, ANN, PART)], "only by the key that approved it"),
        (APPROVALS, [MADE, AGREED, (3.0, None, PART)], "only by the key that approved it"),
        (APPROVALS, [(1.0, ANN, reserved(HALF, job="j")), (3.0, None, ALL)], "entry 3: it was committed without an approval"),
        (APPROVALS, [MADE, AGREED, (3.0, EVE, ALL)], "only by the key that made or the one that approved it"),
        (ledger(), [MADE, (3.0, None, ALL)], "entry 3: it was settled without a key, and no job made it"),
        (ledger(), [MADE, (3.0, None, Released(reservation="r"))], "entry 3: it was settled without a key, and no job made it"),
        (APPROVALS, [MADE, (3.0, ANN, ALL)], "entry 3: it was committed without an approval"),
    ],
)
def test_what_the_service_would_not_have_written_is_found(definition: LedgerDefinition, acts: list[Written], told: str) -> None:
    found = problems(definition, *acts)
    assert any(told in problem for problem in found), found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[Spent]:
    """Spends whose price is never computed in time, though the time that it may take is used."""
    found: list[Spent] = []

    def price(definition: LedgerDefinition, spend: Spent, seconds: float) -> Price:
        if spend not in found:
            return price_of(definition, spend, seconds)
        ends = time.thread_time() + seconds
        while time.thread_time() <= ends:
            pass
        raise CostTakesTooLong(seconds)

    monkeypatch.setattr(prices, "price_of", price)
    return found


def test_a_price_that_takes_long_hides_nothing_and_is_told(slow: list[Spent]) -> None:
    slow.append(pure(0.5))
    other = Reserved.model_validate({**dict(reserved(steps(0.125), pure(0.25))), "reservation": "s"})
    written = history(ledger(), [MADE, (2.0, ANN, other), (3.0, ANN, ALL), (3.0, ANN, ALL)])
    report = verify_history("x", written, None, 0.5)
    assert report.problems == ("entry 5: no open reservation 'r'", "entry 3: its charge is less than its spend costs")
    assert (report.not_recomputed, report.first_not_recomputed, report.not_read) == (1, (2,), 0)


def test_what_left_anything_out_is_not_sound(slow: list[Spent]) -> None:
    slow.append(pure(0.5))
    written = history(ledger(), [MADE, (3.0, ANN, ALL)])
    report = verify_history("x", written, None, 0.2)
    assert (report.verdict, report.problems, report.not_recomputed) == ("incomplete", (), 1)
    noted = Head(number=3, sha256="0" * 64)
    report = verify_history("x", written, noted, 0.0)
    assert (report.verdict, report.entries, report.not_read, report.balance) == ("incomplete", 0, 3, None)
    slow.clear()
    report = verify_history("x", written, None, 10.0)
    assert (report.verdict, report.not_recomputed, report.not_read) == ("sound", 0, 0)


def exported(definition: LedgerDefinition, *acts: Written) -> str:
    return as_csv(spend_rows(entries_in(text for text, _ in history(definition, acts))))


@pytest.mark.parametrize(
    ("acts", "told"),
    [
        ([(1.0, ANN, ALL)], "reservations are made before they end, got 'none for entry 2'"),
        ([(1.0, ANN, Approved(reservation="r"))], "reservations are made before they end, got 'none for entry 2'"),
        ([(1.0, ANN, reserved((*HALF, 0)))], "charges are of 1 limits, got 'another one in entry 2'"),
        ([MADE, (2.0, ANN, Committed(reservation="r", released=None, charge=()))], "charges are of 1 limits, got 'another one in entry 2'"),
    ],
)
def test_an_export_of_what_is_not_sound_is_refused(acts: list[Written], told: str) -> None:
    with pytest.raises(InvalidParameter, match=told):
        exported(ledger(), *acts)


@pytest.mark.parametrize("key", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n =1"])
def test_a_spreadsheet_computes_nothing_of_an_export(key: str) -> None:
    (_, row) = csv.reader(io.StringIO(exported(ledger(), (1.0, key, reserved(HALF))), newline=""))
    assert row[3] == "'" + "".join(one if one.isprintable() else " " for one in key)


@pytest.mark.parametrize("text", ["", "{}", '{"kind": "reserved"}'])
def test_a_text_that_is_no_entry_is_found_and_shown_as_what_it_is(text: str) -> None:
    first, *_ = history(ledger(), [])
    found = verify_history("x", [first, (text, "0" * 64)], None).problems
    assert any("entry 2: it can't be read" in problem for problem in found), found
    record = EntryRecord(number=2, time=BEGIN, sha256="0" * 64, text=text, act=act_in(text))
    assert record.act.kind == "unreadable"
    with pytest.raises(InvalidParameter, match='got "entry 2, which can\'t"'):
        spend_rows(entries_in([first[0], text]))
