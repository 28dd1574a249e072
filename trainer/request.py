r"""The request to a training process, and how the process ends. Free of torch."""

from __future__ import annotations

from typing import final

from zetadp.mechanisms.base import Value
from zetadp.trainer import AnyTrainingSpec
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.plans import AnyPlan

REQUEST, RESULT = "request.json", "result.json"
"""Files in the process's folder: the request that it reads, and the report that it writes."""
NOISE_KEY, RELEASES = ".noise-key", "artifacts/releases.txt"
"""The secret key of a run that an auditor may repeat, where there is one, and the digests of what the run released."""
FINISHED, FAILED, STOPPED, ORPHANED, LOST = 0, 1, 3, 4, 6
"""Exit codes of ``python -m zetadp.trainer.child``."""


@final
class TrainingRequest(Value):
    """The worker's request; the plan was calibrated before the job was queued."""

    spec: AnyTrainingSpec
    runtime: RuntimeSpec
    plan: AnyPlan
