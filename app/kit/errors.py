r"""The base of every error of the service that a request is answered with, and how it says so: its status, its name and its title."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

HELD_SECONDS = 1
"""How long a refusal for too much is held back, on average."""
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


class TooMuch(ServiceError):
    """The sender asks for more than its share. It is told so after about a second, and to wait as long before it sends again: whoever sends
    again at once would otherwise keep the service busy with refusals alone."""

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(HELD_SECONDS)}

    @property
    def held_seconds(self) -> float:
        """How long to wait before it is told. Not always the same: those refused together would otherwise come back together."""
        return HELD_SECONDS * (0.5 + random.random())  # noqa: S311 - nothing is kept secret with it


class MemoryLimitReached(ServiceError):
    """An answer that needs more memory than its process may have."""

    problem = ProblemType(422, "memory-limit-reached", "The calculation needs too much memory for an immediate answer.")

    def __init__(self) -> None:
        super().__init__("the calculation needs more memory than an immediate answer may use; send it as a job: POST /v1/calculations")


class Unavailable(ServiceError):
    """Something that the service needs doesn't answer: the same request may be answered soon."""

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Retry-After": str(RETRY_SECONDS)}
