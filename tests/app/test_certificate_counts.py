"""What a certificate counts of its plan: stamps, witnesses and earlier trainings, none of them twice and none too many."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.app.announced_harness import Announcing, Authority, Unfenced
from tests.app.certificate_kinds import BASELINE
from tests.app.certificates_harness import details, finished_run, lied, run_of
from tests.selection import thinned
from zetadp.app.certificates.errors import SigningKeyUnusable
from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.checkpoint import ORIGIN, sign_checkpoint
from zetadp.app.certificates.log.cosignatures import WitnessesUnreadable, cosign, witness_key, witnesses_in
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.log.merkle_proofs import Proofs, encode
from zetadp.app.certificates.log.notes import ED25519, Note, NoteKey
from zetadp.app.certificates.log.plan_evidence import _back_dated
from zetadp.app.certificates.log.service import head_of
from zetadp.app.certificates.log.time_stamps import Stamp
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.keys import jwks, signing_key
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.app.kit.database import now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificate_log import LogHeadRow
from zetadp.app.worker import announcing, witnessing
from zetadp.app.worker.announcing import have_witnessed, stamped
from zetadp.app.worker.witnessing import Witnessed, keep_head

BASE = {"name": "test", "unit": ("record",), "adjacency": ("add_remove",), "largest_epsilon": "100", "largest_delta": "0.1"}


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    folder = tmp_path_factory.mktemp("authorities")
    return Authority(folder / "one", "one"), Authority(folder / "two", "two")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    return run_of(BASELINE, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def house(clocks: tuple[Authority, Authority], run: CertificateInput, tmp_path_factory: pytest.TempPathFactory) -> Generator[Announcing]:
    """A service that asks one authority under two addresses."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(clocks[0].serving()) for _ in range(2)]
        made = Announcing(Settings(data_dir=tmp_path_factory.mktemp("house"), time_stamps=",".join(addresses)), run)
        yield made
        made.database.close()


def kept(house: Announcing, size: int, names: list[str], stamps: list[str], keys: dict[str, Ed25519PrivateKey]) -> LogHeadRow:
    """The head of this size after these witnesses' signatures and these stamps on it were kept too."""
    with house.database.writing() as session:
        head = head_of(session, house.settings, size)
        lines = [cosign(name, keys[name], head.text, 1_800_000_000).line for name in names]
        signed = Witnessed(head, sign_checkpoint(head, signing_key(house.settings)) + "".join(lines), len(lines))
        return keep_head(session, signed, stamps)


# Stamps and witnesses


def test_an_authority_under_two_addresses_counts_once(house: Announcing) -> None:
    _, announced = house.began()
    assert announced.time_stamps == 1
    assert len(stamped(house.settings, "a text\n")) == 1


def test_what_signs_a_head_later_is_not_counted_at_a_later_attempt(house: Announcing, clocks: tuple[Authority, Authority]) -> None:
    job_id, announced = house.began()
    with house.database.reading() as session:
        text = head_of(session, house.settings, announced.head_size).text
    row = kept(house, announced.head_size, ["a", "b"], [clocks[1].stamp(text)], {name: Ed25519PrivateKey.generate() for name in "ab"})
    assert len(row.time_stamps) == 2
    assert house.began(job_id, attempt=2) == (job_id, announced)
    assert (announced.time_stamps, announced.cosignatures) == (1, 0)


@pytest.mark.slow
def test_of_one_head_that_two_workers_had_signed_every_signer_is_kept_once(house: Announcing, clocks: tuple[Authority, Authority]) -> None:
    _, announced = house.began()
    keys = {name: Ed25519PrivateKey.generate() for name in "abc"}
    with house.database.reading() as session:
        text = head_of(session, house.settings, announced.head_size).text
    first = kept(house, announced.head_size, ["a", "b"], [clocks[0].stamp(text)], keys)
    lines = Note.read(first.checkpoint).signatures
    second = kept(house, announced.head_size, ["c", "b", "a"], [clocks[0].stamp(text), clocks[1].stamp(text)], keys)
    found = Note.read(second.checkpoint).signatures
    assert found[: len(lines)] == lines  # what a beacon was taken from stays first
    assert [(one.name, one.key_id) for one in found[1:]] == [(name, witness_key(name, keys[name]).id) for name in "abc"]
    assert (len(second.time_stamps), second.time_stamps[0]) == (2, first.time_stamps[0])


@pytest.mark.slow
def test_no_head_has_more_stamps_than_proofs_hold(
    house: Announcing, monkeypatch: pytest.MonkeyPatch, clocks: tuple[Authority, Authority]
) -> None:
    monkeypatch.setattr(witnessing, "MOST_STAMPS", 1)
    with house.database.writing() as session:
        head = head_of(session, house.settings, journal.append(session, "test", "stamps", b"an entry", now()) + 1)
        signed = Witnessed(head, sign_checkpoint(head, signing_key(house.settings)), 0)
        assert len(keep_head(session, signed, [clock.stamp(head.text) for clock in clocks]).time_stamps) == 1
        assert len(keep_head(session, signed, [clocks[1].stamp(head.text)]).time_stamps) == 1


@pytest.mark.slow
def test_a_beacon_is_one_of_what_is_kept(house: Announcing, monkeypatch: pytest.MonkeyPatch, clocks: tuple[Authority, Authority]) -> None:
    # Two plans under one head: the second one's worker finds it stamped already.
    monkeypatch.setattr(announcing, "is_repeatable", lambda *_: True)
    before: list[str] = []

    def late(_settings: Settings, text: str) -> list[str]:
        with house.database.reading() as session:
            size = int(text.split("\n")[1])
            assert head_of(session, house.settings, size).text == text
        before.extend(kept(house, size, [], [clocks[0].stamp(text)], {}).time_stamps)
        return [clocks[0].stamp(text)]

    with monkeypatch.context() as patch:
        patch.setattr(announcing, "stamped", late)
        _, announced = house.began()
    assert announced.beacon == announcing.beacon_of(before, house_checkpoint(house, announced.head_size))


def house_checkpoint(house: Announcing, size: int) -> str:
    with house.database.reading() as session:
        row = session.get(LogHeadRow, size)
        assert row is not None
        return row.checkpoint


def test_proofs_with_fewer_stamps_or_signatures_than_the_certificate_states_are_refused(house: Announcing) -> None:
    envelope, certificate_id = house.ended(*house.began())
    proofs = house.proofs(certificate_id)
    without = Proofs(certificate=proofs.certificate, plan=proofs.plan)
    report = verify(envelope, jwks(house.settings), None, house.evidence(without))
    assert report.verdict == "invalid"
    assert details(report, "time_stamps") == "the certificate says that 1 authority stamped the head, the proofs have 0"
    boast = lied(envelope, house.settings, {"announced.cosignatures": 3})
    found = verify(boast, jwks(house.settings), None, house.evidence(proofs))
    assert "says that 3 witnesses signed the head of its plan, the proofs have no signatures" in details(found, "witnesses")
    assert verify(envelope, jwks(house.settings), None, house.evidence(proofs)).verdict == "valid"


@pytest.mark.parametrize(
    ("kind", "names", "expected"), thinned([(ED25519, "a", "is a log's"), (4, "ab", "the same key"), (4, "a" * 32, "at most")], every=3)
)
def test_a_key_counts_for_one_witness(tmp_path: Path, kind: int, names: str, expected: str) -> None:
    shared = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    raws = [shared if len(names) < 3 else Ed25519PrivateKey.generate().public_key().public_bytes_raw() for _ in names]
    lines = [
        f"http://127.0.0.1:9 {NoteKey(f'{name}{index}', kind, raw).text}" for index, (name, raw) in enumerate(zip(names, raws, strict=True))
    ]
    (tmp_path / "witnesses").write_text("\n".join(lines))
    with pytest.raises(WitnessesUnreadable, match=expected):
        witnesses_in(tmp_path / "witnesses")


def test_no_witness_is_named_like_a_log(tmp_path: Path) -> None:
    # Its signature would stand in each head under the name that the log's own is known by, and nobody could read that head.
    key = witness_key(f"{ORIGIN}{'A' * 43}", Ed25519PrivateKey.generate())
    (tmp_path / "witnesses").write_text(f"http://127.0.0.1:9 {key.text}")
    with pytest.raises(WitnessesUnreadable, match="is named like a log of certificates"):
        witnesses_in(tmp_path / "witnesses")


@pytest.mark.slow
def test_an_error_that_nobody_expects_is_not_taken_for_a_witness_that_does_not_answer(
    house: Announcing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = house.settings.model_copy(update={"witnesses": tmp_path / "none"})
    attempts: announcing.Attempts = Unfenced(house.database)  # pyright: ignore[reportAssignmentType]
    have_witnessed(attempts, settings)  # no such file: logged, and nothing else

    def fails(error: Exception) -> None:
        def witnessed(*_: object) -> Witnessed:
            raise error

        monkeypatch.setattr(announcing, "witnessed", witnessed)
        have_witnessed(attempts, settings)

    fails(SigningKeyUnusable("path", "reason"))
    with pytest.raises(ZeroDivisionError):
        fails(ZeroDivisionError())


# Earlier trainings


def test_only_what_is_about_the_same_unit_and_adjacency_is_added_up(tmp_path: Path) -> None:
    private = finished_run(tmp_path / "one")
    house = Announcing(Settings(data_dir=tmp_path / "data"), private)
    for _ in range(2):
        house.began()
    zeroed = private.plan.model_dump(mode="json")
    _rename(zeroed, "add_remove", "zero_out")
    other = replace(private, plan=type(private.plan).model_validate(zeroed))
    _, unlike = house.began(run=other)
    _, announced = house.began()
    house.began(run=run_of(BASELINE, tmp_path / "none"))
    envelope, _ = house.ended(*house.began())
    house.database.close()
    assert counted(unlike) == (None, None, 2, 0)
    assert announced.earlier is not None
    assert (announced.earlier.delta, announced.earlier.unlike, announced.earlier.unguaranteed) == ("0.00002", 1, 0)
    said = describe(read(envelope))
    assert "5 planned by this service, 0 of them certified. Those with a guarantee about the same unit and adjacency (3) add up" in said
    assert "only a ledger gives a bound; one whose budget is renewed gives it for each period alone." in said
    assert "at delta 0.00003" in said
    assert (
        "With a guarantee about another unit or adjacency, which isn't in any sum: 1. "
        "Without a guarantee, or without one that could be computed in time: 1."
    ) in said


def counted(facts: AnnouncedFacts) -> tuple[str | None, str | None, int, int]:
    assert facts.earlier is not None
    return facts.earlier.epsilon, facts.earlier.delta, facts.earlier.unlike, facts.earlier.unguaranteed


def _rename(node: object, before: str, after: str) -> None:
    if isinstance(node, dict):
        for name, value in node.items():
            if value == before:
                node[name] = after
            _rename(value, before, after)
    elif isinstance(node, list):
        for value in node:
            _rename(value, before, after)


def test_a_number_that_nobody_proved_meets_no_limit_of_earlier_runs(house: Announcing) -> None:
    demanded = Policy.model_validate(BASE | {"most_earlier_runs": 1000})
    envelope, certificate_id = house.ended(*house.began())
    for evidence, is_met in ((Evidence(), False), (Evidence(encode(house.proofs(certificate_id))), True)):
        policy = verify(envelope, jwks(house.settings), None, evidence, demanded).policy
        assert policy is not None
        assert [rule.is_met for rule in policy.rules if rule.name == "most_earlier_runs"] == [is_met]


def test_what_a_passed_check_of_the_plan_leaves_open_is_said(house: Announcing) -> None:
    envelope, certificate_id = house.ended(*house.began())
    report = verify(envelope, jwks(house.settings), None, house.evidence(house.proofs(certificate_id)))
    assert "that training began after it was logged is the signer's word" in details(report, "plan_logged", Status.PASSED)
    assert "by then: 1 time-stamping authority and no witness" in describe(read(envelope))


# Times


@pytest.mark.parametrize(
    ("finished", "seconds", "expected"),
    thinned(
        [
            ("9999-12-31T23:59:59Z", 10**12, "less than"),
            ("0001-01-01T00:00:00Z", 10**12, "after the run had ended"),
            ("9999-12-31T23:59:59-12:00", 0, ""),
            ("0001-01-01T00:00:00+14:00", 0, "after the run had ended"),
        ],
        every=3,
    ),
)
def test_any_time_that_a_certificate_may_state_is_compared(house: Announcing, finished: str, seconds: int, expected: str) -> None:
    envelope, _ = house.ended(*house.began())
    certificate = read(lied(envelope, house.settings, {"job.finished": finished, "environment.training_seconds": seconds}))
    found = _back_dated(certificate, Stamp(datetime.fromisoformat("2026-01-01T00:00:00+00:00"), "clock"))
    assert expected in found
    assert bool(found) is bool(expected)
