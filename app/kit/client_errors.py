r"""Errors of the Python client: what happened to a request, as far as it is known here."""

from __future__ import annotations


class ClientError(Exception):
    """Base of the errors that a call can raise."""


class ServiceUnreachable(ClientError):
    """No answer from the service's address."""

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"no service answers at {address}: {reason}")


class AnswerLost(ServiceUnreachable):
    """The request was sent, or part of it, and no answer came: it may or may not have been carried out."""

    def __init__(self, address: str, reason: str, key: str | None = None) -> None:
        self.address = address
        self.reason = reason
        again = "" if key is None else f"; sent again with the Idempotency-Key {key} it is carried out once"
        ClientError.__init__(self, f"{address} didn't answer: {reason}. The request may have been carried out{again}")


class RequestRefused(ClientError):
    """The service answered with an error.

    Attributes:
      status: HTTP status.
      title: the problem's title.
      detail: what was expected and what came.
    """

    def __init__(self, status: int, title: str, detail: str) -> None:
        self.status = status
        self.title = title
        self.detail = detail
        super().__init__(f"{title} {detail}".strip())
