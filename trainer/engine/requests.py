r"""A plan comes calibrated from the submission: what it shares with its spec must be equal, or its event would be of another run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from mechanisms.base import Value
from mechanisms.errors import InvalidParameter
from trainer.data import DataSetFacts
from trainer.models.spec import ModelSpec
from trainer.network_training import NetworkTraining
from trainer.plan import ExecutionPlan
from trainer.plans import AnyPlan
from trainer.spec import TrainingSpec


def check_plan(spec: NetworkTraining, plan: ExecutionPlan, facts: DataSetFacts) -> None:
    """Raises InvalidParameter, naming the first part of the plan that isn't the one the spec comes to."""
    multiplier = spec.privacy.noise_multiplier
    # Noise calibrated to an epsilon isn't calibrated again here: whatever it is, the event names it.
    std = plan.mechanism.noise_scale if multiplier is None else multiplier * plan.clipping.sensitivity
    expected = dict(_fields("plan", spec.plan_with(facts, std)))
    got = dict(_fields("plan", plan))
    for name in dict.fromkeys((*expected, *got)):
        if expected.get(name) == got.get(name):
            continue
        if name in expected and expected[name] is not None:
            raise InvalidParameter(name, f"{expected[name]!r}, as the spec says", got.get(name))
        # A bound that clipping doesn't enforce, say.
        raise InvalidParameter(name, "absent, as the spec says", got.get(name))


def request_digest(spec: TrainingSpec, plan: AnyPlan, facts: DataSetFacts) -> str:
    """SHA-256 of all that decides what a run does; no other run may continue from its checkpoint."""
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


def _fields(path: str, value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Value):
        for name in type(value).model_fields:
            yield from _fields(f"{path}.{name}", getattr(value, name))
    else:
        yield path, value
