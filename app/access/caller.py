r"""The sender of a request: a tenant's key, with scopes. Routes depend on ``requires(scope)``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast, final

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from zetadp.app.access.errors import AccessError, ScopeMissing
from zetadp.app.access.scopes import Scope
from zetadp.app.tables.tenants import Tenant
from zetadp.mechanisms.base import Value


@final
class Caller(Value):
    r"""A tenant and what it may do.

    Attributes:
      key_id: of the key that was sent; None if none was and none is needed.
      principal: who that is, over all rotations of the key: the id of the first one.
    """

    tenant: Tenant
    key_id: str | None
    principal: str | None
    scopes: frozenset[Scope]


@final
@dataclass(frozen=True)
class Admission:
    """What the gate found out about a request before any route: its sender, and the error to raise if a key is needed but none was sent."""

    caller: Caller | None
    refused: Callable[[], AccessError]


BEARER = HTTPBearer(
    bearerFormat="zdp_<id>_<secret>",
    scheme_name="key",
    description="A key for this service. Create one with POST /v1/keys, or with `zetadp keys create` on the service's machine.",
    auto_error=False,
)


@cache
def requires(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """The dependency of a route that needs a key with this scope; it returns the caller. Always the same object for a scope."""

    # For the OpenAPI document: what is shown the gate has seen already.
    documented: HTTPAuthorizationCredentials | None = Security(BEARER, scopes=[scope])

    async def required(request: Request, _shown: HTTPAuthorizationCredentials | None = documented) -> Caller:
        return admitted(request.scope["state"], scope)

    required.__name__ = f"requires_{scope}"
    return required


def admitted(state: MutableMapping[str, Any], scope: Scope) -> Caller:
    """The sender of a request with this state, which the gate has set. Raises AccessError if it may not do what needs the scope."""
    state["required"] = scope
    admission = cast("Admission", state["admission"])
    if admission.caller is None:
        raise admission.refused()
    if scope not in admission.caller.scopes:
        raise ScopeMissing(scope)
    return admission.caller
