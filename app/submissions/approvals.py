r"""Approving a reservation, and with it the job that waits for that."""

from __future__ import annotations

from fastapi import APIRouter, Request

from zetadp.app.kit.parameters import IdempotencyKey
from zetadp.app.ledgers.resources import Reservation
from zetadp.app.ledgers.router import Holder, LedgerId, ReservationId, Service
from zetadp.app.submissions.lifecycle import jobs_of

router = APIRouter(prefix="/ledgers", tags=["ledgers"])


@router.post("/{ledger_id}/reservations/{reservation_id}/approve", summary="Approve a reservation")
def approve_reservation(
    *,
    ledger_id: LedgerId,
    reservation_id: ReservationId,
    caller: Holder,
    service: Service,
    asked: Request,
    idempotency_key: IdempotencyKey = None,
) -> Reservation:
    """By another key than the one that made it, on a ledger whose rules ask for that. A job that waits for it then goes on by itself.
    Approving twice has no further effect."""
    approved = service.approve(caller.tenant, ledger_id, reservation_id, caller.principal, idempotency_key)
    if approved.job is not None:
        # In a transaction of its own, since a job is locked before its ledger: cut off between the two, approving again queues the job.
        jobs_of(asked, caller).go_on(approved.job, reservation_id)
    return approved
