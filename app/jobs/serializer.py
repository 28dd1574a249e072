r"""The form of what passes through the queue's tables."""

from __future__ import annotations

import json
from typing import final

from dbos import Serializer


@final
class JsonSerializer(Serializer):
    """Stores JSON in the queue's tables. DBOS's default is pickle, which can run code that it reads."""

    def name(self) -> str:
        return "zetadp_json"

    def serialize(self, data: object) -> str:
        return json.dumps(data, default=_described, allow_nan=False)

    def deserialize(self, serialized_data: str) -> object:
        return json.loads(serialized_data)


def _described(value: object) -> str:
    # An error that ended a workflow; its text may quote values, its type can't.
    return type(value).__qualname__
