r"""Many profiles in one request, and the lines of its answer."""

from __future__ import annotations

from typing import Annotated, Any, final

from pydantic import Field, TypeAdapter, WithJsonSchema

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


BatchLine = Annotated[
    ProfileLine | ProblemLine,
    # One model instead of a union: nothing but the presence of a field tells the two apart.
    WithJsonSchema(
        {
            "type": "object",
            "title": "BatchLine",
            "description": "The answer to the request at `index`, counted from 0: its `profile`, or the `problem` that it has.",
            "properties": {
                "index": {"type": "integer"},
                "profile": {"$ref": "#/components/schemas/Profile"},
                "problem": {"$ref": "#/components/schemas/UnservedRequest"},
            },
            "required": ["index"],
            "additionalProperties": False,
        }
    ),
]
BATCH_LINE: TypeAdapter[BatchLine] = TypeAdapter(BatchLine)
