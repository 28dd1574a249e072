"""Plans that were logged before the first step: proofs, time stamps, earlier trainings, and every way of pretending."""

from __future__ import annotations

import base64
import random
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete

from tests.app.announced_harness import Announcing, Authority
from tests.app.certificate_kinds import BASELINE
from tests.app.certificates_harness import details, finished_run, lied, run_of
from tests.selection import thinned
from zetadp.app.certificates.facts.report import Status, VerificationReport
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log.entries import CERTIFICATE, certificate_entry, plan_entry, plan_statement_of
from zetadp.app.certificates.log.journal import content_of, size_of
from zetadp.app.certificates.log.merkle_proofs import InclusionProof, Proofs
from zetadp.app.certificates.log.revocation_list import Reason
from zetadp.app.certificates.log.revocations import revoke
from zetadp.app.certificates.log.time_stamps import StampRefused, check_stamp
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.keys import jwks, rotate, signing_key
from zetadp.app.certificates.verification.verify import read, read_statement, verify
from zetadp.app.jobs.events import process_started
from zetadp.app.kit.database import now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.certificate_log import AnnouncedPlanRow
from zetadp.app.tables.jobs import JobEventRow, JobRow
from zetadp.app.worker import announcing
from zetadp.app.worker.announcing import NotAnnounced

BASE = {"name": "test", "unit": ("record",), "adjacency": ("add_remove",), "largest_epsilon": "100", "largest_delta": "0.1"}


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "clock")


@pytest.fixture(scope="module")
def other_clock(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "other", "other clock")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CertificateInput:
    """Of a training without protection, whose figures take no time to recompute."""
    return run_of(BASELINE, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def house(clock: Authority, run: CertificateInput, tmp_path_factory: pytest.TempPathFactory) -> Generator[Announcing]:
    with clock.serving() as address:
        made = Announcing(Settings(data_dir=tmp_path_factory.mktemp("house"), time_stamps=address, least_time_stamps=1), run)
        yield made
        made.database.close()


@pytest.fixture(scope="module")
def certified(house: Announcing) -> tuple[bytes, Proofs]:
    """A training whose plan was the third of its data set, and what proves it."""
    house.ended(*house.began())
    house.began()  # and never heard of again
    envelope, certificate_id = house.ended(*house.began())
    return envelope, house.proofs(certificate_id)


def demand(clock: Authority | None = None, **more: object) -> Policy:
    stamps = {} if clock is None else {"time_stamps": {"least": 1, "authorities": (clock.pem,)}}
    return Policy.model_validate(BASE | {"plan_logged": "required"} | stamps | more)


def verified(house: Announcing, envelope: bytes, proofs: Proofs, policy: Policy | None = None) -> VerificationReport:
    return verify(envelope, jwks(house.settings), None, house.evidence(proofs), policy)


# What honest runs show


def test_a_plan_is_proved_to_have_been_logged_and_stamped(house: Announcing, certified: tuple[bytes, Proofs], clock: Authority) -> None:
    report = verified(house, *certified, demand(clock))
    assert report.verdict == "valid"
    assert "plan 3 of data set" in details(report, "plan_logged", Status.PASSED)
    assert "UTC by CN=clock" in details(report, "time_stamps", Status.PASSED)


def test_earlier_plans_are_counted_also_those_that_never_came_to_a_certificate(certified: tuple[bytes, Proofs]) -> None:
    announced = read(certified[0]).announced
    assert announced is not None
    assert announced.number == 3
    assert announced.earlier is not None
    assert (announced.earlier.certified, announced.earlier.unguaranteed) == (1, 2)
    assert "2 planned by this service, 1 of them certified" in describe(read(certified[0]))


def test_what_earlier_plans_guarantee_is_added_up(house: Announcing, tmp_path: Path) -> None:
    private = finished_run(tmp_path / "files")
    before = Announcing(Settings(data_dir=tmp_path / "data"), private)
    for _ in range(2):
        before.began()
    _, announced = before.began()
    before.database.close()
    assert announced.earlier is not None
    envelope = before.ended(*before.began())[0]
    claim = read(envelope).guarantee
    assert claim.kind == "approximate_dp"
    assert float(announced.earlier.epsilon) == pytest.approx(2 * float(claim.epsilon), rel=1e-6)
    assert float(announced.earlier.epsilon) >= 2 * float(claim.epsilon) * (1 - 1e-12)
    assert (announced.earlier.delta, announced.earlier.certified, announced.earlier.unguaranteed) == ("0.00002", 0, 0)


def test_another_split_is_the_same_data_set_and_another_tenant_is_not(house: Announcing, tmp_path: Path) -> None:
    fresh = Announcing(Settings(data_dir=tmp_path / "data"), run_of(BASELINE, tmp_path / "one"))
    _, first = fresh.began()
    _, second = fresh.began(run=run_of(BASELINE | {"data": {**BASELINE["data"], "split_seed": 7}}, tmp_path / "other"))  # pyright: ignore
    fresh.database.close()
    assert (first.number, second.number, second.data_set == first.data_set) == (1, 2, True)


def test_the_log_holds_tags_numbers_and_digests_and_nothing_else(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    announced = read(certified[0]).announced
    assert announced is not None
    with house.database.reading() as session:
        kind, tag, number, digest = content_of(session, announced.index).decode().splitlines()
    assert (kind, tag, number, len(digest)) == ("zetadp-plan", announced.data_set, "3", 64)


def test_a_later_attempt_of_the_same_plan_is_no_further_training(house: Announcing) -> None:
    job_id, first = house.began()
    assert house.began(job_id, attempt=2) == (job_id, first)


def test_an_attempt_with_other_code_logs_its_plan_again(house: Announcing, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, first = house.began()
    monkeypatch.setattr(announcing, "code_manifest", lambda: b"other code")
    _, second = house.began(job_id, attempt=2)
    assert (second.attempt, second.number) == (2, first.number + 1)


def test_a_plan_that_changed_after_training_began_is_not_logged(house: Announcing, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, first = house.began()
    house.trained(job_id, attempt=1)
    assert house.began(job_id, attempt=2) == (job_id, first)
    with house.database.reading() as session:
        before = size_of(session)
    monkeypatch.setattr(announcing, "code_manifest", lambda: b"other code")
    with pytest.raises(
        NotAnnounced, match="training began at start 1 of the job, and its plan, data, code, charge or noise key has changed"
    ):
        house.began(job_id, attempt=3)
    with house.database.reading() as session:
        assert size_of(session) == before


def test_a_plan_is_not_taken_up_again_after_training_under_another(house: Announcing, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, _ = house.began()
    with monkeypatch.context() as patch:
        patch.setattr(announcing, "code_manifest", lambda: b"other code")
        house.began(job_id, attempt=2)
    house.trained(job_id, attempt=2)
    with pytest.raises(NotAnnounced, match="training began at start 2"):
        house.began(job_id, attempt=3)


def test_what_is_written_to_a_log_before_any_process_is_no_beginning(house: Announcing) -> None:
    with house.database.writing() as session:
        session.add(JobRow(id="launched", state="running", created=now(), document={}))
        session.flush()
        for number, line in enumerate(("worker zetadp-launched: running", "read 100 records"), start=1):
            session.add(JobEventRow(job_id="launched", number=number, attempt=number - 1, kind="log", time=now(), data={"line": line}))
    assert house.began("launched", attempt=2)[1].attempt == 2
    with house.database.writing() as session:
        row = JobEventRow(job_id="launched", number=3, attempt=2, kind="log", time=now(), data={"line": process_started(2).line})
        session.add(row)
        session.execute(delete(AnnouncedPlanRow).where(AnnouncedPlanRow.job_id == "launched"))
    with pytest.raises(NotAnnounced, match="training began at start 2"):
        house.began("launched", attempt=3)


def test_training_that_began_without_a_logged_plan_gets_none(house: Announcing) -> None:
    with house.database.writing() as session:
        session.add(JobRow(id="unplanned", state="running", created=now(), document={}))
    house.trained("unplanned", attempt=1)
    with pytest.raises(NotAnnounced, match="training began at start 1"):
        house.began("unplanned", attempt=2)


@pytest.mark.slow
def test_a_head_that_nobody_stamped_before_its_worker_was_lost_is_stamped_by_the_next(
    house: Announcing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_settings: Settings, _text: str) -> list[str]:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(announcing, "stamped", lost)
        with pytest.raises(ZeroDivisionError):
            house.began()
    with house.database.reading() as session:
        before = size_of(session)
    _, announced = house.began(house.newest, attempt=2)
    assert (announced.time_stamps, announced.attempt, announced.head_size) == (1, 1, before)


def test_without_enough_stamps_nothing_begins(run: CertificateInput, tmp_path: Path) -> None:
    deaf = Announcing(Settings(data_dir=tmp_path, time_stamps="http://127.0.0.1:9", least_time_stamps=1), run)
    with pytest.raises(NotAnnounced, match="no time-stamping authorities stamped the log with its plan, and at least 1 must"):
        deaf.began()
    deaf.database.close()


def test_a_certificate_whose_plan_was_not_logged_says_so(envelope: bytes, house: Announcing) -> None:
    assert "not logged before the first step, so nothing shows" in describe(read(envelope))


def test_policies_refuse_what_was_not_announced(house: Announcing, certified: tuple[bytes, Proofs], clock: Authority) -> None:
    envelope, proofs = certified
    without = verified(house, envelope, Proofs(certificate=proofs.certificate), demand(clock, most_earlier_runs=1))
    assert without.policy is not None
    assert [rule.name for rule in without.policy.rules if not rule.is_met][-3:] == ["plan_logged", "time_stamps", "most_earlier_runs"]


# Pretending: signed by the service's own key, so that only the log and the clock speak


@pytest.mark.parametrize(
    "changes",
    thinned(
        [
            {"announced.index": 0},
            {"announced.number": 1},
            {"announced.data_set": "0" * 32},
            {"announced.attempt": 2},
            {"announced.head_size": 99},
            {"announced.earlier": {"certified": 2, "unlike": 0, "unguaranteed": 0}},
            {"job.id": "another"},
            {"ledger": {"ledger": "a" * 32, "reservation": "b" * 32, "entry": 1, "sha256": "0" * 64}},
        ],
        every=2,
    ),
)
def test_what_the_certificate_says_of_its_plan_is_what_was_logged(
    house: Announcing, certified: tuple[bytes, Proofs], changes: dict[str, object]
) -> None:
    envelope, proofs = certified
    report = verified(house, lied(envelope, house.settings, changes), proofs)
    assert report.verdict == "invalid"
    assert details(report, "plan_logged") or details(report, "log")


def test_another_plans_entry_is_not_its_own(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    _, certificate_id = house.ended(*house.began())
    stolen = Proofs(certificate=certified[1].certificate, plan=house.proofs(certificate_id).plan, time_stamps=certified[1].time_stamps)
    report = verified(house, certified[0], stolen)
    assert "the proof is of entry" in details(report, "plan_logged")


def test_a_plan_can_be_certified_once_with_what_it_was_logged_for(house: Announcing, run: CertificateInput, tmp_path: Path) -> None:
    # A replay: a second training passes the first one's announcement off as its own.
    job_id, announced = house.began()
    other = replace(run_of(BASELINE | {"steps": 41}, tmp_path), started=run.started)  # pyright: ignore
    envelope, certificate_id = house.ended(job_id, announced, run=other)
    report = verified(house, envelope, house.proofs(certificate_id))
    assert report.verdict == "invalid"
    assert "it isn't proved that the plan was logged" in details(report, "plan_logged")


def test_a_plan_that_was_logged_after_its_certificate_is_found_out(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    # Logged late, at the end of the log, and named in a certificate that is before it.
    _, late = house.began()
    envelope = lied(certified[0], house.settings, {"announced": late.model_dump(mode="json")})
    assert verified(house, envelope, certified[1]).verdict == "invalid"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"job.finished": "2026-01-02T03:05:00Z"}, "after the run had ended by the certificate's own word"),
        ({"environment.training_seconds": 86_400}, "is less than the 86400 s that it trained"),
    ],
)
def test_a_run_that_was_over_when_its_plan_was_stamped_is_found_out(
    house: Announcing, certified: tuple[bytes, Proofs], clock: Authority, changes: dict[str, object], expected: str
) -> None:
    envelope, proofs = certified
    forged = lied(envelope, house.settings, changes)
    report = verified(house, forged, proofs, demand(clock))
    assert expected in details(report, "time_stamps")


def test_stamps_by_others_on_other_heads_or_twice_by_one_do_not_count(
    house: Announcing, certified: tuple[bytes, Proofs], clock: Authority, other_clock: Authority
) -> None:
    envelope, proofs = certified
    assert proofs.plan is not None
    head = InclusionProof.read(proofs.plan).checkpoint.split("\n\n")[0] + "\n"
    both = demand(time_stamps={"least": 2, "authorities": (clock.pem, other_clock.pem)})
    cases = {
        "a stranger's": ((other_clock.stamp(head),), demand(clock)),
        "on another head": ((clock.stamp(head.replace("\n", "0\n", 1)),), demand(clock)),
        "one twice": ((clock.stamp(head), clock.stamp(head)), both),
    }
    for name, (stamps, policy) in cases.items():
        given = Proofs(certificate=proofs.certificate, plan=proofs.plan, time_stamps=stamps)
        report = verified(house, envelope, given, policy)
        assert details(report, "time_stamps"), name
    two = Proofs(certificate=proofs.certificate, plan=proofs.plan, time_stamps=(other_clock.stamp(head), *proofs.time_stamps))
    assert "and 1 more stamped it" in details(verified(house, envelope, two, both), "time_stamps", Status.PASSED)


@pytest.mark.slow
def test_every_changed_byte_of_a_stamp_is_refused(certified: tuple[bytes, Proofs], clock: Authority) -> None:
    proofs = certified[1]
    assert proofs.plan is not None
    head = InclusionProof.read(proofs.plan).checkpoint.split("\n\n")[0] + "\n"
    stamp = base64.b64decode(proofs.time_stamps[0])
    known = check_stamp(proofs.time_stamps[0], head, [clock.pem])
    chosen = random.Random(7)
    for place in chosen.sample(range(len(stamp)), 60):
        changed = base64.b64encode(stamp[:place] + bytes([stamp[place] ^ (1 << chosen.randrange(8))]) + stamp[place + 1 :]).decode()
        try:
            found = check_stamp(changed, head, [clock.pem])
        except StampRefused:
            continue
        assert found == known  # bytes that carry nothing: the answer's free text or an encoding of the same


@pytest.mark.parametrize("stamp", thinned(["A", "AAAAA", "AA", "AAA=="], every=4))
def test_proofs_with_a_stamp_that_is_not_base64_are_answered(
    house: Announcing, certified: tuple[bytes, Proofs], clock: Authority, stamp: str
) -> None:
    envelope, proofs = certified
    given = Proofs(certificate=proofs.certificate, plan=proofs.plan, time_stamps=(stamp,))
    assert "stamped the head, the proofs have 0" in details(verified(house, envelope, given, demand(clock)), "time_stamps")
    with pytest.raises(StampRefused, match="isn't an authority's answer"):
        check_stamp(stamp, "", (clock.pem,))


def test_a_stolen_key_signs_no_plan_into_the_past(run: CertificateInput, tmp_path: Path) -> None:
    house = Announcing(Settings(data_dir=tmp_path), run)
    envelope, certificate_id = house.ended(*house.began())
    stolen = house.proofs(certificate_id)
    key = signing_key(house.settings)
    rotate(house.settings)
    with house.database.writing() as session:
        revoke(session, house.settings, key.public.kid, Reason.COMPROMISED)
    report = verified(house, envelope, stolen)
    assert "which was revoked as compromised" in details(report, "plan_logged")
    house.database.close()


def test_entries_follow_from_what_is_signed(house: Announcing, certified: tuple[bytes, Proofs]) -> None:
    statement = read_statement(certified[0])
    planned, announced = plan_statement_of(statement), statement.predicate.announced
    assert planned is not None
    assert announced is not None
    with house.database.reading() as session:
        assert content_of(session, announced.index) == plan_entry(planned)
    assert certificate_entry(b"", None).decode().splitlines()[:2] == [CERTIFICATE, "-"]
