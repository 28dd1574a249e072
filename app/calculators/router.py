r"""The calculators over HTTP."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, final

from fastapi import APIRouter, Depends, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from zetadp.app.calculators import catalogue
from zetadp.app.calculators.batch_answers import answered, as_text
from zetadp.app.calculators.batches import BatchRequest
from zetadp.app.calculators.calibrations import Calibration, CalibrationRequest, Sweep, SweepRequest
from zetadp.app.calculators.catalogue import AccountantEntry, AlgorithmEntry, MechanismEntry, Proof
from zetadp.app.calculators.compare.router import router as compare_router
from zetadp.app.calculators.errata import router as errata_router
from zetadp.app.calculators.event_kinds import EventEntry
from zetadp.app.calculators.event_kinds import list_events as all_events
from zetadp.app.calculators.limits import Calculators, calculators
from zetadp.app.calculators.meanings import router as meanings_router
from zetadp.app.calculators.noise_shapes import router as noise_shapes_router
from zetadp.app.calculators.notions import router as notions_router
from zetadp.app.calculators.proofs import router as proofs_router
from zetadp.app.calculators.schemas import Profile, ProfileRequest
from zetadp.app.calculators.short_forms import router as short_forms_router
from zetadp.mechanisms.base import Value

Desk = Annotated[Calculators, Depends(calculators)]

router = APIRouter(tags=["calculators"])
comparisons = APIRouter(tags=["papers"])
comparisons.include_router(compare_router)
comparisons.include_router(errata_router)


@final
class NdjsonResponse(StreamingResponse):
    """Newline-delimited JSON, sent line by line. Once the client has gone, the lines are closed, and what they hold is free."""

    media_type = "application/x-ndjson"

    def __init__(self, lines: Generator[bytes], status_code: int = 200) -> None:
        super().__init__(lines, status_code)
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._lines.close()


LINES = {"type": "string", "description": "Each line is a BatchLine: `index` with `profile` or `problem`."}


def _json(answer: Value) -> Response:
    # Serialised here, in the thread that computed it: FastAPI would validate the answer again, in another thread.
    return Response(answer.model_dump_json(), media_type="application/json")


@router.post("/profiles", summary="Compute a privacy profile", response_model=Profile)
def create_profile(request: ProfileRequest, desk: Desk) -> Response:
    """delta(epsilon), epsilon(delta), Renyi divergences, mu and the attacker's trade-off of any event, as upper bounds."""
    return _json(desk.profile(request))


@router.post(
    "/profiles/batch",
    summary="Compute up to 1000 privacy profiles",
    response_class=NdjsonResponse,
    responses={200: {"description": "One line of JSON per request, in order.", "content": {"application/x-ndjson": {"schema": LINES}}}},
)
def create_profiles(batch: BatchRequest, desk: Desk) -> NdjsonResponse:
    """Each line is sent as soon as it is computed: a profile, or the problem that this request would have had on its own."""
    return NdjsonResponse(as_text(answered(batch, desk.profile, desk.batch_seconds)))


@router.post("/calibrations", summary="Calibrate an event to a target", response_model=Calibration)
def create_calibration(request: CalibrationRequest, desk: Desk) -> Response:
    """The least noise, the largest sample, the most steps or the largest clipping bound that meets a target, always on the safe side."""
    return _json(desk.calibration(request))


@router.post("/calibrations/sweep", summary="Calibrate an event to many targets", response_model=Sweep)
def create_sweep(request: SweepRequest, desk: Desk) -> Response:
    """Calibrates one parameter of one event to up to 1000 targets, much faster than one by one."""
    return _json(desk.sweep(request))


# Here and not above, since the documentation lists routes in the order in which they are added.
router.include_router(short_forms_router)
router.include_router(meanings_router)
router.include_router(notions_router)
router.include_router(noise_shapes_router)


@router.get("/mechanisms", summary="List mechanisms")
def list_mechanisms() -> tuple[MechanismEntry, ...]:
    """Every mechanism, and what can be declared: what it is, its JSON schema, an example, sources, and the errata rows about it."""
    return catalogue.list_mechanisms()


@router.get("/events", summary="List kinds of events")
def list_events() -> tuple[EventEntry, ...]:
    """Everything that an event can be made of: what it is, its JSON schema, an example, and its proof."""
    return all_events()


@router.get("/mechanisms/{kind}/proof", summary="Read a mechanism's proof")
def read_mechanism_proof(kind: str) -> Proof:
    """A mechanism's proof, as Markdown."""
    return catalogue.proof_of(kind)


@router.get("/accountants", summary="List accountants")
def list_accountants() -> tuple[AccountantEntry, ...]:
    """Every accountant and its sources."""
    return catalogue.list_accountants()


@router.get("/algorithms", summary="List training algorithms")
def list_algorithms() -> tuple[AlgorithmEntry, ...]:
    """Every training algorithm: its spec's JSON schema, and an example that runs."""
    return catalogue.list_algorithms()


router.include_router(proofs_router)
