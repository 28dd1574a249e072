r"""Many profiles in one request, answered line by line as they are computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any, final

from pydantic import Field, TypeAdapter, ValidationError

from accountants.deadline import time_limit
from app.calculators.schemas import TRAINING, Profile, ProfileRequest, example
from app.kit.problems import problem_of, problem_of_unfit
from mechanisms.base import Value
from mechanisms.errors import TimeLimitReached

LARGEST_BATCH = 1000

Requests = Annotated[
    tuple[Any, ...], Field(max_length=LARGEST_BATCH, json_schema_extra={"items": {"$ref": "#/components/schemas/ProfileRequest"}})
]


@final
class BatchRequest(Value):
    """Up to 1000 profile requests. Each is checked when its turn comes, so a bad one affects only its own line."""

    model_config = example({"requests": [{"event": TRAINING, "deltas": [1e-5]}, {"event": TRAINING, "epsilons": [1.0]}]})

    requests: Requests


@final
class ProfileLine(Value):
    """The answer to the request at ``index``, counted from 0."""

    index: int
    profile: Profile


@final
class ProblemLine(Value):
    """Why the request at ``index`` has no answer: the problem (RFC 9457) it would have had alone, with field names relative to it."""

    index: int
    problem: dict[str, Any]


BatchLine = ProfileLine | ProblemLine
BATCH_LINE: TypeAdapter[BatchLine] = TypeAdapter(BatchLine)


def answered(batch: BatchRequest, profile: Callable[[ProfileRequest], Profile], seconds: float) -> Iterator[BatchLine]:
    """One line per request, in order, each computed when needed; after ``seconds`` the rest is refused, one line each."""
    ends = time.monotonic() + seconds
    for index, given in enumerate(batch.requests):
        yield _line(index, given, profile, seconds, ends - time.monotonic())


def _line(index: int, given: object, profile: Callable[[ProfileRequest], Profile], seconds: float, left: float) -> BatchLine:
    try:
        request = ProfileRequest.model_validate(given)
    except ValidationError as error:
        return ProblemLine(index=index, problem=problem_of_unfit(error, given).marshal())
    try:
        if left <= 0.0:
            raise TimeLimitReached(seconds)
        with time_limit(left):
            return ProfileLine(index=index, profile=profile(request))
    except Exception as error:  # whatever it is, it affects only this line; what isn't ours is logged there
        return ProblemLine(index=index, problem=problem_of(error).marshal())


def as_text(lines: Iterator[BatchLine]) -> Iterator[bytes]:
    """Newline-delimited JSON."""
    for line in lines:
        # Many readers of lines end one at U+2028 or U+0085 too, which a problem may quote: escaped, nothing ends a line but the line feed.
        yield line.model_dump_json(ensure_ascii=True).encode() + b"\n"
