r"""The REST interface of ledgers. Handlers are plain functions, each one transaction."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response, status

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.kit.parameters import ID_PATTERN, IdempotencyKey
from zetadp.app.ledgers.entries import EntryPage
from zetadp.app.ledgers.ledger_definition import LedgerDefinition
from zetadp.app.ledgers.requests import CommitRequest, ReservationRequest
from zetadp.app.ledgers.resources import Balance, Ledger, LedgerPage, Reservation, ReservationPage
from zetadp.app.ledgers.service import LedgerService
from zetadp.app.ledgers.states import LedgerState, ReservationState
from zetadp.app.ledgers.verification.replay import ChainReport


async def ledger_service(request: Request) -> LedgerService:
    """The ledgers of the application that serves this request. Async, since a plain function costs a change of thread."""
    state = request.app.state
    if not hasattr(state, "ledgers"):
        state.ledgers = LedgerService(state.database, state.settings.calculation_seconds)
    return state.ledgers


Service = Annotated[LedgerService, Depends(ledger_service)]
Holder = Annotated[Caller, Depends(requires(Scope.LEDGER))]
LedgerId = Annotated[str, Path(max_length=64, pattern=r"^[!-~]+$", description="Id of the ledger.")]
ReservationId = Annotated[str, Path(max_length=64, pattern=r"^[!-~]+$", description="Id of the reservation.")]
UserId = Annotated[str, Path(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$", description="Name of the user.")]
Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN, description="The `next` of the previous page.")]

router = APIRouter(prefix="/ledgers", tags=["ledgers"])


@router.post("", status_code=status.HTTP_201_CREATED, summary="Create a ledger")
def create_ledger(
    definition: LedgerDefinition, caller: Holder, service: Service, response: Response, idempotency_key: IdempotencyKey = None
) -> Ledger:
    """States the budget, its neighbours, and what it protects: a data set as a whole, or each of its users."""
    ledger = service.create(caller.tenant, definition, caller.principal, idempotency_key)
    response.headers["Location"] = f"/v1/ledgers/{ledger.id}"
    return ledger


@router.get("", summary="List ledgers, newest first")
def list_ledgers(
    *, caller: Holder, service: Service, state: LedgerState | None = None, limit: Limit = 50, cursor: Cursor = None
) -> LedgerPage:
    """One page; follow `next` for older ledgers."""
    return service.page(caller.tenant, state, cursor, limit)


@router.get("/{ledger_id}", summary="Read a ledger")
def read_ledger(ledger_id: LedgerId, caller: Holder, service: Service) -> Ledger:
    """Its balance: what is committed, what is reserved, what remains; and the last entry of its history."""
    return service.get(caller.tenant, ledger_id)


@router.post("/{ledger_id}/close", summary="Close a ledger")
def close_ledger(ledger_id: LedgerId, caller: Holder, service: Service, idempotency_key: IdempotencyKey = None) -> Ledger:
    """It never admits anything again; open reservations can still be settled. Closing twice has no further effect."""
    return service.close(caller.tenant, ledger_id, caller.principal, idempotency_key)


@router.get("/{ledger_id}/users/{user}", summary="Read a user's balance")
def read_user(ledger_id: LedgerId, user: UserId, caller: Holder, service: Service) -> Balance:
    """For a ledger that protects each user; a user who was never charged has the whole budget."""
    return service.user(caller.tenant, ledger_id, user)


@router.post("/{ledger_id}/reservations", status_code=status.HTTP_201_CREATED, summary="Reserve")
def create_reservation(
    ledger_id: LedgerId,
    reservation: ReservationRequest,
    caller: Holder,
    service: Service,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> Reservation:
    """Sets a spend aside before its noise is drawn. If it doesn't fit: 409 with `requested` and `remaining`, and nothing is spent."""
    made = service.reserve(caller.tenant, ledger_id, reservation, caller.principal, idempotency_key)
    response.headers["Location"] = f"/v1/ledgers/{ledger_id}/reservations/{made.id}"
    return made


@router.get("/{ledger_id}/reservations", summary="List reservations, newest first")
def list_reservations(
    *,
    ledger_id: LedgerId,
    caller: Holder,
    service: Service,
    state: ReservationState | None = None,
    limit: Limit = 50,
    cursor: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="The `next` of the previous page.")] = None,
) -> ReservationPage:
    """One page; follow `next` for older reservations."""
    return service.reservations(caller.tenant, ledger_id, state, cursor, limit)


@router.get("/{ledger_id}/reservations/{reservation_id}", summary="Read a reservation")
def read_reservation(ledger_id: LedgerId, reservation_id: ReservationId, caller: Holder, service: Service) -> Reservation:
    """What it was for, and its outcome."""
    return service.reservation(caller.tenant, ledger_id, reservation_id)


@router.post("/{ledger_id}/reservations/{reservation_id}/commit", summary="Commit a reservation")
def commit_reservation(
    *,
    ledger_id: LedgerId,
    reservation_id: ReservationId,
    request: CommitRequest,
    caller: Holder,
    service: Service,
    idempotency_key: IdempotencyKey = None,
) -> Reservation:
    """Counts all of it, or the part that was really released, as spent. Only what was never released becomes free again."""
    return service.commit(caller.tenant, ledger_id, reservation_id, request.released, caller.principal, idempotency_key)


@router.post("/{ledger_id}/reservations/{reservation_id}/release", summary="Release a reservation")
def release_reservation(
    *, ledger_id: LedgerId, reservation_id: ReservationId, caller: Holder, service: Service, idempotency_key: IdempotencyKey = None
) -> Reservation:
    """Frees all of it: nothing of it was released, and nothing will be."""
    return service.release(caller.tenant, ledger_id, reservation_id, caller.principal, idempotency_key)


@router.get("/{ledger_id}/entries", summary="Read a ledger's history")
def list_entries(
    ledger_id: LedgerId,
    caller: Holder,
    service: Service,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[int, Query(ge=0, le=2**31 - 1, description="The `next` of the previous page; 0 for the beginning.")] = 0,
) -> EntryPage:
    """Oldest first. Each entry's digest is the SHA-256 of its `text`, which holds the digest of the entry before."""
    return service.entries(caller.tenant, ledger_id, cursor, limit)


@router.get("/{ledger_id}/verification", summary="Verify a ledger")
def verify_ledger(ledger_id: LedgerId, caller: Holder, service: Service) -> ChainReport:
    """Checks the whole history and every figure that is stored with it, in the time of one calculation. Prices come last; what wasn't
    reached makes the verdict `incomplete`. `ledger verify` checks a downloaded history without a limit."""
    return service.verify(caller.tenant, ledger_id)
