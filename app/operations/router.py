r"""The operator's HTTP routes: metrics for Prometheus, and whether the service can take requests."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Request, Response

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.errors import ScopeMissing
from zetadp.app.access.scopes import Scope
from zetadp.app.operations.metrics import CONTENT_TYPE, Metrics
from zetadp.app.operations.readiness import Readiness, ReadinessChecks
from zetadp.app.tables.tenants import DEFAULT_TENANT

router = APIRouter()

_NOT_READY: dict[str, Any] = {
    "type": "object",
    "title": "NotReadyProblem",
    "description": "A problem (RFC 9457) with every check.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "checks": {"type": "array", "items": {"$ref": "#/components/schemas/ReadinessCheck"}},
    },
    "required": ["type", "title", "status", "detail", "checks"],
}


@router.get(
    "/metrics",
    tags=["operations"],
    summary="Metrics, for Prometheus",
    response_class=Response,
    responses={200: {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def read_metrics(request: Request, caller: Annotated[Caller, Depends(requires(Scope.METRICS))]) -> Response:
    """Covers the whole service, so the key must be one of the operator's tenant, `default`. No label names a tenant, an id or a data value.

    In Prometheus' configuration: `authorization: {credentials: zdp_...}`. Figures from the database are at most 5 s old.
    """
    if caller.tenant != DEFAULT_TENANT:
        raise ScopeMissing(f"{Scope.METRICS} of the tenant {DEFAULT_TENANT}")
    return Response(cast("Metrics", request.app.state.metrics).text(), media_type=CONTENT_TYPE)


@router.get(
    "/readyz",
    tags=["health"],
    summary="Is the service ready?",
    responses={503: {"description": "Not ready; every check is listed.", "content": {"application/problem+json": {"schema": _NOT_READY}}}},
)
async def ready(request: Request) -> Readiness:
    """The database answers and has this version's tables, the disk has room, and the newest key signs; else 503 with what failed.

    The check `workers` fails if no worker is alive. The service is ready all the same: calculators answer, and jobs wait for a worker.

    Needs no key. The answer is at most one second old and comes within a second; a check that takes longer has failed.
    """
    return await cast("ReadinessChecks", request.app.state.readiness).found()
