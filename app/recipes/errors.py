r"""Errors of the recipes. They carry data, and each says how a request is answered with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from zetadp.app.kit.errors import ProblemType, ServiceError


@final
class RecipeNotFound(ServiceError):
    """No recipe has this name."""

    problem = ProblemType(404, "recipe-not-found", "No such recipe.")

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        super().__init__(f"there is no recipe {name!r}; there are {', '.join(known)}")
