"""A job and its reservation are stored together and end together: what it has or may have released is committed, the rest is free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.app.certificate_kinds import FEDERATED, SITES
from tests.app.fake_child import Order
from tests.app.job_charges.harness import BUDGET, STEPS, prepared, reservation, share, started, submitted, told
from tests.app.jobs_harness import serving, spec, state, submit, wait_until, working
from tests.app.jobs_harness import settings as served
from tests.app.ledgers_harness import TENANT, definition
from zetadp.accountants.filters import RdpBudget, ZcdpBudget
from zetadp.app.certificates.verification.verify import read
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.charges import charge_of, spend_of_job
from zetadp.app.jobs.document import TrainingDocument
from zetadp.app.jobs.resources import JobCharge, JobSubmission
from zetadp.app.kit.database import Database
from zetadp.app.ledgers.errors import LedgerClosed, LedgerNotFound, ReservationHeld
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.resources import Ledger
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.ledgers.states import ReservationState
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer import RuntimeSpec, load_train
from zetadp.trainer.child import failure_reason
from zetadp.trainer.errors import TrainingDiverged
from zetadp.trainer.specs.report import CheckpointWritten, Failed, Finished, Progress, Started, Stopped, TrainingEvent


def test_a_job_is_queued_together_with_its_reservation(jobs: JobService, ledgers: LedgerService, ledger: Ledger) -> None:
    waiting = jobs.submit(JobSubmission.model_validate({"spec": spec(), "ledger": ledger.id}), None)
    assert (waiting.state, waiting.charge) == (JobState.PREPARING, JobCharge(ledger=ledger.id, reservation=None))
    assert ledgers.reservations(TENANT, ledger.id, None, None, 10).reservations == ()
    job = prepared(jobs, waiting)
    assert job.state is JobState.QUEUED
    found = reservation(ledgers, jobs, job.id)
    assert (found.state, found.job, found.expires) == (ReservationState.RESERVED, job.id, None)
    assert jobs.submit(JobSubmission.model_validate({"spec": spec()}), None).charge is None


def test_a_certificate_is_told_that_a_ledger_is_renewed(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, database: Database
) -> None:
    renewed = LedgerDefinition.model_validate(dict(ledger.definition) | {"name": f"renewed {ledger.id}", "renews_after_days": 30})
    told = [submitted(jobs, one) for one in (ledger, ledgers.create(TENANT, renewed, None, None))]
    with database.reading() as session:
        charges = [charge_of(session, job.id) for job in told]
    assert [charge and charge.renews_after_days for charge in charges] == [None, 30]


def test_a_job_that_does_not_fit_fails_with_what_is_left_and_never_starts(
    database: Database, jobs: JobService, ledgers: LedgerService, ledger: Ledger
) -> None:
    first = submitted(jobs, ledger)
    with database.reading() as session:
        spend = spend_of_job(session, TENANT, first.id)
    more = ledgers.project(TENANT, ledger.id, spend, None, None).separately
    assert more is not None
    for _ in range(more):
        submitted(jobs, ledger)
    before = ledgers.verify(TENANT, ledger.id)
    job = submitted(jobs, ledger)
    assert (job.state, job.attempt, job.charge) == (JobState.FAILED, 0, JobCharge(ledger=ledger.id, reservation=None))
    assert job.failure is not None
    assert "of the budget remains" in job.failure
    assert ledgers.verify(TENANT, ledger.id) == before
    jobs.act(first.id, Action.CANCEL)
    jobs.act(job.id, Action.RETRY)
    assert prepared(jobs, job).state is JobState.QUEUED


def test_the_same_submission_twice_is_charged_once(jobs: JobService, ledgers: LedgerService, ledger: Ledger) -> None:
    submission = JobSubmission.model_validate({"spec": spec(), "ledger": ledger.id})
    first, second = (prepared(jobs, jobs.submit(submission, ledger.id)) for _ in range(2))
    assert first.id == second.id
    assert len(ledgers.reservations(TENANT, ledger.id, None, None, 10).reservations) == 1


def test_a_job_that_was_never_taken_up_releases_everything(jobs: JobService, ledgers: LedgerService, ledger: Ledger) -> None:
    job = submitted(jobs, ledger)
    jobs.act(job.id, Action.CANCEL)
    assert reservation(ledgers, jobs, job.id).state is ReservationState.RELEASED
    assert ledgers.verify(TENANT, ledger.id).verdict == "sound"


@pytest.mark.parametrize(
    ("events", "spent"),
    [
        ((Started(resumed_from_step=0), CheckpointWritten(step=5), Stopped(step=8)), 8 / STEPS),
        # What counts is what was executed, not what lies in the last checkpoint that was told of.
        ((Started(resumed_from_step=0), CheckpointWritten(step=5), Failed(reason="no", executed=9)), 9 / STEPS),
        ((Started(resumed_from_step=0), Failed(reason="no", executed=0)), 1 / STEPS),
        ((Started(resumed_from_step=7), Failed(reason="no", executed=7)), 7 / STEPS),
        # It doesn't say how far it came: any number of steps may have been executed since.
        ((Started(resumed_from_step=0), CheckpointWritten(step=5), Failed(reason="no")), 1.0),
        ((Started(resumed_from_step=7), Failed(reason="no")), 1.0),
        # It was killed, or its end is unknown: a checkpoint may have been written that nobody heard of.
        ((Started(resumed_from_step=0), CheckpointWritten(step=5)), 1.0),
        ((), 1.0),
        # All was done, and then refused.
        ((Started(resumed_from_step=0), CheckpointWritten(step=STEPS), Finished()), 1.0),
    ],
    ids=[
        "stopped",
        "diverged",
        "failed at once",
        "diverged once more",
        "failed",
        "failed after a resumption",
        "killed",
        "silent",
        "refused",
    ],
)
def test_a_failed_job_commits_what_it_has_or_may_have_released(
    jobs: JobService,
    ledgers: LedgerService,
    ledger: Ledger,
    attempts: Attempts,
    token: str,
    events: tuple[TrainingEvent, ...],
    spent: float,
) -> None:
    job = submitted(jobs, ledger)
    attempt = started(attempts, token)
    told(attempts, attempt, *events)
    attempts.fail(attempt, "it failed")
    found = reservation(ledgers, jobs, job.id)
    assert found.state is ReservationState.COMMITTED
    assert share(found) == pytest.approx(spent, rel=1e-12)
    assert (found.released is None) == (spent == 1.0)
    assert ledgers.verify(TENANT, ledger.id).verdict == "sound"


@pytest.mark.parametrize("end", [Stopped(step=8), Failed(reason="no", executed=9)], ids=["stopped", "failed"])
def test_sites_may_have_released_more_than_a_coordinator_says(
    jobs: JobService, ledgers: LedgerService, attempts: Attempts, token: str, request: pytest.FixtureRequest, end: TrainingEvent
) -> None:
    """A request that was out when the run stopped is answered, and so were those of an attempt that was killed past its checkpoint."""
    wide = ledgers.create(
        TENANT, definition(RdpBudget(orders=(8.0,), values=(100.0,)), f"sites {abs(hash(request.node.name))}"), None, None
    )
    over_sites = {name: value for name, value in spec(**FEDERATED | SITES).items() if value is not None}
    job = prepared(jobs, jobs.submit(JobSubmission.model_validate({"spec": over_sites, "ledger": wide.id}), None))
    attempt = started(attempts, token)
    told(attempts, attempt, Started(resumed_from_step=0), end)
    attempts.fail(attempt, "it failed")
    assert share(reservation(ledgers, jobs, job.id)) == 1.0


def test_a_run_that_a_learning_rate_makes_diverge_pays_for_every_step_that_its_end_is_an_output_of(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str, tmp_path: Path
) -> None:
    """Divergence as a way to look: the end tells how far a walk of so many releases went, and no checkpoint is due before it."""
    steered = {"optimizer": {"kind": "sgd", "learning_rate": 1e37}, "clipping_bound": 20.0, "evaluation": {"kind": "none"}}
    job = submitted(jobs, ledger, **steered, reproducible=True, seed=7)
    runtime = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=3600.0)
    for _ in range(2):
        attempt, events = started(attempts, token), list[TrainingEvent]()
        assert isinstance(attempt.document, TrainingDocument)
        spec, plan = attempt.document.spec, attempt.document.plan
        with pytest.raises(TrainingDiverged) as diverged:
            load_train(spec)(spec, plan, runtime, tmp_path / "run", report=events.append, should_stop=lambda: False)
        told(attempts, attempt, *events, Failed(reason=failure_reason(diverged.value), executed=diverged.value.step))
        attempts.fail(attempt, "it diverged")
        assert 2 < diverged.value.step < STEPS
        assert share(reservation(ledgers, jobs, job.id)) == pytest.approx(diverged.value.step / STEPS, rel=1e-12)
        jobs.act(job.id, Action.RETRY)  # another look has its own price, and shows the same


def test_a_success_commits_the_whole_plan(jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str) -> None:
    job = submitted(jobs, ledger)
    attempt = started(attempts, token)
    told(attempts, attempt, Started(resumed_from_step=0), Progress(step=3, steps=STEPS, epsilon=0.1, delta=1e-5, seconds=0.1))
    attempts.succeed(attempt, lambda _session: [])
    assert share(reservation(ledgers, jobs, job.id)) == 1.0


def test_an_end_that_is_rolled_back_settles_nothing(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str
) -> None:
    job = submitted(jobs, ledger)
    attempt = started(attempts, token)

    def refuse(_session: object) -> list[Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attempts.succeed(attempt, refuse)
    assert reservation(ledgers, jobs, job.id).state is ReservationState.RESERVED
    assert jobs.get(job.id).state is JobState.RUNNING
    attempts.fail(attempt, "it failed")


def test_a_job_that_is_queued_again_keeps_its_reservation(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str
) -> None:
    job = submitted(jobs, ledger)
    attempt = started(attempts, token)
    told(attempts, attempt, Started(resumed_from_step=0), Stopped(step=8))
    attempts.stopped(attempt)
    assert reservation(ledgers, jobs, job.id).state is ReservationState.RESERVED
    jobs.act(job.id, Action.CANCEL)
    assert share(reservation(ledgers, jobs, job.id)) == pytest.approx(8 / STEPS, rel=1e-12)


def test_a_job_that_is_tried_again_is_charged_anew(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str
) -> None:
    job = submitted(jobs, ledger)
    attempt = started(attempts, token)
    told(attempts, attempt, Started(resumed_from_step=0), Stopped(step=8))
    attempts.fail(attempt, "it failed")
    first = reservation(ledgers, jobs, job.id)
    jobs.act(job.id, Action.RETRY)
    second = reservation(ledgers, jobs, job.id)
    assert (second.state, second.charge, second.id == first.id) == (ReservationState.RESERVED, first.charge, False)
    jobs.act(job.id, Action.CANCEL)  # nobody took it up again
    assert reservation(ledgers, jobs, job.id).state is ReservationState.RELEASED
    ledgers.close(TENANT, ledger.id, None, None)
    with pytest.raises(LedgerClosed):
        jobs.act(job.id, Action.RETRY)
    assert jobs.get(job.id).state is JobState.CANCELLED


def test_a_job_s_reservation_is_settled_by_the_job_alone(jobs: JobService, ledgers: LedgerService, ledger: Ledger) -> None:
    job = submitted(jobs, ledger)
    found = reservation(ledgers, jobs, job.id)
    with pytest.raises(ReservationHeld, match=job.id):
        ledgers.release(TENANT, ledger.id, found.id, None, None)
    with pytest.raises(ReservationHeld):
        ledgers.commit(TENANT, ledger.id, found.id, None, None, None)
    with pytest.raises(LedgerNotFound):
        ledgers.release("other", ledger.id, found.id, None, None)


def test_a_plan_that_the_ledger_cannot_hold_is_refused(jobs: JobService, ledgers: LedgerService, request: pytest.FixtureRequest) -> None:
    name = f"other {abs(hash(request.node.name))}"
    users = ledgers.create(TENANT, definition(BUDGET, f"{name} users", "each_user"), None, None)
    with pytest.raises(InvalidParameter, match="protects a data set as a whole"):
        submitted(jobs, users)
    unit = ledgers.create(TENANT, definition(BUDGET, f"{name} unit", unit="patient"), None, None)
    assert "unit" in str(submitted(jobs, unit).failure)
    zcdp = ledgers.create(TENANT, definition(ZcdpBudget(rho=1.0), f"{name} zcdp"), None, None)
    assert "use an rdp budget" in str(submitted(jobs, zcdp).failure)
    closed = ledgers.create(TENANT, definition(BUDGET, f"{name} closed"), None, None)
    waiting = jobs.submit(JobSubmission.model_validate({"spec": spec(), "ledger": closed.id}), None)
    ledgers.close(TENANT, closed.id, None, None)
    assert prepared(jobs, waiting).failure == f"ledger {closed.id!r} is closed"
    for call in (lambda: submitted(jobs, closed), lambda: jobs.act(waiting.id, Action.RETRY)):
        with pytest.raises(LedgerClosed):
            call()
    with pytest.raises(LedgerNotFound):
        jobs.submit(JobSubmission.model_validate({"spec": spec(), "ledger": "0" * 32}), None)


@pytest.mark.slow
def test_jobs_of_a_real_worker_settle_as_they_end(tmp_path: Path) -> None:
    of = served(tmp_path)
    with serving(of) as client:
        body = definition(RdpBudget(orders=(8.0,), values=(1.0,))).model_dump(mode="json")
        here = f"/v1/ledgers/{client.post('/v1/ledgers', json=body).json()['id']}"

        def charged(order: Order, **changes: object) -> str:
            sent = {"spec": spec(**changes), "ledger": here.rsplit("/", 1)[1]}
            sent["runtime"] = {"microbatch_size": int(order), "checkpoint_seconds": 0.01}
            response = client.post("/v1/jobs", json=sent)
            assert response.status_code == 202, response.text
            return str(response.json()["id"])

        ids = [charged(Order.FINISH), charged(Order.FAIL), charged(Order.CRASH)]
        plain = submit(client)
        with working(of):
            for job_id in (*ids, plain):
                wait_until(lambda job_id=job_id: state(client, job_id) in ("succeeded", "failed"))
        assert [state(client, job_id) for job_id in ids] == ["succeeded", "failed", "failed"]
        settled = client.get(f"{here}/reservations").json()["reservations"][::-1]
        assert [found["job"] for found in settled] == ids
        assert [found["state"] for found in settled] == ["committed"] * 3
        assert [found["released"] is None for found in settled] == [True, False, True]
        assert client.get(f"{here}/verification").json()["verdict"] == "sound"
        named = read(client.get(client.get(f"/v1/jobs/{ids[0]}").json()["links"]["certificate"]).content).ledger
        assert named is not None
        assert (named.ledger, named.reservation) == (here.rsplit("/", 1)[1], settled[0]["id"])
