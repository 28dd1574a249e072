r"""Maps our errors to HTTP status codes, and turns validation errors into problem+json (RFC 9457) that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi_problem.error import Problem
from fastapi_problem.handler import ExceptionHandler, Handler, add_exception_handler, http_exception_handler_, new_exception_handler
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from structlog import get_logger

from zetadp.app.kit.database import UNAVAILABLE, DatabaseUnavailable
from zetadp.app.kit.disk import StorageFull, is_full
from zetadp.app.kit.errors import RETRY_SECONDS, MemoryLimitReached, ProblemType, ServiceError
from zetadp.app.kit.field_errors import FieldError, echo, field_errors, summary
from zetadp.mechanisms.errata import UnknownRow
from zetadp.mechanisms.errors import (
    BudgetExceeded,
    CalibrationFailed,
    ContradictoryBounds,
    CostTooHigh,
    IncompatibleEvent,
    InvalidParameter,
    NumericalFloor,
    TimeLimitReached,
    UnsupportedEvent,
)

PRIVACY_PROBLEMS: Mapping[type[Exception], ProblemType] = {
    InvalidParameter: ProblemType(422, "invalid-parameter", "A value is outside its range."),
    IncompatibleEvent: ProblemType(422, "incompatible-event", "Parts of the event disagree."),
    UnsupportedEvent: ProblemType(422, "unsupported-event", "This accountant can't bound the event."),
    CalibrationFailed: ProblemType(422, "calibration-failed", "No noise was found that provably meets the target."),
    NumericalFloor: ProblemType(422, "numerical-floor", "The request is beyond what this route can answer reliably."),
    # Not 503 or 504: those are sent again by themselves, and the same request would only take as long again.
    TimeLimitReached: ProblemType(422, "time-limit-reached", "The calculation takes too long for an immediate answer."),
    ContradictoryBounds: ProblemType(500, "contradictory-bounds", "Two proved bounds exclude each other: a defect of this program."),
    BudgetExceeded: ProblemType(409, "budget-exceeded", "The spend exceeds what is left of the budget."),
    UnknownRow: ProblemType(404, "erratum-not-found", "No such row of the errata."),
}
"""The privacy layers know nothing of HTTP: their errors have their problems here. Those of the service name their own."""

KNOWN = (ServiceError, MemoryError, *PRIVACY_PROBLEMS)

CALCULATIONS = "/v1/calculations"
"""Where to send a calculation as a job if it takes too long for an immediate answer."""


def problem_of_unfit(error: ValidationError | RequestValidationError, body: object) -> Problem:
    """The problem for a body that doesn't fit its schema: it names the fields."""
    return _unfit(field_errors(error.errors(), body))


def problem_of(error: Exception) -> Problem:
    """The problem for an error: by the table for our own, an internal error for any other."""
    error = _named_for_what_happened(error)
    if isinstance(error, ServiceError):
        return _problem(error.problem, str(error), dict(error.headers), error.extra)
    for base in type(error).__mro__:
        if base in PRIVACY_PROBLEMS:
            return _privacy_problem(error, PRIVACY_PROBLEMS[base])
    # Details go to the log only: an answer must not carry a stack trace or a data value.
    get_logger().error("unhandled_error", error_type=type(error).__name__, exc_info=error)
    return Problem(
        title="Something went wrong in the service.", type_="internal-error", status=500, detail="The service's log has the details."
    )


def _named_for_what_happened(error: Exception) -> Exception:
    """Our own error for a library's about a full disk or a missing database. The library's text isn't repeated: it holds statements."""
    if isinstance(error, StorageFull):
        return error
    if is_full(error):
        get_logger().error("storage_full", error_type=type(error).__name__)
        return StorageFull()
    if isinstance(error, MemoryError):
        get_logger().warning("memory_limit_reached")
        return MemoryLimitReached()
    if isinstance(error, UNAVAILABLE):
        get_logger().error("database_unavailable", error_type=type(error).__name__, cause=type(error.__cause__).__name__)
        return DatabaseUnavailable(RETRY_SECONDS)
    return error


def _unfit(errors: Sequence[FieldError]) -> Problem:
    return Problem(
        title="The request doesn't fit its schema.",
        type_="invalid-request",
        status=422,
        detail=summary(errors),
        errors=[entry.model_dump() for entry in errors],
    )


def _privacy_problem(error: Exception, kind: ProblemType) -> Problem:
    extra: dict[str, object] = {}
    detail = str(error)
    if isinstance(error, InvalidParameter):
        extra["errors"] = [FieldError(field=error.field, message=f"must be {error.expected}", got=echo(error.got)).model_dump()]
    if isinstance(error, BudgetExceeded):
        extra |= {"quantity": error.quantity, "requested": error.requested, "remaining": error.remaining}
    if isinstance(error, TimeLimitReached):
        extra |= {"job": CALCULATIONS, "limit_seconds": error.seconds}
        detail = f"{detail}; send it as a job: POST {CALCULATIONS} with this request as its profile, calibration or sweep"
    if isinstance(error, CostTooHigh):
        extra |= {"predicted_seconds": error.predicted_seconds, "cheaper": [bound._asdict() for bound in error.cheaper]}
    return _problem(kind, detail, {}, extra)


def _problem(kind: ProblemType, detail: str, headers: dict[str, str], extra: Mapping[str, object]) -> Problem:
    return Problem(title=kind.title, type_=kind.name, status=kind.status, detail=detail, headers=headers or None, **extra)


def _validation_problem(_handler: ExceptionHandler, _request: Request, error: Exception) -> Problem:
    assert isinstance(error, RequestValidationError)  # registered for this type alone
    return problem_of_unfit(error, error.body)


def _http_problem(handler: ExceptionHandler, request: Request, error: HTTPException) -> Problem:
    if error.status_code == 400 and error.detail == "There was an error parsing the body":
        # FastAPI's words for bytes that aren't UTF-8 and numbers of thousands of digits.
        return _unfit([FieldError(field="body", message="must be JSON in UTF-8, with numbers of ordinary length", got="something else")])
    return http_exception_handler_(handler, request, error)


def _known_problem(_handler: ExceptionHandler, _request: Request, error: Exception) -> Problem:
    return problem_of(error)


def install(app: FastAPI) -> None:
    """Makes every error of the app a problem+json answer."""
    handlers: dict[type[Exception], Handler] = dict.fromkeys(KNOWN, _known_problem)
    handler = new_exception_handler(
        # The library takes the first match that answers: the catch-all leaves errors with a handler of their own to it.
        handlers={Exception: cast("Handler", _last_resort), **handlers},
        request_validation_handler=_validation_problem,
        post_hooks=[_named],
        http_exception_handler=_http_problem,
    )
    add_exception_handler(app, handler)
    # Of others' errors those that say what we have a name for; foreseen like this they don't end the connection with a trace.
    for kind in (*KNOWN, *UNAVAILABLE, OSError):
        app.add_exception_handler(kind, handler)


def refusal(error: Exception, request: Request, *, is_read: bool = False) -> Response:
    """The answer to a request that reaches no route. If the request's body stays unread, the connection is closed."""
    problem = problem_of(error)
    response = JSONResponse(problem.marshal(), problem.status, {**(problem.headers or {}), **({} if is_read else {"connection": "close"})})
    return _named(problem.marshal(), request, response)[1]


def _named(content: dict[str, Any], request: Request, response: Response) -> tuple[dict[str, Any], Response]:
    """The problem with its request's id, which is also in the service's log."""
    request_id: str | None = getattr(request.state, "request_id", None)
    request.state.problem = content.get("type")  # what the metrics count
    headers = dict(response.headers)
    headers.pop("content-length", None)
    if response.status_code == 500:
        headers["connection"] = "close"  # the server closes it after an error that nobody foresaw, and a client must know
    named = {**content, "request_id": request_id}
    answer = JSONResponse(named, response.status_code, {**headers, "content-type": "application/problem+json"})
    if request_id is not None:
        answer.headers["x-request-id"] = request_id
    return named, answer


def _last_resort(_handler: ExceptionHandler, _request: Request, error: Exception) -> Problem | None:
    if isinstance(error, (HTTPException, RequestValidationError, *KNOWN)):
        return None
    return problem_of(error)
