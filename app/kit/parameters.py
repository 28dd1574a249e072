r"""Parameters that several routers take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

ID_PATTERN = r"^[0-9a-f]{32}$"
"""Of the ids that the service gives."""

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="If you send it again with the same body, you get the first job instead of a second one.",
    ),
]
