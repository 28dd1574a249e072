r"""Recipes as this service can run them: with or without their data, and with what is proved of each."""

from __future__ import annotations

from functools import lru_cache

from accountants import profile
from app.jobs.resources import JobSubmission
from app.recipes.errors import RecipeNotFound
from app.recipes.schemas import DataAvailability, ProvenEpsilon, RecipeEntry
from mechanisms.errors import InvalidParameter
from trainer.recipes import RECIPES, Recipe, recipe

LABEL = "recipe"
"""The label that a job made from a recipe has, so that ``GET /v1/jobs?label=recipe=NAME`` finds it."""


def entries() -> list[RecipeEntry]:
    """Every recipe, whether or not its data set is here."""
    return [entry_of(known) for known in RECIPES]


def submission_of(name: str) -> JobSubmission:
    """The body of a job that runs this recipe.

    Raises:
      RecipeNotFound: there is none of this name.
    """
    if (found := recipe(name)) is None:
        raise RecipeNotFound(name, tuple(known.name for known in RECIPES))
    return JobSubmission(spec=found.spec, labels={LABEL: found.name})


def entry_of(of: Recipe) -> RecipeEntry:
    """One recipe. No data set is read: whether its files are there is looked up, and the guarantee is for the declared sizes."""
    missing = _missing(of)
    return RecipeEntry(
        name=of.name,
        title=of.title,
        paper=of.paper,
        reference=of.reference,
        algorithm=of.spec.algorithm,
        hyper_parameters=of.hyper_parameters,
        printed_results=of.printed_results,
        printed_epsilons=of.printed_epsilons,
        declared=of.declared,
        proven=_proven(of.name),
        proven_as_printed=_proven_as_printed(of.name),
        differences=of.differences,
        errata=of.errata,
        data=DataAvailability(
            kind=of.spec.data.kind, folder=of.folder, available=missing is None, missing=missing, original=of.original_data
        ),
        submission=f"/v1/recipes/{of.name}",
    )


def _missing(of: Recipe) -> str | None:
    """What isn't there, in the reader's own words; None where every file is."""
    try:
        of.spec.data.sources()
    except InvalidParameter as error:
        return str(error)
    return None


@lru_cache(maxsize=64)
def _proven(name: str) -> ProvenEpsilon:
    found = recipe(name)
    assert found is not None  # it is being listed
    plan = found.declared_plan()
    l2 = plan.mechanism.sensitivity.l2
    assert l2 is not None  # clipping gives it
    bound = profile(plan.event, accountant="auto").epsilon(plan.delta)
    return ProvenEpsilon(
        epsilon=bound.upper,
        epsilon_lower=bound.lower,
        delta=plan.delta,
        unit=plan.mechanism.sensitivity.unit,
        sampling_probability=plan.sampling.probability,
        noise_multiplier=plan.mechanism.noise_scale / l2,
        steps=plan.steps,
    )


@lru_cache(maxsize=64)
def _proven_as_printed(name: str) -> ProvenEpsilon | None:
    found = recipe(name)
    if found is None or found.printed_run is None:
        return None
    run = found.printed_run
    bound = profile(run.event, accountant="auto").epsilon(run.delta)
    return ProvenEpsilon(
        epsilon=bound.upper,
        epsilon_lower=bound.lower,
        delta=run.delta,
        unit=run.unit,
        sampling_probability=run.sampling_probability,
        noise_multiplier=run.noise_multiplier,
        steps=run.steps,
    )
