r"""A coordinator's rounds: what counts of what sites send, whoever is missing, doubled or wrong; and a coordinator that dies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trainer.federation_harness import spec_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.sites.coding import coded
from zetadp.trainer.sites.forms import form_of, integers_released
from zetadp.trainer.sites.keys import is_signed, public_text
from zetadp.trainer.sites.messages import DOMAIN, FIRST, Refusal, RoundRequest, Statement, digest, opened, read, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import FederationRecord, checked_statements
from zetadp.trainer.sites.rounds import Rounds

NUMBERS = 3
PARAMETERS = np.zeros(NUMBERS, np.float32)
Reply = Callable[[RoundRequest, bytes], list[bytes]]
"""A request and its header's bytes -> what a site sends."""


class Sites:
    """A line to three sites that answer at once, each as its function says."""

    def __init__(self) -> None:
        self.coordinator = Ed25519PrivateKey.generate()
        self.keys = [Ed25519PrivateKey.generate() for _ in range(3)]
        spec = spec_of(public_text(self.coordinator), [public_text(key) for key in self.keys])
        self.proposal = Proposal.of(spec, spec.plan())
        self.replies: list[Reply] = [self.answering(number) for number in range(3)]
        self.sent: list[bytes] = []
        self.late: list[int] = []
        self.time = 0.0
        self._waiting: list[bytes | None] = []

    def statement(self, by: int, /, request: RoundRequest, asked: str, integers: list[int], **changes: object) -> bytes:
        """A site's signed answer."""
        width, payload = coded(np.array(integers))
        header = {
            "proposal": request.proposal,
            "site": "abc"[by],
            "round": request.round,
            "request": asked,
            "numbers": len(integers),
            "width": width,
            "size": len(payload),
            "payload": digest(payload),
            "previous": FIRST,
            "charged": request.round,
        }
        return sealed(Statement.model_validate(header | changes), payload, self.keys[by])

    def answering(self, site: int) -> Reply:
        """An honest site: its number in every place."""
        return lambda request, asked: [self.statement(site, request, digest(asked), [site + 1] * NUMBERS)]

    def refusing(self, site: int) -> Reply:
        """A site without budget."""
        refusal = {"site": "abc"[site], "reason": "budget", "charged": 0}
        return lambda request, _asked: [
            sealed(Refusal.model_validate(refusal | {"proposal": request.proposal, "round": request.round}), b"", self.keys[site])
        ]

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)
        found = opened(frame)
        assert found.is_by(public_text(self.coordinator))
        for late in (False, True):
            for number, reply in enumerate(self.replies):
                sent = reply(read(RoundRequest, found), found.header)
                if number in self.late:
                    # Its answer to the round before comes first of all, and its answer to this round last of all.
                    self._waiting = [*sent[:1], *self._waiting, None] if not late else [*self._waiting, *sent[1:]]
                elif not late:
                    self._waiting += sent

    def receive(self, seconds: float) -> bytes | None:
        found = self._waiting.pop(0) if self._waiting else None
        self.time += seconds if found is None else 0.0
        return found

    def rounds(self, workdir: Path, *, stop: bool = False) -> Rounds:
        return Rounds(
            proposal=self.proposal,
            key=self.coordinator,
            line=self,
            record=FederationRecord(workdir, self.proposal.federation),
            numbers=NUMBERS,
            should_stop=lambda: stop,
            round_seconds=1.0,
            first_seconds=2.0,
            now=lambda: self.time,
        )


def _arrived(sites: Sites, workdir: Path, number: int = 1) -> dict[int, list[int]]:
    found = sites.rounds(workdir).round(number, PARAMETERS)
    return {site: integers.tolist() for site, integers in found.items()}


def _silent(_request: RoundRequest, _asked: bytes) -> list[bytes]:
    return []


def test_every_sites_integers_arrive(tmp_path: Path) -> None:
    assert _arrived(Sites(), tmp_path) == {0: [1, 1, 1], 1: [2, 2, 2], 2: [3, 3, 3]}


def test_a_site_that_vanished_or_refuses_counts_as_zero(tmp_path: Path) -> None:
    sites = Sites()
    sites.replies[0], sites.replies[2] = _silent, sites.refusing(2)
    assert _arrived(sites, tmp_path) == {1: [2, 2, 2]}


WRONG = ("large numbers", "another shape", "another round", "another request", "another proposal", "another's name", "another's key")


@pytest.mark.parametrize("what", [*WRONG, "bytes", "bits"])
def test_what_is_wrong_counts_as_zero(tmp_path: Path, what: str) -> None:
    sites = Sites()

    def wrong(request: RoundRequest, asked: bytes) -> list[bytes]:  # noqa: PLR0911
        number = digest(asked)
        match what:
            case "large numbers":
                return [sites.statement(1, request, number, [1, -(2**52), 1])]
            case "another shape":
                return [sites.statement(1, request, number, [2] * (NUMBERS + 1))]
            case "another round":
                return [sites.statement(1, request, number, [2] * NUMBERS, round=request.round + 1)]
            case "another request":
                return [sites.statement(1, request, "0" * 64, [2] * NUMBERS)]
            case "another proposal":
                return [sites.statement(1, request, number, [2] * NUMBERS, proposal="0" * 64)]
            case "another's name":
                return [sites.statement(1, request, number, [2] * NUMBERS, site="z")]
            case "another's key":
                sites.keys[1], kept = Ed25519PrivateKey.generate(), sites.keys[1]
                frame = sites.statement(1, request, number, [2] * NUMBERS)
                sites.keys[1] = kept
                return [frame]
            case "bits":
                return [sites.statement(1, request, number, [2] * NUMBERS)[:-1] + b"\x07"]
            case _:
                return [b"", b"NaN", bytes(1000)]

    sites.replies[1] = wrong
    assert _arrived(sites, tmp_path) == {0: [1, 1, 1], 2: [3, 3, 3]}


def test_an_answer_that_comes_twice_counts_once_and_the_first_counts(tmp_path: Path) -> None:
    sites = Sites()
    sites.replies[0] = lambda request, asked: [sites.statement(0, request, digest(asked), [value] * NUMBERS) for value in (5, 5, 6)]
    assert _arrived(sites, tmp_path)[0] == [5, 5, 5]


def test_a_site_can_lie_about_nothing_but_its_own_integers(tmp_path: Path) -> None:
    # Its number of units is no part of an answer, and the divisor is the plan's.
    fields = set(Statement.model_fields) - {"kind", "proposal", "site", "round", "request", "payload", "previous", "charged"}
    assert fields == {"numbers", "width", "size"}
    sites = Sites()
    sites.replies[0] = lambda request, asked: [sites.statement(0, request, digest(asked), [2**51] * NUMBERS)]
    assert _arrived(sites, tmp_path)[0] == [2**51] * NUMBERS


def test_a_missing_site_isnt_waited_for_until_it_is_back(tmp_path: Path) -> None:
    sites = Sites()
    rounds = sites.rounds(tmp_path)
    kept, sites.replies[1] = sites.replies[1], _silent
    assert set(rounds.round(1, PARAMETERS)) == {0, 2}
    rounds.round_seconds = 3600.0
    assert set(rounds.round(2, PARAMETERS)) == {0, 2}
    # It comes back with its answer to the round before, and is waited for again.
    sites.replies[1] = lambda request, asked: [
        *kept(RoundRequest.model_validate(dict(request) | {"round": 2}), asked),
        *kept(request, asked),
    ]
    sites.late = [*sites.late, 1]
    assert set(rounds.round(3, PARAMETERS)) == {0, 1, 2}


def test_a_round_that_nobody_answers_ends_the_run(tmp_path: Path) -> None:
    sites = Sites()
    sites.replies = [_silent, _silent, sites.refusing(2)]
    with pytest.raises(InvalidParameter, match="at least one that answers, got '1 that refuse, 2 that are silent'"):
        sites.rounds(tmp_path).round(1, PARAMETERS)


def test_a_stop_in_a_round_leaves_it_to_be_asked_again_with_the_same_bytes(tmp_path: Path) -> None:
    sites = Sites()
    sites.replies = [_silent] * 3
    with pytest.raises(TrainingStopped):
        sites.rounds(tmp_path, stop=True).round(4, PARAMETERS)
    sites.replies = [sites.answering(number) for number in range(3)]
    assert len(_arrived(sites, tmp_path, 4)) == 3
    assert sites.sent[0] == sites.sent[1]


def test_a_coordinator_that_died_takes_finished_rounds_from_its_own_record(tmp_path: Path) -> None:
    sites = Sites()
    sites.replies[2] = _silent
    first = _arrived(sites, tmp_path)
    sites.replies = [_silent] * 3
    assert _arrived(sites, tmp_path) == first == {0: [1, 1, 1], 1: [2, 2, 2]}
    assert len(sites.sent) == 1
    FederationRecord(tmp_path, sites.proposal.federation).forget(1)
    assert FederationRecord(tmp_path, sites.proposal.federation).kept(1) is None


def test_an_answer_that_charges_what_cannot_be_counts_as_zero(tmp_path: Path) -> None:
    """It would else make every statement's check fail, and with it the certificate of all."""
    for charged in (10**6, 2):
        sites = Sites()
        sites.replies[1] = lambda request, asked, sites=sites, charged=charged: [
            sites.statement(1, request, digest(asked), [2] * NUMBERS, charged=charged)
        ]
        workdir = tmp_path / str(charged)
        workdir.mkdir()
        assert _arrived(sites, workdir).keys() == {0, 2}


def test_another_proposals_refusals_end_nothing(tmp_path: Path) -> None:
    sites = Sites()
    honest = list(sites.replies)

    def elicited(site: int) -> Reply:
        refusal = Refusal.model_validate({"site": "abc"[site], "reason": "unreadable", "charged": 0, "proposal": "0" * 64, "round": 0})
        return lambda request, asked: [sealed(refusal, b"", sites.keys[site]), *honest[site](request, asked)]

    sites.replies = [elicited(site) for site in range(3)]
    assert _arrived(sites, tmp_path).keys() == {0, 1, 2}


def test_the_record_names_every_site_and_its_last_statement(tmp_path: Path) -> None:
    sites = Sites()
    sites.replies[2] = _silent
    _arrived(sites, tmp_path)
    with (tmp_path / "statements.jsonl").open("a") as file:
        file.write('{"statement": "cut o')
    _arrived(sites, tmp_path, 2)
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    found = FederationRecord(tmp_path, sites.proposal.federation).finished(artifacts)
    assert [(site.name, site.arrived, site.charged) for site in found] == [("a", 2, 2), ("b", 2, 2), ("c", 0, None)]
    lines = [json.loads(line) for line in (artifacts / "statements.jsonl").read_text().splitlines()]
    assert digest(lines[-1]["statement"].encode()) == found[1].statement
    for line in lines:
        key = sites.keys["ab".index(json.loads(line["statement"])["site"])]
        assert is_signed(public_text(key), bytes.fromhex(line["signature"]), DOMAIN + line["statement"].encode())


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"statement": "", "signature": "", "counts": 1}', b'{"statement": 1}'], ids=["deep", "number", "part"]
)
def test_a_line_that_is_no_statement_is_said_to_be_none(line: bytes) -> None:
    sites = Sites()
    with pytest.raises(InvalidParameter, match=r"a line of statements\.jsonl"):
        checked_statements(sites.proposal.federation.sites, sites.proposal.digest, 2, form_of(sites.proposal.plan, None), line)


def _late(sites: Sites, site: int, rounds: Rounds, **changes: object) -> None:
    """One site says nothing in the first round, and in the second one its answer to the first comes late, changed."""
    asked: list[tuple[RoundRequest, bytes]] = []
    honest = sites.replies[site]

    def silent(request: RoundRequest, header: bytes) -> list[bytes]:
        asked.append((request, header))
        return []

    sites.replies[site] = silent
    rounds.round(1, PARAMETERS)

    def answers(request: RoundRequest, header: bytes) -> list[bytes]:
        (first, about), *_ = asked
        return [sites.statement(site, first, digest(about), [9] * NUMBERS, **changes), *honest(request, header)]

    sites.replies[site] = answers
    rounds.round(2, PARAMETERS)


def test_a_statement_that_comes_late_is_kept_and_not_counted(tmp_path: Path) -> None:
    sites = Sites()
    rounds = sites.rounds(tmp_path)
    _late(sites, 1, rounds)
    rounds.record.forget(2)  # nothing but its own file is left of it
    _, late, _ = FederationRecord(tmp_path, sites.proposal.federation).finished(tmp_path)
    assert (late.arrived, late.uncounted, late.charged) == (1, 1, 2)
    content = (tmp_path / "statements.jsonl").read_bytes()
    records, gaps = checked_statements(
        sites.proposal.federation.sites, sites.proposal.digest, 2, form_of(sites.proposal.plan, None), content
    )
    assert records[1] == late
    assert len(gaps) == 3  # each statement names none before it, which the second one of each site should
    assert content.count(b'"counts": false') == 1


@pytest.mark.parametrize("lie", [{"charged": 2, "round": 2}, {"charged": 7, "round": 7}, {"proposal": "0" * 64}])
def test_a_late_statement_that_cannot_be_is_dropped(tmp_path: Path, lie: dict[str, object]) -> None:
    sites = Sites()
    rounds = sites.rounds(tmp_path)
    _late(sites, 1, rounds, **lie)
    found = rounds.record.finished(tmp_path)
    checked_statements(
        sites.proposal.federation.sites,
        sites.proposal.digest,
        2,
        form_of(sites.proposal.plan, None),
        (tmp_path / "statements.jsonl").read_bytes(),
    )
    assert (found[1].arrived, found[1].uncounted) == (1, 0)


def test_statements_that_a_crash_kept_from_being_written_are_written_afterwards(tmp_path: Path) -> None:
    sites = Sites()
    _arrived(sites, tmp_path)
    kept = (tmp_path / "statements.jsonl").read_text()
    (tmp_path / "statements.jsonl").write_text(kept[: kept.index("\n") + 20])
    FederationRecord(tmp_path, sites.proposal.federation)
    assert (tmp_path / "statements.jsonl").read_text() == kept


def test_a_round_is_on_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{handle}").removeprefix(str(tmp_path)).split(".")[0])
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    _arrived(Sites(), tmp_path)
    assert flushed == ["/rounds/", "/rounds", "/statements"]


@pytest.mark.parametrize(("numbers", "counts", "fits"), [(4, True, True), (3, True, False), (3, False, True)])
def test_what_counts_has_as_many_integers_as_the_plan(numbers: int, *, counts: bool, fits: bool) -> None:
    """Three real numbers have four integers where noise is complex."""
    sites = Sites()
    request = RoundRequest(proposal=sites.proposal.digest, round=1, numbers=NUMBERS, payload="0" * 64)
    found = opened(sites.statement(0, request, FIRST, [1] * numbers))
    line = json.dumps({"statement": found.header.decode(), "signature": found.signature.hex(), "counts": counts}).encode()
    for parameters in (NUMBERS, None):
        asked = sites.proposal.federation.sites, sites.proposal.digest, 2, form_of(sites.proposal.plan, parameters), line
        if fits or parameters is None:
            assert checked_statements(*asked)[0][0].charged == 1
        else:
            with pytest.raises(InvalidParameter, match="as many integers, of as many bits, as the plan's sums have"):
                checked_statements(*asked)


@pytest.mark.parametrize(("numbers", "is_complex", "expected"), [(5, True, 6), (6, True, 6), (5, False, 5)])
def test_complex_noise_comes_in_pairs(numbers: int, is_complex: bool, expected: int) -> None:
    assert integers_released(numbers, is_complex=is_complex) == expected
