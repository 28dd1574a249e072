"""Documents of private selections on bundled digits, and of their candidates."""

from __future__ import annotations

from typing import Any

from zetadp.trainer.specs.algorithms.private_selection import PrivateSelection


def document(**changes: Any) -> dict[str, Any]:
    return PrivateSelection.example().model_dump(mode="json", exclude_none=True) | changes


def candidate(**changes: Any) -> dict[str, Any]:
    return document()["candidates"][0]["spec"] | {"steps": 6} | changes
