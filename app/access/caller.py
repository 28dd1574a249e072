r"""Who sends a request: a key of some tenant, with scopes. ``requires(scope)`` is what a route asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import cast, final

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.access.errors import AccessError, ScopeMissing
from app.tables.tenants import Tenant
from mechanisms.base import Value


class Scope(StrEnum):
    """What a key may be used for. None contains another: a key has each of its scopes by name."""

    CALCULATE = "calculate"
    SUBMIT = "submit"
    LEDGER = "ledger"
    ADMIN = "admin"
    METRICS = "metrics"


@final
class Caller(Value):
    """A tenant and what it may do; ``key_id`` is None where no key was shown and none is needed."""

    tenant: Tenant
    key_id: str | None
    scopes: frozenset[Scope]


@final
@dataclass(frozen=True)
class Admission:
    """What the gate found out about a request before any route: who sends it, and what one who shows no key is told who needs one."""

    caller: Caller | None
    refused: Callable[[], AccessError]


BEARER = HTTPBearer(
    bearerFormat="zdp_<id>_<secret>",
    scheme_name="key",
    description="A key of this service: POST /v1/keys makes one, and so does `python -m app keys create` on the service's machine.",
    auto_error=False,
)


@cache
def requires(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """The dependency of a route that needs a key with this scope: it gives the caller. One and the same object for each scope."""

    # For the OpenAPI document: what is shown the gate has seen already.
    documented: HTTPAuthorizationCredentials | None = Security(BEARER, scopes=[scope])

    async def admitted(request: Request, _shown: HTTPAuthorizationCredentials | None = documented) -> Caller:
        request.state.required = scope
        admission = cast("Admission", request.state.admission)
        if admission.caller is None:
            raise admission.refused()
        if scope not in admission.caller.scopes:
            raise ScopeMissing(scope)
        return admission.caller

    admitted.__name__ = f"requires_{scope}"
    return admitted
