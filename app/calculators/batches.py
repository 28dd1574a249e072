r"""Many profiles in one request, and the lines of its answer."""

from __future__ import annotations

from typing import Annotated, Any, final

from pydantic import Field, TypeAdapter

from zetadp.app.calculators.schemas import TRAINING, Profile, example
from zetadp.mechanisms.base import Value

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
