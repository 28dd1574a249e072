"""A job on a ledger with rules counts for its key and its purpose, and waits for an approval where that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from tests.app.access_harness import shown
from tests.app.job_charges.harness import BUDGET, STEPS, prepared, reservation, share, started, submitted
from tests.app.jobs_harness import AUTHORIZED, settings, spec
from tests.app.ledgers_harness import TENANT, definition
from tests.app.preparing_harness import prepare_all
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.jobs.events import StateChanged
from zetadp.app.jobs.needs import Capacity
from zetadp.app.jobs.resources import Job, JobSubmission
from zetadp.app.ledgers.entries import Entry, Reserved
from zetadp.app.ledgers.errors import ApproverRefused, ReservationNotApproved
from zetadp.app.ledgers.export import spend_rows
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.resources import Ledger
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.ledgers.states import ReservationState
from zetadp.app.main import create_app
from zetadp.app.submissions.service import JobService
from zetadp.app.tables.job_states import Action, JobState
from zetadp.mechanisms.errors import BudgetExceeded, InvalidParameter
from zetadp.trainer.specs.report import Started, Stopped

ANN, BEN = "ann", "ben"


def asked_by(key: str, jobs: JobService) -> JobService:
    return JobService(jobs._settings, jobs._database, jobs._queue, TENANT, key)


def with_rules(ledgers: LedgerService, ledger: Ledger, **rules: object) -> Ledger:
    changes = {"name": f"rules {ledger.id}", "rules": rules}
    return ledgers.create(TENANT, LedgerDefinition.model_validate(dict(ledger.definition) | changes), None, None)


def submitted_for(jobs: JobService, ledger: Ledger, purpose: str | None) -> Job:
    asked = JobSubmission.model_validate({"spec": spec(), "ledger": ledger.id, "purpose": purpose})
    return prepared(jobs, jobs.submit(asked, None))


def check_sound(ledgers: LedgerService, ledger: Ledger) -> None:
    assert ledgers.verify(TENANT, ledger.id).problems == ()


def test_a_job_counts_in_the_quota_of_whoever_submits_or_retries_it(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str
) -> None:
    quotas = [{"key": ANN, "share": 1.5 * share_of_one_job(jobs, ledgers, ledger)}, {"key": BEN, "share": 1.0}]
    ruled = with_rules(ledgers, ledger, quotas=quotas, purposes=["staffing"])
    for key, purpose, told in (("eve", "staffing", "in which key eve has a quota"), (ANN, None, "purpose must be one of staffing")):
        with pytest.raises(InvalidParameter, match=told):
            submitted_for(asked_by(key, jobs), ruled, purpose)
    job = submitted_for(asked_by(ANN, jobs), ruled, "staffing")
    made = reservation(ledgers, jobs, job.id)
    assert (job.state, made.purpose) == (JobState.QUEUED, "staffing")
    entry = ledgers.entries(TENANT, ruled.id, made.entry - 1, 1).entries[0].act
    assert isinstance(entry, Reserved)
    assert entry.analyst == ANN
    assert "of the quota of key ann" in str(submitted_for(asked_by(ANN, jobs), ruled, "staffing").failure)
    attempts.fail(started(attempts, token), "it failed")  # all of it counts
    with pytest.raises(BudgetExceeded, match="of the quota of key ann"):
        asked_by(ANN, jobs).act(job.id, Action.RETRY)
    asked_by(BEN, jobs).act(job.id, Action.RETRY)
    jobs.act(job.id, Action.CANCEL)
    rows = spend_rows(Entry.model_validate_json(one.text) for one in ledgers.entries(TENANT, ruled.id, 0, 99).entries)
    assert [(row.key, row.state) for row in rows] == [(ANN, "committed"), (BEN, "released")]
    check_sound(ledgers, ruled)


def share_of_one_job(jobs: JobService, ledgers: LedgerService, ledger: Ledger) -> float:
    job = submitted(jobs, ledger)
    jobs.act(job.id, Action.CANCEL)
    return reservation(ledgers, jobs, job.id).charge[0] / BUDGET.grids[0].limit


def test_a_job_waits_for_the_approval_that_its_ledger_asks_for(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger, attempts: Attempts, token: str
) -> None:
    ruled, ann = with_rules(ledgers, ledger, approval="second_key"), asked_by(ANN, jobs)
    job = submitted_for(ann, ruled, None)
    made = reservation(ledgers, jobs, job.id)
    assert (job.state, made.state) == (JobState.PAUSED, ReservationState.RESERVED)
    told = [one.data for one in jobs.events(job.id, 0)[0] if isinstance(one.data, StateChanged)][-1]
    waits = f"waits for approval by a second key: once reservation {made.id} of its ledger is approved, it goes on by itself"
    assert (told.reason, job.waits_for) == (waits, waits)
    with pytest.raises(ReservationNotApproved):
        jobs.act(job.id, Action.RESUME)
    assert attempts.start_next(token, Capacity()) is None
    jobs.go_on(job.id, made.id)  # not before it is approved
    assert jobs.get(job.id).state is JobState.PAUSED
    ledgers.approve(TENANT, ruled.id, made.id, BEN, None)
    for _ in range(2):
        jobs.go_on(job.id, made.id)
        assert ((going := jobs.get(job.id)).state, going.waits_for) == (JobState.QUEUED, None)
    attempt = started(attempts, token)
    attempts.record(attempt, [Started(resumed_from_step=0), Stopped(step=8)], 1.0)
    attempts.fail(attempt, "it failed")
    # By the service, for what was executed; neither key settles a job's reservation.
    assert share(reservation(ledgers, jobs, job.id)) == pytest.approx(8 / STEPS, rel=1e-12)
    # Another run is another reservation, and another approval.
    assert asked_by(BEN, jobs).act(job.id, Action.RETRY).state is JobState.PAUSED
    again = reservation(ledgers, jobs, job.id)
    assert (again.state, again.approved_by, again.id == made.id) == (ReservationState.RESERVED, None, False)
    with pytest.raises(ReservationNotApproved):
        jobs.act(job.id, Action.RESUME)
    with pytest.raises(ApproverRefused):  # who retried it
        ledgers.approve(TENANT, ruled.id, again.id, BEN, None)
    jobs.act(job.id, Action.CANCEL)
    assert reservation(ledgers, jobs, job.id).state is ReservationState.RELEASED
    check_sound(ledgers, ruled)


def test_a_job_that_was_paused_while_it_waited_stays_paused_after_the_approval(
    jobs: JobService, ledgers: LedgerService, ledger: Ledger
) -> None:
    ruled = with_rules(ledgers, ledger, approval="second_key")
    job = submitted_for(asked_by(ANN, jobs), ruled, None)
    made = reservation(ledgers, jobs, job.id)
    assert ((paused := jobs.act(job.id, Action.PAUSE)).state, paused.waits_for) == (JobState.PAUSED, None)
    ledgers.approve(TENANT, ruled.id, made.id, BEN, None)
    jobs.go_on(job.id, made.id)
    assert jobs.get(job.id).state is JobState.PAUSED
    assert jobs.act(job.id, Action.RESUME).state is JobState.QUEUED


def test_approving_over_http_lets_the_job_go_on(tmp_path: Path) -> None:
    """With keys that may use ledgers alone, as approvers' may."""
    app = create_app(settings(tmp_path))
    with TestClient(app, base_url="http://localhost", headers=AUTHORIZED) as client:
        ben = client.post("/v1/keys", json={"name": "ben", "scopes": ["ledger"]}).json()
        rules = {"rules": {"approval": "second_key"}}
        budget = {"kind": "rdp_target", "epsilon": 50.0, "delta": 1e-5, "orders": [2.0, 8.0, 32.0]}
        made = definition().model_dump(mode="json") | {"budget": budget} | rules
        ledger = client.post("/v1/ledgers", json=made).json()["id"]
        here = f"/v1/jobs/{client.post('/v1/jobs', json={'spec': spec(), 'ledger': ledger}).json()['id']}"
        prepare_all(app.state.database)
        waiting = client.get(here).json()
        assert (waiting["state"], "waits for approval by a second key" in waiting["waits_for"]) == ("paused", True)
        approve = f"/v1/ledgers/{ledger}/reservations/{waiting['charge']['reservation']}/approve"
        assert client.post(approve).status_code == 403
        assert client.get(here).json()["state"] == "paused"
        assert client.post(approve, headers=shown(ben["text"])).status_code == 200
        going = client.get(here).json()
        assert (going["state"], going["waits_for"]) == ("queued", None)


def test_a_purpose_needs_a_ledger() -> None:
    with pytest.raises(ValidationError, match="purpose must be absent without a ledger"):
        JobSubmission.model_validate({"spec": spec(), "purpose": "staffing"})
