r"""GET /v1/recipes: experiments that are ready to run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.recipes.listing import entries, submission_of
from zetadp.app.recipes.schemas import RecipeEntry

router = APIRouter(prefix="/recipes", tags=["recipes"])


@router.get("", summary="List recipes: experiments that are ready to run")
def list_recipes() -> list[RecipeEntry]:
    """What each paper did and printed, what is proven about its run and ours, how the two differ, and whether the data set is available."""
    return entries()


@router.get("/{name}", summary="Get a recipe as the body of a job")
def read_recipe(name: Annotated[str, Path(max_length=64, examples=["digits"])]) -> JobSubmission:
    """Send it to `POST /v1/jobs` unchanged or with your changes."""
    return submission_of(name)
