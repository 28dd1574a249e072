r"""What the REST interface shows of a recipe, in addition to the recipe's own words."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field

from zetadp.mechanisms.base import Count, Extended, OpenProbability, Positive, PrivacyUnit, Probability, Value
from zetadp.mechanisms.errata import Paper
from zetadp.trainer.recipes import DeclaredData, MeasuredResult, PrintedEpsilon, PrintedResult


@final
class ProvenEpsilon(Value):
    r"""What the engine proves about a run: at most ``epsilon`` at ``delta``, for one ``unit``.

    Attributes:
      epsilon: the upper end of the bracket; ``epsilon_lower`` is its lower end.
      pure_epsilon: the run is (pure_epsilon, 0)-DP as well; null if it is for no finite epsilon, or if something is sampled.
      sampling_probability: of one unit in one step; null if nothing is sampled.
      noise_multiplier: std per real component / l2 sensitivity, of Laplace noise scale / l1 sensitivity; null if no noise is added, or
        if each part of a comparison has its own.
      steps: noisy sums released, or steps of training on what was released at once.
    """

    epsilon: Extended
    epsilon_lower: Extended
    delta: OpenProbability
    unit: PrivacyUnit
    pure_epsilon: Positive | None
    sampling_probability: Probability | None
    noise_multiplier: Positive | None
    steps: Count


@final
class DataAvailability(Value):
    r"""Whether the files of the recipe's data set are where this service looks.

    Attributes:
      folder: its place below ``ZETADP_DATA_SETS_DIR``; null if a library brings it.
      missing: what is missing; null if the data set is available.
      original: the data set that the paper used.
    """

    kind: str
    folder: str | None
    available: bool
    missing: str | None
    original: str


@final
class RecipeEntry(Value):
    r"""One recipe: what the paper did and printed, what is proven, and how this run differs.

    Attributes:
      compared_result: of ``printed_results`` the one that this run can be held against: not one without privacy, at the run's epsilon
        where the paper prints several, of the paper's own method where it has one; null if there is none.
      measured: what this recipe reached here, by epsilon; another data set may do better or worse.
      declared: sizes of the data set that the recipe is made for.
      proven: for this recipe's own run, from the plan's event for a data set of those sizes; a job is planned with the actual sizes.
        Null if the run guarantees nothing.
      no_guarantee: why it guarantees nothing; null if it does.
      proven_as_printed: for the paper's rate, noise and steps, in the reading that is sound; null if the paper gives no such numbers.
      submission: where to get the ready body for ``POST /v1/jobs``.
    """

    name: str
    title: str
    paper: Paper | None
    reference: str
    algorithm: str
    hyper_parameters: str
    printed_results: tuple[PrintedResult, ...]
    compared_result: PrintedResult | None
    printed_epsilons: tuple[PrintedEpsilon, ...]
    declared: DeclaredData
    measured: tuple[MeasuredResult, ...]
    proven: ProvenEpsilon | None
    no_guarantee: str | None
    proven_as_printed: ProvenEpsilon | None
    differences: tuple[str, ...]
    errata: tuple[str, ...]
    data: DataAvailability
    submission: Annotated[str, Field(examples=["/v1/recipes/digits"])]
