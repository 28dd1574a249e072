r"""The request to a training process, and how the process ends. Free of torch."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import StringConstraints

from zetadp.mechanisms.base import Count, Value
from zetadp.trainer import AnyTrainingSpec
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import AnyPlan, ComparisonPlan

REQUEST, RESULT = "request.json", "result.json"
"""Files in the process's folder: the request that it reads, and the report that it writes."""
NOISE_KEY, RELEASES = ".noise-key", "artifacts/releases.txt"
"""The secret of a run that an auditor may repeat, where there is one, and the digests of what the run released."""
FINISHED, FAILED, STOPPED, ORPHANED, LOST = 0, 1, 3, 4, 6
"""Exit codes of ``python -m zetadp.trainer.child``."""


@final
class TrainingRequest(Value):
    """The worker's request; the plan was calibrated before the job was queued."""

    spec: AnyTrainingSpec
    runtime: RuntimeSpec
    plan: AnyPlan


@final
class RunSecret(Value):
    r"""What one process of a run that an auditor may repeat draws from, as it stands in its folder until it is read.

    Attributes:
      secret: 32 bytes in hexadecimal, the same in every attempt.
      attempt: which start of the job this process is; no two processes have the same.
    """

    secret: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
    attempt: Count


def why_not_repeatable(spec: AnyTrainingSpec, runtime: RuntimeSpec, plan: AnyPlan) -> str | None:
    """Why no auditor can repeat such a run from a secret that its plan is committed to; None if one can."""
    if isinstance(plan, ComparisonPlan | SelectionPlan):
        is_selection = isinstance(plan, SelectionPlan)
        return "whoever repeats it would see all runs" if is_selection else "the trainings of a comparison would share their noise"
    if runtime.processes != 1:
        return f"the run is shared by {runtime.processes} processes, and only one would draw from the key"
    if isinstance(spec, FederatedZetaDpSgd) and (found := _in_a_federation(spec)) is not None:
        return found
    if spec.reproducible:
        return "the noise follows from the seed"
    if not plan.is_protected:
        return "nothing that the run releases is protected by noise"
    return None


def _in_a_federation(spec: FederatedZetaDpSgd) -> str | None:
    if spec.federation is not None:
        return "the noise is drawn at the sites, from random numbers of their own"
    return None if spec.aggregation is None else "what a node adds to a secure sum isn't a release of its own, and isn't written down"
