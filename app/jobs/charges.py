r"""Jobs and ledgers: a training's whole plan is reserved when it is queued, and settled by what it released when it ends.

An end is an output like any other: that a run diverged at step s reveals something about the releases of s steps. So every executed step
counts, not only those that were shown. Training writes each step to disk before it reports anything about it, including its end:

* stopped (paused, cancelled, timed out, its worker shut down) and said so: the steps in its checkpoint, the last one executed among them;
* failed and said how many steps it executed (it diverged, or an error ended a step, which counts as executed): these steps;
* failed otherwise, killed, or its end is unknown: all of the plan;
* ended early, however it did, where sites release over a network: all of the plan. A site releases when a request reaches it, which may be
  after the last step that was executed here, and what an attempt that was killed had asked for is in no checkpoint.

That a run which ends early costs the steps it executed is a claim about adaptive stopping. Every budget of a ledger carries it: sums of
epsilon, rho, mu^2 or Renyi divergences at fixed orders, step by step (accountants/proofs/filters.md, section 7). A privacy profile doesn't:
hence no certificate is issued for fewer steps than planned. A retried job continues from its checkpoint and is charged again.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session
from structlog import get_logger

from zetadp.accountants.events import Event, Repeated
from zetadp.accountants.filters import Price
from zetadp.app.certificates.facts.ledger_entry import LedgerFacts
from zetadp.app.jobs.document import JOB_DOCUMENT, TrainingDocument, is_prepared
from zetadp.app.jobs.events import JOB_EVENT
from zetadp.app.ledgers.admission import Priced, commit_in, release_in, reserve_in
from zetadp.app.ledgers.entries import Charge
from zetadp.app.ledgers.errors import CostTakesTooLong, EntryUnreadable, LedgerDamaged
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, stored_definition
from zetadp.app.ledgers.pricing import price_of
from zetadp.app.ledgers.queries import found_ledger, found_reserved, waits_for_approval
from zetadp.app.ledgers.rows import SERVICE, Requester
from zetadp.app.tables.jobs import JobEventRow, JobRow
from zetadp.app.tables.ledgers import LedgerEntryRow, LedgerJobRow, LedgerRow
from zetadp.mechanisms.errors import InvalidParameter, PrivacyError
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.report import Failed, Stopped

WAITS = "waits for approval by a second key: once reservation {} of its ledger is approved, it goes on by itself"
"""Why a job is paused once it is prepared, with the id of its reservation."""

PART_SECONDS = 2.0
"""How long computing the cost of what was released may take while the job is locked; beyond it, all of the plan counts."""


def charge_job(session: Session, job: JobRow, priced: Priced) -> None:
    """Reserve a job's plan, in the transaction that queues the job, or pauses it until that is approved. Raises as ``reserve_in``."""
    made = reserve_in(session, job.tenant, priced, Requester(key_id=job.spender), job.id, job.purpose)
    session.merge(LedgerJobRow(job_id=job.id, ledger_id=priced.ledger_id, reservation_id=made.id, attempt=job.attempt))


def unapproved(session: Session, job: JobRow) -> str | None:
    """The reservation that must be approved before the job may run; None if none must."""
    charged = session.get(LedgerJobRow, job.id)
    if charged is None or not waits_for_approval(session, charged.ledger_id, charged.reservation_id):
        return None
    return charged.reservation_id


def charge_again(session: Session, job: JobRow) -> None:
    """Reserve the whole plan of a locked job once more, if it is charged to a ledger: it ended and is to be tried again.

    Raises as ``reserve_in``.
    """
    charged = session.get(LedgerJobRow, job.id)
    if charged is not None:
        before = found_reserved(session, job.tenant, charged.ledger_id, charged.reservation_id)
        charge_job(session, job, Priced(charged.ledger_id, before.spend, Price(steps=before.charge)))


def settle_job(session: Session, job: JobRow, *, is_success: bool) -> None:
    """Commit what a locked job, which ends in this transaction, has or may have released; free the rest.

    Where what is stored of the ledger can't be used, all of it stays reserved and the job ends nevertheless: nothing is freed that way, and
    a job that never ends would hold up its worker.
    """
    charged = session.get(LedgerJobRow, job.id)
    if charged is None:
        return
    try:
        with session.begin_nested():  # what was written before the damage was found is undone
            _settle(session, job, charged, is_success=is_success)
    except (EntryUnreadable, LedgerDamaged) as damaged:
        get_logger().error("job_not_settled", job=job.id, ledger=charged.ledger_id, reason=str(damaged))


def _settle(session: Session, job: JobRow, charged: LedgerJobRow, *, is_success: bool) -> None:
    ledger_id, reservation_id = charged.ledger_id, charged.reservation_id
    if job.attempt == charged.attempt:  # no worker had it in hand
        release_in(session, job.tenant, ledger_id, reservation_id, SERVICE)
        return
    steps = None if is_success else _released_steps(session, job)
    part = None
    if steps is not None:
        definition = stored_definition(ledger_id, found_ledger(session, job.tenant, ledger_id).definition)
        reserved = found_reserved(session, job.tenant, ledger_id, reservation_id)
        part = _part(definition, job, steps, reserved.charge)
    commit_in(session, job.tenant, ledger_id, reservation_id, SERVICE, part)


def ledgers_of(session: Session, job_ids: list[str]) -> dict[str, LedgerJobRow]:
    """The ledger and reservation that each job is charged to, by job."""
    return {row.job_id: row for row in session.scalars(select(LedgerJobRow).where(LedgerJobRow.job_id.in_(job_ids)))}


def charge_of(session: Session, job_id: str) -> LedgerFacts | None:
    """The entry that reserved the job's plan, as a certificate names it; None for a job that is charged to no ledger."""
    charged = session.get(LedgerJobRow, job_id)
    if charged is None:
        return None
    made = select(LedgerEntryRow.number, LedgerEntryRow.sha256).where(
        LedgerEntryRow.ledger_id == charged.ledger_id, LedgerEntryRow.reservation_id == charged.reservation_id, LedgerEntryRow.settles == 0
    )
    number, sha256 = session.execute(made).one()
    definition = session.execute(select(LedgerRow.definition).where(LedgerRow.id == charged.ledger_id)).scalar_one()
    return LedgerFacts(
        ledger=charged.ledger_id,
        reservation=charged.reservation_id,
        entry=number,
        sha256=sha256,
        renews_after_days=stored_definition(charged.ledger_id, definition).renews_after_days,
    )


def spend_of_job(session: Session, tenant: str, job_id: str) -> Event:
    """The event of a training job's plan. Raises InvalidParameter: the tenant has no such training, or it has no plan yet."""
    stored = session.scalar(select(JobRow.document).where(JobRow.id == job_id, JobRow.tenant == tenant))
    if stored is not None and not is_prepared(stored):
        raise InvalidParameter("job", "the id of a job that has a plan", f"{job_id}, which has none yet")
    document = None if stored is None else JOB_DOCUMENT.validate_python(stored)
    if not isinstance(document, TrainingDocument):
        raise InvalidParameter("job", "the id of one of your training jobs", job_id)
    return document.plan.event


def _released_steps(session: Session, job: JobRow) -> int | None:
    """Steps executed by a job whose last attempt reported its own end and didn't finish; None if unknown, or if sites released them."""
    document = JOB_DOCUMENT.validate_python(job.document)
    if isinstance(document, TrainingDocument) and isinstance(document.spec, FederatedZetaDpSgd) and document.spec.federation is not None:
        return None
    stopped, failed = (_last(session, job, kind) for kind in ("stopped", "failed"))
    if isinstance(stopped, Stopped):
        return stopped.step
    # The last checkpoint told of says nothing here: steps after it were executed before whatever went wrong.
    return failed.executed if isinstance(failed, Failed) else None


def _last(session: Session, job: JobRow, kind: str) -> object:
    """The last event of this kind of the job's last attempt."""
    query = select(JobEventRow.data).where(JobEventRow.job_id == job.id, JobEventRow.kind == kind, JobEventRow.attempt == job.attempt)
    data = session.scalar(query.order_by(JobEventRow.number.desc()).limit(1))
    return None if data is None else JOB_EVENT.validate_python(data)


def _part(definition: LedgerDefinition, job: JobRow, steps: int, charge: Charge) -> tuple[Event, Price] | None:
    """What this many steps released, with its price; None if it is all of the plan or the price isn't computed in time."""
    document = JOB_DOCUMENT.validate_python(job.document)
    assert isinstance(document, TrainingDocument)  # no other job is charged to a ledger
    plan = document.plan
    # Some plans release everything before their first step: one step's event says whether this is one of them.
    released, whole = plan.event_after(max(1, min(steps, plan.steps))), plan.event
    if released == whole:
        return None
    if isinstance(released, Repeated) and isinstance(whole, Repeated) and released.event == whole.event:
        # Costs add up over equal steps, so this share of the charge is at least what these steps cost.
        return released, Price(steps=tuple(-(-part * released.count // whole.count) for part in charge))
    try:
        return released, price_of(definition, released, PART_SECONDS)
    except (CostTakesTooLong, PrivacyError):
        return None
