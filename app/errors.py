r"""Maps our errors to HTTP status codes, and turns validation errors into problem+json (RFC 9457) that names the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi_problem.error import Problem
from fastapi_problem.handler import ExceptionHandler, Handler, add_exception_handler, http_exception_handler_, new_exception_handler
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from structlog import get_logger

from app.access.errors import KeyConflict, KeyNeeded, KeyNotFound, ScopeMissing, TooManyRequests
from app.certificates.errors import CertificateNotFound, LogSizeUnknown
from app.database import UNAVAILABLE, DatabaseUnavailable
from app.jobs.errors import ArtifactNotFound, IdempotencyConflict, JobConflict, JobNotFound, QueueUnavailable
from app.ledgers.errors import (
    CostTakesTooLong,
    LedgerClosed,
    LedgerKeyReused,
    LedgerNameTaken,
    LedgerNotFound,
    ReservationHeld,
    ReservationNotFound,
    ReservationSettled,
)
from app.operations.readiness import NotReady
from app.operations.storage import StorageFull, is_full
from app.recipes.errors import RecipeNotFound
from app.uploads.errors import (
    DataSetInUse,
    DataSetNotFound,
    QuotaExceeded,
    ReadersBusy,
    UploadCutOff,
    UploadKeyReused,
    UploadNotFound,
    UploadTooLarge,
)
from mechanisms.base import Value
from mechanisms.errata import UnknownRow
from mechanisms.errors import (
    BudgetExceeded,
    CalibrationFailed,
    IncompatibleEvent,
    InvalidParameter,
    NumericalFloor,
    TimeLimitReached,
    UnsupportedEvent,
)

STATUS_OF: Mapping[type[Exception], tuple[int, str, str]] = {
    InvalidParameter: (422, "invalid-parameter", "A value is outside its range."),
    IncompatibleEvent: (422, "incompatible-event", "Parts of the event disagree."),
    UnsupportedEvent: (422, "unsupported-event", "This accountant can't bound the event."),
    CalibrationFailed: (422, "calibration-failed", "No noise was found that provably meets the target."),
    NumericalFloor: (422, "numerical-floor", "The request is beyond what this route can answer reliably."),
    # Not 503 or 504: those are sent again by themselves, and the same request would only take as long again.
    TimeLimitReached: (422, "time-limit-reached", "The calculation takes too long for an immediate answer."),
    BudgetExceeded: (409, "budget-exceeded", "The spend exceeds what is left of the budget."),
    KeyNeeded: (401, "key-needed", "This needs a key."),
    ScopeMissing: (403, "scope-missing", "The key doesn't allow this."),
    TooManyRequests: (429, "too-many-requests", "Too many requests."),
    KeyNotFound: (404, "key-not-found", "No such key."),
    KeyConflict: (409, "key-conflict", "The key's state doesn't allow this."),
    JobNotFound: (404, "job-not-found", "No such job."),
    ArtifactNotFound: (404, "artifact-not-found", "No such artifact."),
    UnknownRow: (404, "erratum-not-found", "No such row of the errata."),
    RecipeNotFound: (404, "recipe-not-found", "No such recipe."),
    CertificateNotFound: (404, "certificate-not-found", "No such certificate."),
    LogSizeUnknown: (422, "log-size-unknown", "The log never had this size."),
    LedgerNotFound: (404, "ledger-not-found", "No such ledger."),
    ReservationNotFound: (404, "reservation-not-found", "No such reservation."),
    LedgerNameTaken: (409, "ledger-name-taken", "The name is taken."),
    LedgerClosed: (409, "ledger-closed", "The ledger is closed."),
    ReservationSettled: (409, "reservation-settled", "The reservation is already settled."),
    ReservationHeld: (409, "reservation-held", "The reservation belongs to a job."),
    LedgerKeyReused: (409, "ledger-idempotency-conflict", "The Idempotency-Key was already used with another request."),
    CostTakesTooLong: (422, "cost-takes-too-long", "The cost of the event takes too long to compute."),
    UploadNotFound: (404, "upload-not-found", "No such upload."),
    DataSetNotFound: (404, "data-set-not-found", "No such data set."),
    DataSetInUse: (409, "data-set-in-use", "A job uses the data set."),
    UploadKeyReused: (409, "upload-idempotency-conflict", "The Idempotency-Key was already used with another request."),
    UploadTooLarge: (413, "upload-too-large", "The upload is too large."),
    QuotaExceeded: (409, "quota-exceeded", "The tenant's storage quota is used up."),
    UploadCutOff: (400, "upload-cut-off", "The upload was cut off."),
    ReadersBusy: (503, "readers-busy", "Too many files are being read."),
    JobConflict: (409, "job-conflict", "The job's state doesn't allow this."),
    IdempotencyConflict: (409, "idempotency-conflict", "The Idempotency-Key was already used with another request."),
    NotReady: (503, "not-ready", "The service isn't ready."),
    StorageFull: (507, "storage-full", "The service's disk is full."),
    DatabaseUnavailable: (503, "database-unavailable", "The database doesn't answer."),
    QueueUnavailable: (503, "queue-unavailable", "The job queue can't be reached."),
}
"""Maps an exception type to (HTTP status, problem type, title); a subclass uses its nearest listed base."""

CALCULATIONS = "/v1/calculations"
"""Where to send a calculation as a job if it takes too long for an immediate answer."""

_LONGEST_ECHO = 120
RETRY_SECONDS = 5
"""When to try again after the database didn't answer: about the time limit for connecting to it."""


@final
class FieldError(Value):
    """One thing wrong with a request: the field, what was expected, and what came (shortened, as ASCII)."""

    field: str
    message: str
    got: str


def field_errors(errors: Iterable[Mapping[str, Any]], body: object) -> list[FieldError]:
    """Pydantic's errors with paths as the user wrote them, without the names of union members that Pydantic inserts."""
    return [_field_error(error, body) for error in errors]


def _field_error(error: Mapping[str, Any], body: object) -> FieldError:
    kind, context = str(error["type"]), cast("Mapping[str, Any]", error.get("ctx") or {})
    field = _path(cast("Sequence[str | int]", error["loc"]), body, names_absent_field=kind == "missing")
    cause = context.get("error")
    if isinstance(cause, InvalidParameter):
        # Our own check of a whole value: it names the part, what was expected and what came.
        inner = field if field.rsplit(".", 1)[-1].startswith(cause.field) else f"{field}.{cause.field}"
        return FieldError(field=inner, message=f"must be {cause.expected}", got=_echo(cause.got))
    part, message, got = _told(kind, error, context)
    return FieldError(field="body" if kind == "json_invalid" else field + part, message=message, got=got)


def _told(kind: str, error: Mapping[str, Any], context: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns (the part of the field concerned, what was expected, what came)."""
    told = {
        "missing": lambda: ("", "this field is required", "nothing"),
        "extra_forbidden": lambda: ("", "there is no field with this name", _echo(error["input"])),
        "too_long": lambda: ("", f"must have at most {context['max_length']} entries", f"{context.get('actual_length') or 'more'}"),
        "json_invalid": lambda: ("", f"must be JSON ({context.get('error', 'malformed')})", "malformed text"),
        "union_tag_not_found": lambda: ("", f"must say which kind it is in its field {context['discriminator']}", "none"),
        "union_tag_invalid": lambda: (
            "." + str(context["discriminator"]).strip("'"),
            f"must be one of {context['expected_tags']}",
            _echo(context["tag"]),
        ),
    }.get(kind)
    return told() if told is not None else ("", _message(error, context), _echo(error["input"]))


def _message(error: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
        if isinstance(limit := context.get(name), int | float):
            return f"must be {sign} {limit:g}"
    text = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return text.encode("ascii", "backslashreplace").decode()


def _path(location: Sequence[str | int], body: object, *, names_absent_field: bool) -> str:
    if location and location[0] in ("query", "path", "header", "cookie"):
        return ".".join(str(part) for part in location[1:])
    where, current = "", body
    rest = list(location[1:] if location and location[0] == "body" else location)
    for index, part in enumerate(rest):
        last = index == len(rest) - 1
        if isinstance(current, dict) and (part in current or (last and names_absent_field)):
            where, current = f"{where}.{part}" if where else str(part), cast("dict[object, object]", current).get(part)
        elif isinstance(current, list | tuple) and isinstance(part, int):
            items = cast("Sequence[object]", current)
            where, current = f"{where}[{part}]", items[part] if part < len(items) else None
        elif last and not where and isinstance(part, str) and not isinstance(current, dict | list | tuple):
            where = part
    return where or "body"


def _echo(value: object) -> str:
    # ASCII and short: a request's own bytes never break or flood the answer.
    text = ascii(value)
    return text if len(text) <= _LONGEST_ECHO else text[: _LONGEST_ECHO - 3] + "..."


def summary(errors: Sequence[FieldError]) -> str:
    """The errors, one sentence each."""
    return "; ".join(f"{error.field}: {error.message}, got {error.got}" for error in errors)


def problem_of_unfit(error: ValidationError | RequestValidationError, body: object) -> Problem:
    """The problem for a body that doesn't fit its schema: it names the fields."""
    return _unfit(field_errors(error.errors(), body))


def problem_of(error: Exception) -> Problem:
    """The problem for an error: by the table for our own, an internal error for any other."""
    error = _named_for_what_happened(error)
    for base in type(error).__mro__:
        if base in STATUS_OF:
            return _known(error, *STATUS_OF[base])
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


def _known(error: Exception, status: int, kind: str, title: str) -> Problem:
    extra: dict[str, Any] = {}
    detail = str(error)
    if isinstance(error, InvalidParameter):
        extra["errors"] = [FieldError(field=error.field, message=f"must be {error.expected}", got=_echo(error.got)).model_dump()]
    if isinstance(error, BudgetExceeded):
        extra |= {"quantity": error.quantity, "requested": error.requested, "remaining": error.remaining}
    if isinstance(error, NotReady):
        extra["checks"] = [check.model_dump() for check in error.checks]
    if isinstance(error, TimeLimitReached):
        extra["job"] = CALCULATIONS
        detail = f"{detail}; send it as a job: POST {CALCULATIONS} with this request as its profile, calibration or sweep"
    return Problem(title=title, type_=kind, status=status, detail=detail, headers=_headers(error), **extra)


def _headers(error: Exception) -> dict[str, str] | None:
    if isinstance(error, KeyNeeded):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, DatabaseUnavailable | QueueUnavailable | NotReady):
        return {"Retry-After": str(RETRY_SECONDS)}
    if isinstance(error, UploadTooLarge | QuotaExceeded):
        return {"Connection": "close"}  # the rest of the body is on its way, and nobody will read it
    return {"Retry-After": str(error.retry_after_seconds)} if isinstance(error, TooManyRequests | ReadersBusy) else None


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
    handlers: dict[type[Exception], Handler] = dict.fromkeys(STATUS_OF, _known_problem)
    handler = new_exception_handler(
        # The library takes the first match that answers: the catch-all leaves errors with a handler of their own to it.
        handlers={Exception: cast("Handler", _last_resort), **handlers},
        request_validation_handler=_validation_problem,
        post_hooks=[_named],
        http_exception_handler=_http_problem,
    )
    add_exception_handler(app, handler)
    # Of others' errors those that say what we have a name for; foreseen like this they don't end the connection with a trace.
    for kind in (*STATUS_OF, *UNAVAILABLE, OSError):
        app.add_exception_handler(kind, handler)


def refusal(error: Exception, request: Request) -> Response:
    """The answer to a request that reaches no route. The request's body stays unread, so the connection is closed."""
    problem = problem_of(error)
    response = JSONResponse(problem.marshal(), problem.status, {**(problem.headers or {}), "connection": "close"})
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
    if isinstance(error, (HTTPException, RequestValidationError, *STATUS_OF)):
        return None
    return problem_of(error)
