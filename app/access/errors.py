r"""Errors of access. They carry data, and each says how a request is answered with it.

Their texts are the same for every cause, and never hold a key.
"""

from __future__ import annotations

from collections.abc import Mapping

from zetadp.app.kit.errors import ProblemType, ServiceError, TooMuch


class AccessError(ServiceError):
    """Base of every error of this package."""


class KeyNeeded(AccessError):
    """No valid key was sent. The error doesn't say whether the key was missing, unknown, wrong, expired or revoked."""

    problem = ProblemType(401, "key-needed", "This needs a key.")

    def __init__(self) -> None:
        super().__init__("expected a valid key in the header Authorization, as Bearer zdp_<id>_<secret>")

    @property
    def headers(self) -> Mapping[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class ScopeMissing(AccessError):
    """The key is valid but doesn't allow this."""

    problem = ProblemType(403, "scope-missing", "The key doesn't allow this.")

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f"this needs a key with the scope {scope}")


class TooManyRequests(AccessError, TooMuch):
    """There were more requests than the limit allows."""

    problem = ProblemType(429, "too-many-requests", "Too many requests.")

    def __init__(self, limit: str, retry_after_seconds: int) -> None:
        self.limit = limit
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"expected at most {limit}; try again in {retry_after_seconds} s")

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(self.retry_after_seconds)}


class KeyNotFound(AccessError):
    """The tenant has no key with this id."""

    problem = ProblemType(404, "key-not-found", "No such key.")

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"there is no key {key_id!r}")


class KeyConflict(AccessError):
    """The key's state doesn't allow the request."""

    problem = ProblemType(409, "key-conflict", "The key's state doesn't allow this.")

    def __init__(self, key_id: str, state: str, asked: str) -> None:
        self.key_id = key_id
        super().__init__(f"key {key_id!r} is {state} and can't be {asked}")
