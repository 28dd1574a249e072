r"""The service's OpenAPI document: the framework's, with real refusals, legal event streams and schemas that generate good clients."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Annotated, Any, Literal, final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import Field

from zetadp.app.kit.field_errors import FieldError
from zetadp.app.kit.openapi_schemas import PREFIX, nodes, simplify
from zetadp.mechanisms.base import Extended, Value

_FRAMEWORKS = "HTTPValidationError"
"""The framework's schema for every 422; its fields aren't those that ``app.kit.problems`` sends."""
_OURS = "UnservedRequest"


@final
class Cheaper(Value):
    """An upper bound on ``quantity`` where the other of epsilon and delta is ``at``, by an accountant that takes little time."""

    quantity: Literal["epsilon", "delta"]
    at: float | str
    upper: Extended
    accountant: str


@final
class UnservedRequest(Value):
    r"""A refused request (RFC 9457, application/problem+json).

    Attributes:
      errors: what is wrong with each field, if fields are to blame.
      request_id: id of the request, as in the header X-Request-ID and in the service's log.
      job: where to send the same calculation as a job, if it takes too long for an immediate answer.
      limit_seconds: of processor time, for an immediate answer.
      predicted_seconds: a cautious prediction of what the answer would take, if that is so much that it wasn't begun.
      cheaper: what a cheaper accountant says of what was asked, beside such a prediction.
    """

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None
    errors: Annotated[tuple[FieldError, ...], Field(default=())]
    job: str | None = None
    limit_seconds: float | None = None
    predicted_seconds: float | None = None
    cheaper: Annotated[tuple[Cheaper, ...], Field(default=())]


_RETRY_AFTER = {"Retry-After": {"description": "Seconds until the next request is answered.", "schema": {"type": "integer"}}}
_REFUSALS: dict[str, dict[str, Any]] = {
    "401": {"description": "A key is needed, and no valid one was sent."},
    "403": {"description": "The key doesn't have the required scope."},
    "429": {
        "description": "Too many requests with this key, or from this address without a key; or too many unfinished jobs.",
        "headers": _RETRY_AFTER,
    },
}


LICENCE = {"name": "Apache License 2.0", "identifier": "Apache-2.0"}
SERVERS = [{"url": "/", "description": "The service that sent this document."}]
TAGS = [
    {"name": "calculators", "description": "What guarantee a noise gives, how much noise a guarantee needs, and what a guarantee means."},
    {"name": "papers", "description": "What papers print, next to what is proven."},
    {"name": "recipes", "description": "The papers' experiments, ready to run as jobs."},
    {"name": "jobs", "description": "Private training and long calculations, on a worker."},
    {"name": "ledgers", "description": "Privacy budgets: reservations, what was released, and histories that can be verified."},
    {"name": "data", "description": "Uploads of files, and data sets made from them."},
    {"name": "certificates", "description": "Signed statements of what was done, their verification, and the log that holds them all."},
    {"name": "access", "description": "Keys and the audit log."},
    {"name": "operations", "description": "What an operator's monitoring reads."},
    {"name": "health", "description": "Whether the service runs and is ready."},
]

_EVENT_STREAM = {
    "type": "string",
    "description": "Server-sent events: `event` is the kind of each, `id` its number, and `data` a JobEventRecord as JSON.",
}


def operation_id(route: APIRoute) -> str:
    """The name of the route's function, which is short; no two routes' functions have the same name."""
    return route.name


def describe(app: FastAPI, unions: Mapping[str, object]) -> None:
    """Makes the OpenAPI document describe the real 422 answers, how routes that need a key refuse requests, streams, and unions by name."""
    framework = app.openapi
    once = threading.Lock()

    def described() -> dict[str, Any]:
        with once:  # it takes seconds, and many may ask at the start
            return finished()

    def finished() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = framework()
        app.openapi_schema = None  # the framework keeps what isn't finished yet
        _name_refusals(document)
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"] |= {status: _refusal(refusal) for status, refusal in _REFUSALS.items() if _can_be(status, operation)}
                _describe_streams(operation)
        # What an operation says of keys is all: without this a reader can't tell an open one from a forgotten one.
        document["security"] = []
        simplify(document, unions)
        app.openapi_schema = document
        return document

    # FastAPI's own way to extend the document is to replace this method.
    app.openapi = described  # pyright: ignore[reportAttributeAccessIssue]


def _name_refusals(document: dict[str, Any]) -> None:
    schemas = document.get("components", {}).get("schemas", {})
    if schemas.pop(_FRAMEWORKS, None) is None:
        return
    ours = UnservedRequest.model_json_schema(ref_template=PREFIX + "{model}")
    schemas.update(ours.pop("$defs", {}))
    schemas[_OURS] = ours
    schemas.pop("ValidationError", None)
    for node in nodes(document):
        if node.get("$ref") == PREFIX + _FRAMEWORKS:
            node["$ref"] = PREFIX + _OURS


def _describe_streams(operation: dict[str, Any]) -> None:
    for response in operation["responses"].values():
        stream = response.get("content", {}).get("text/event-stream")
        if stream is not None:
            # The framework describes single events, which OpenAPI can do from version 3.2 on only.
            stream.clear()
            stream["schema"] = dict(_EVENT_STREAM)


def _can_be(status: str, operation: dict[str, Any]) -> bool:
    if "health" in operation.get("tags", ()):
        return False
    return status == "429" or "security" in operation


def _refusal(refusal: dict[str, Any]) -> dict[str, Any]:
    return {**refusal, "content": {"application/problem+json": {"schema": {"$ref": PREFIX + _OURS}}}}
