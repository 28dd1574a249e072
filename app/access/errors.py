r"""Errors of access. They carry data and know nothing of HTTP. Their texts are the same for every cause and never contain a key."""

from __future__ import annotations


class AccessError(Exception):
    """Base of every error of this package."""


class KeyNeeded(AccessError):
    """No valid key was sent. The error doesn't say whether the key was missing, unknown, wrong, expired or revoked."""

    def __init__(self) -> None:
        super().__init__("expected a valid key in the header Authorization, as Bearer zdp_<id>_<secret>")


class ScopeMissing(AccessError):
    """The key is valid but doesn't allow this."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        super().__init__(f"expected a key with the scope {scope}")


class TooManyRequests(AccessError):
    """There were more requests than the limit allows."""

    def __init__(self, limit: str, retry_after_seconds: int) -> None:
        self.limit = limit
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"expected at most {limit}; try again in {retry_after_seconds} s")


class KeyNotFound(AccessError):
    """The tenant has no key with this id."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        super().__init__(f"there is no key {key_id!r}")


class KeyConflict(AccessError):
    """The key's state doesn't allow the request."""

    def __init__(self, key_id: str, state: str, asked: str) -> None:
        self.key_id = key_id
        super().__init__(f"key {key_id!r} is {state} and can't be {asked}")
