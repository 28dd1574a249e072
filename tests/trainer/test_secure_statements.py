r"""Statements of secure sums: which ones count, and what is kept of those that don't."""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer.federation_harness import NUMBERS
from tests.trainer.secure_harness import PARAMETERS, SITES, Sites, expected, total
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.sites.forms import form_of
from zetadp.trainer.sites.messages import FIRST, Statement, digest, opened, sealed
from zetadp.trainer.sites.record import FederationRecord, checked_statements


@pytest.mark.parametrize("step", ["masked", "agreed", "revealed"])
def test_statements_of_a_round_that_gave_nothing_dont_count(tmp_path: Path, step: str) -> None:
    sites = Sites(tmp_path)
    rounds = sites.rounds()
    sites.lost = {(1, step), (2, step)}
    assert rounds.round(1, PARAMETERS) == {}
    sites.lost = set()
    rounds.round(2, PARAMETERS)
    drew = [0, 3] if step == "masked" else range(SITES)
    records = rounds.record.finished(tmp_path)
    assert [(one.arrived, one.uncounted) for one in records] == [(1, int(site in drew)) for site in range(SITES)]
    content = (tmp_path / "statements.jsonl").read_bytes()
    assert (
        checked_statements(sites.proposal.federation.sites, sites.proposal.digest, 2, form_of(sites.proposal.plan, NUMBERS), content)[0]
        == records
    )


def test_a_masked_statement_that_comes_late_is_kept_and_not_counted(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    rounds = sites.rounds()
    sites.late = {(1, "masked")}
    assert sorted(rounds.round(1, PARAMETERS)) == [0, 2, 3]
    assert sites.charged() == [1] * SITES
    again = FederationRecord(tmp_path / "run", sites.proposal.federation).records()
    assert [(one.arrived, one.uncounted, one.charged) for one in again] == [(1, 0, 1), (0, 1, 1), (1, 0, 1), (1, 0, 1)]


def test_masked_statements_before_a_stop_are_kept_and_the_round_is_over(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    rounds = sites.rounds()
    sites.late = {(1, "masked")}
    rounds.should_stop = lambda: sites.time > 0.0  # while it waits for the one that is late
    with pytest.raises(TrainingStopped):
        rounds.round(1, PARAMETERS)
    again, sites.late = sites.rounds(), set()
    assert [one.uncounted for one in again.record.records()] == [1, 0, 1, 1]
    assert again.round(1, PARAMETERS) == {}
    assert total(again.round(2, PARAMETERS)) == expected([0, 1, 2, 3])
    assert [(one.arrived, one.uncounted) for one in again.record.records()] == [(1, 1)] * SITES


def test_statements_whose_sum_a_crash_kept_from_counting_count_afterwards(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    sites.rounds().round(1, PARAMETERS)
    path = tmp_path / "run" / "statements.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:SITES]))
    again = sites.rounds()
    assert [one.uncounted for one in again.record.records()] == [1] * SITES
    again.round(1, PARAMETERS)
    for record in (again.record, FederationRecord(tmp_path / "run", sites.proposal.federation)):
        assert [(one.arrived, one.uncounted) for one in record.records()] == [(1, 0)] * SITES


def _statement(sites: Sites, site: str, number: int, payload: bytes) -> Statement:
    return Statement(
        proposal=sites.proposal.digest,
        site=site,
        round=number,
        request=FIRST,
        numbers=NUMBERS,
        width=8,
        size=NUMBERS,
        payload=digest(payload),
        previous=FIRST,
        charged=number,
    )


def test_what_counts_has_the_width_of_the_sums(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    sites.rounds().round(1, PARAMETERS)
    content, plan = (tmp_path / "run" / "statements.jsonl").read_bytes(), sites.proposal.plan
    counted = content.splitlines(keepends=True)[SITES]
    asked = sites.proposal.federation.sites, sites.proposal.digest, 2
    for parameters in (NUMBERS, None):
        assert sum(one.arrived for one in checked_statements(*asked, form_of(plan, parameters), counted)[0]) == 1
    # As many integers as another network has; and the sites' own number of them, in the bytes of another one's sums.
    for form in (form_of(plan, NUMBERS + 1), lambda _numbers, width: form_of(plan, None)(10**6, width)):
        with pytest.raises(InvalidParameter, match="as many integers, of as many bits"):
            checked_statements(*asked, form, counted)


@contextmanager
def _little_memory() -> Generator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_statements_that_dont_count_take_no_memory(tmp_path: Path) -> None:
    sites = Sites(tmp_path)
    payload, left = bytes(2**20), list(range(32))
    plain, wrong = sites.receive, _statement(sites, "b", 1, payload)

    def receive(seconds: float) -> bytes | None:
        return sealed(wrong, payload, sites.keys[1]) if left and left.pop() else plain(seconds)

    sites.receive = receive
    with _little_memory():
        assert total(sites.rounds().round(1, PARAMETERS)) == expected([0, 1, 2, 3])


@pytest.mark.parametrize("is_late", [False, True])
def test_a_record_of_many_rounds_holds_no_integers(tmp_path: Path, *, is_late: bool) -> None:
    sites = Sites(tmp_path)
    record = sites.rounds().record
    with _little_memory():
        for number in range(1, 16):
            payload = bytes(2**20)
            statement = _statement(sites, "a", number, payload)
            found = opened(sealed(statement, payload, sites.keys[0]))
            if is_late:
                record.late(statement, found)
            else:
                record.state({0: (statement, found)})
