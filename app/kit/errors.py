r"""The base of every error of the service that a request is answered with, and how it says so: its status, its name and its title."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

RETRY_SECONDS = 5
"""When to ask again after something didn't answer: about as long as a connection to it is waited for."""


@final
@dataclass(frozen=True)
class ProblemType:
    """A kind of problem (RFC 9457): HTTP status, type and title; the detail is the error's text."""

    status: int
    name: str
    title: str


class ServiceError(Exception):
    """An error that a request is answered with. Each subclass that is raised names its own ``problem``."""

    problem: ClassVar[ProblemType]

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the answer beside the problem."""
        return {}

    @property
    def extra(self) -> Mapping[str, object]:
        """Members of the problem beside those that all have; JSON values."""
        return {}


class Unavailable(ServiceError):
    """Something that the service needs doesn't answer: the same request may be answered soon."""

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(RETRY_SECONDS)}
