r"""Errors of the recipes. They carry data and know nothing of HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final


@final
class RecipeNotFound(LookupError):
    """No recipe has this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        super().__init__(f"there is no recipe {name!r}; there are {', '.join(known)}")
