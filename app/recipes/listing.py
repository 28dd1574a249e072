r"""Recipes as this service can run them: with or without their data, and with what is proven about each."""

from __future__ import annotations

import math
from functools import lru_cache

from zetadp.accountants import profile
from zetadp.accountants.events import Event, non_private_reason
from zetadp.app.certificates.facts.claims import pure_epsilon
from zetadp.app.jobs.resources import JobSubmission
from zetadp.app.recipes.errors import RecipeNotFound
from zetadp.app.recipes.schemas import DataAvailability, ProvenEpsilon, RecipeEntry
from zetadp.mechanisms import DuchiLinf
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.recipes import RECIPES, Recipe, recipe
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.plans import AnyPlan, ComparisonPlan, UnprotectedPlan

LABEL = "recipe"
"""The label that a job made from a recipe has, so that ``GET /v1/jobs?label=recipe=NAME`` finds it."""


def entries() -> list[RecipeEntry]:
    """Every recipe, whether or not its data set is available."""
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
    """One recipe. No data set is read: only the existence of its files is checked, and the guarantee is for the declared sizes."""
    missing = _missing(of)
    proven, no_guarantee = _proven(of.name)
    return RecipeEntry(
        name=of.name,
        title=of.title,
        paper=of.paper,
        reference=of.reference,
        algorithm=of.spec.algorithm,
        hyper_parameters=of.hyper_parameters,
        printed_results=of.printed_results,
        compared_result=of.compared_result,
        printed_epsilons=of.printed_epsilons,
        declared=of.declared,
        measured=of.measured,
        proven=proven,
        no_guarantee=no_guarantee,
        proven_as_printed=_proven_as_printed(of.name),
        differences=of.differences,
        errata=of.errata,
        data=DataAvailability(
            kind=of.spec.data.kind, folder=of.folder, available=missing is None, missing=missing, original=of.original_data
        ),
        submission=f"/v1/recipes/{of.name}",
    )


def _missing(of: Recipe) -> str | None:
    """What is missing, in the reader's own words; None if every file exists."""
    try:
        of.spec.data.sources()
    except InvalidParameter as error:
        return str(error)
    return None


@lru_cache(maxsize=64)
def _proven(name: str) -> tuple[ProvenEpsilon | None, str | None]:
    """What is proven, or why nothing is."""
    found = recipe(name)
    assert found is not None  # it is being listed
    plan = found.declared_plan()
    if (reason := non_private_reason(plan.event)) is not None:
        return None, reason
    bound = profile(plan.event, accountant="auto").epsilon(plan.delta)
    proven = ProvenEpsilon(
        epsilon=bound.upper,
        epsilon_lower=bound.lower,
        delta=plan.delta,
        unit=plan.unit,
        pure_epsilon=_pure(plan.event),
        sampling_probability=plan.sampling_probability,
        noise_multiplier=_multiplier(plan),
        steps=plan.steps,
    )
    return proven, None


def _pure(event: Event) -> float | None:
    pure = pure_epsilon(event)
    return None if pure is None else math.nextafter(float(pure), math.inf)


def _multiplier(plan: AnyPlan) -> float | None:
    """Noise multiplier of the training; counts of held-out records have their own."""
    if isinstance(plan, ComparisonPlan | SelectionPlan | UnprotectedPlan) or isinstance(plan.mechanism, DuchiLinf):
        return None
    sensitivity = plan.mechanism.sensitivity
    # Noise of a pure guarantee is for an l1 norm, all other for an l2 norm.
    norm = sensitivity.stated_l2 if plan.mechanism.privacy_loss().pure_epsilon is None else sensitivity.stated_l1
    return plan.mechanism.noise_scale / norm


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
        pure_epsilon=None,
        sampling_probability=run.sampling_probability,
        noise_multiplier=run.noise_multiplier,
        steps=run.steps,
    )
