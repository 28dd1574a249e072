r"""Keys and audit entries as the REST interface shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, final

from pydantic import AwareDatetime, ConfigDict, Field

from zetadp.app.access.scopes import Scope
from zetadp.mechanisms.base import Value

LONGEST_GRACE = 30 * 86_400

KeyName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Scopes = Annotated[tuple[Scope, ...], Field(min_length=1, max_length=len(Scope))]


@final
class KeyRequest(Value):
    r"""A key to create for your own tenant.

    Attributes:
      name: says whose key it is or what it is for; shown in lists.
      scopes: what it may be used for.
      expires: when it expires; never if absent.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "station 4", "scopes": ["submit"]}]})

    name: KeyName
    scopes: Scopes
    expires: AwareDatetime | None = None


@final
class KeyRotation(Value):
    """``grace_seconds``: how long the old key stays valid along with the new one, at most 30 days; 0 ends it at once."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"grace_seconds": 86_400}]})

    grace_seconds: Annotated[int, Field(ge=0, le=LONGEST_GRACE)]


@final
class Key(Value):
    r"""A key without its secret.

    Attributes:
      principal: the id of the first key of its rotations, by which ledgers tell who acts: a rotated key stays the same principal.
      last_used: accurate to the minute.
    """

    id: str
    tenant: str
    principal: str
    name: str
    scopes: tuple[Scope, ...]
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    last_used: datetime | None


@final
class NewKey(Value):
    """A key that was just created. ``text`` is what its holder sends; it is shown only this once and stored nowhere."""

    key: Key
    text: str


@final
class KeyPage(Value):
    """Keys, newest first; ``next`` is the cursor of the page after, or null."""

    keys: tuple[Key, ...]
    next: str | None


@final
class AuditEntry(Value):
    r"""One action that was done or refused.

    Attributes:
      number: its place in the log; numbers only grow.
      tenant, key_id: the key and its tenant; null if no valid key was sent.
      address: the request's origin, or ``local`` for the command line on the service's machine.
      action: the operation, such as ``submit_job``, or the command; only the method if the request reached no operation.
      target: the path, or what was created.
      status: the HTTP status of the answer; 0 for the command line.
    """

    number: int
    time: datetime
    tenant: str | None
    key_id: str | None
    address: str
    action: str
    target: str
    status: int
    request_id: str


@final
class AuditPage(Value):
    """Entries, newest first; ``next`` is the cursor of the page after, or null."""

    entries: tuple[AuditEntry, ...]
    next: int | None


CLOSED = "closed"
"""Name of the last event of a stream whose key has ended."""


@final
class Closed(Value):
    """Why a stream ends early."""

    reason: Literal["the key was revoked or has expired"] = "the key was revoked or has expired"
