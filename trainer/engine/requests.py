r"""What a run's files say about their origin: the digest of the run's request, and the network's architecture."""

from __future__ import annotations

import hashlib
import json

from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.specs.base import TrainingSpec
from zetadp.trainer.specs.models.named_networks import ModelSpec
from zetadp.trainer.specs.plan_base import Plan


def request_digest(spec: TrainingSpec, plan: Plan, facts: DataSetFacts) -> str:
    """SHA-256 of everything that decides what a run does; no other run may continue from its checkpoint."""
    whole = {"spec": spec.model_dump(mode="json"), "plan": plan.model_dump(mode="json"), "data": facts.sha256}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def architecture(spec: TrainingSpec, model: ModelSpec, facts: DataSetFacts) -> str:
    """What a reader of the model file needs to build the network again, as JSON."""
    return json.dumps(
        {
            "format": "zetadp model 2",
            "algorithm": spec.algorithm_name(),
            "model": model.model_dump(mode="json"),
            "shape": list(facts.shape),
            "is_complex": facts.is_complex,
            "task": facts.task,
            "classes": facts.classes,
            "layout": "float32; the last axis of a complex parameter is (real, imaginary)",
        },
        sort_keys=True,
    )
