r"""The service's own description of its answers to requests that it can't serve, in place of the framework's."""

from __future__ import annotations

from typing import Annotated, Any, final

from fastapi import FastAPI
from pydantic import Field

from zetadp.app.kit.field_errors import FieldError
from zetadp.mechanisms.base import Value

_FRAMEWORKS = "HTTPValidationError"
"""The framework's schema for every 422; its fields aren't those that ``app.kit.problems`` sends."""


@final
class UnservedRequest(Value):
    r"""A refused request (RFC 9457, application/problem+json).

    Attributes:
      errors: what is wrong with each field, if fields are to blame.
      request_id: id of the request, as in the header X-Request-ID and in the service's log.
      job: where to send the same calculation as a job, if it takes too long for an immediate answer.
    """

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None
    errors: Annotated[tuple[FieldError, ...], Field(default=())]
    job: str | None = None


_RETRY_AFTER = {"Retry-After": {"description": "Seconds until the next request is answered.", "schema": {"type": "integer"}}}
_REFUSALS: dict[str, dict[str, Any]] = {
    "401": {"description": "A key is needed, and no valid one was sent."},
    "403": {"description": "The key doesn't have the required scope."},
    "429": {"description": "Too many requests with this key, or from this address without a key.", "headers": _RETRY_AFTER},
}


def describe_refusals(app: FastAPI) -> None:
    """Makes the OpenAPI document describe the real 422 answers, and how routes that need a key refuse requests."""
    framework = app.openapi

    def described() -> dict[str, Any]:
        document = framework()
        schemas = document.get("components", {}).get("schemas", {})
        if _FRAMEWORKS in schemas:
            ours = UnservedRequest.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(ours.pop("$defs", {}))
            schemas[_FRAMEWORKS] = ours
            schemas.pop("ValidationError", None)
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"] |= {status: _refusal(refusal) for status, refusal in _REFUSALS.items() if _can_be(status, operation)}
        return document

    # FastAPI's own way to extend the document is to replace this method.
    app.openapi = described  # pyright: ignore[reportAttributeAccessIssue]


def _can_be(status: str, operation: dict[str, Any]) -> bool:
    if "health" in operation.get("tags", ()):
        return False
    return status == "429" or "security" in operation


def _refusal(refusal: dict[str, Any]) -> dict[str, Any]:
    return {**refusal, "content": {"application/problem+json": {"schema": {"$ref": f"#/components/schemas/{_FRAMEWORKS}"}}}}
