r"""The service's own description of what it answers to a request it can't serve, in place of the framework's."""

from __future__ import annotations

from typing import Annotated, Any, final

from fastapi import FastAPI
from pydantic import Field

from app.errors import FieldError
from mechanisms.base import Value

_FRAMEWORKS = "HTTPValidationError"
"""What the framework's schema refers to for every 422; its fields aren't those that ``app.errors`` sends."""


@final
class UnservedRequest(Value):
    r"""A request that is refused (RFC 9457, application/problem+json).

    Attributes:
      errors: what is wrong with which field, where it is a field's fault.
      job: where to send the same calculation as a job, where it takes too long for an answer at once.
    """

    type: str
    title: str
    status: int
    detail: str
    errors: Annotated[tuple[FieldError, ...], Field(default=())]
    job: str | None = None


def describe_refusals(app: FastAPI) -> None:
    """Makes the OpenAPI document say of 422 what is really sent."""
    framework = app.openapi

    def described() -> dict[str, Any]:
        document = framework()
        schemas = document.get("components", {}).get("schemas", {})
        if _FRAMEWORKS in schemas:
            ours = UnservedRequest.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(ours.pop("$defs", {}))
            schemas[_FRAMEWORKS] = ours
            schemas.pop("ValidationError", None)
        return document

    # FastAPI's own way to extend the document is to replace this method.
    app.openapi = described  # pyright: ignore[reportAttributeAccessIssue]
