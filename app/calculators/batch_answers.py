r"""The answers to a batch of profile requests, line by line as they are computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

from pydantic import ValidationError

from zetadp.accountants.deadline import time_limit
from zetadp.app.calculators.batches import BatchLine, BatchRequest, ProblemLine, ProfileLine
from zetadp.app.calculators.schemas import Profile, ProfileRequest
from zetadp.app.kit.problems import problem_of, problem_of_unfit
from zetadp.mechanisms.errors import TimeLimitReached


def answered(batch: BatchRequest, profile: Callable[[ProfileRequest], Profile], seconds: float) -> Iterator[BatchLine]:
    """One line per request, in order, each computed when needed; after ``seconds`` of processor time the rest is refused, one line each."""
    used = 0.0
    for index, given in enumerate(batch.requests):
        begun = time.thread_time()  # each line has a thread of its own, perhaps
        line = _line(index, given, profile, seconds, seconds - used)
        used += time.thread_time() - begun
        yield line


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


def as_text(lines: Iterator[BatchLine]) -> Generator[bytes]:
    """Newline-delimited JSON."""
    for line in lines:
        # Many readers of lines end one at U+2028 or U+0085 too, which a problem may quote: escaped, nothing ends a line but the line feed.
        yield line.model_dump_json(ensure_ascii=True).encode() + b"\n"
