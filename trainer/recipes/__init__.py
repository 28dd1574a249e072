r"""THE REGISTRY of recipes, free of torch: experiments that are ready to run, each a spec with what its paper printed beside it."""

from __future__ import annotations

from trainer.recipes.digits import DIGITS, DIGITS_DEMO
from trainer.recipes.recipe import Metric, PrintedEpsilon, PrintedResult, PrintedRun, Recipe

RECIPES: tuple[Recipe, ...] = (DIGITS,)


def recipe(name: str) -> Recipe | None:
    """The recipe of this name, or None.

    >>> recipe("digits").spec.steps
    400
    """
    return next((known for known in RECIPES if known.name == name), None)


__all__ = ["DIGITS_DEMO", "RECIPES", "Metric", "PrintedEpsilon", "PrintedResult", "PrintedRun", "Recipe", "recipe"]
