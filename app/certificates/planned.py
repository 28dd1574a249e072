r"""What a spec comes to on its data, beside the plan that a run was made from. The noise isn't calibrated again: the event names it."""

from __future__ import annotations

from collections.abc import Iterator

from app.certificates.errors import CertificateRefused
from app.certificates.statement import MODEL_FILE
from mechanisms.base import Value
from trainer import AnyPlan, AnyTrainingSpec
from trainer.autoencoder import AutoencoderSpec
from trainer.comparison.spec import Comparison
from trainer.data import DataSetFacts
from trainer.models.spec import Sequential
from trainer.models.weights import GivenWeights
from trainer.network_training import NetworkTraining
from trainer.non_private.spec import NonPrivateTraining
from trainer.obfuscation.spec import Obfuscation
from trainer.parts import AnyPartSpec
from trainer.plan import ExecutionPlan
from trainer.plans import ComparedPlan, ComparisonPlan


def replanned(spec: AnyTrainingSpec, plan: AnyPlan, facts: DataSetFacts) -> AnyPlan:
    r"""The spec's plan for these data, with the noise of ``plan`` where that was calibrated.

    Raises:
      CertificateRefused: spec and plan are of different kinds, or a comparison's have different parts.
      PrivacyError: the spec doesn't fit the data.
    """
    if not isinstance(spec, Comparison):
        return _part(spec, plan, facts)
    names = [run.name for run in spec.runs()]
    if not isinstance(plan, ComparisonPlan) or names != [part.name for part in plan.parts]:
        raise CertificateRefused("the parts", names, [part.name for part in plan.parts] if isinstance(plan, ComparisonPlan) else None)
    parts = zip(spec.runs(), plan.parts, strict=True)
    plans = ({"name": run.name, "plan": _part(run.spec, part.plan, facts)} for run, part in parts)
    return ComparisonPlan(parts=tuple(ComparedPlan.model_validate(part) for part in plans))


def differences(expected: AnyPlan, plan: AnyPlan) -> Iterator[tuple[str, object, object]]:
    """(field, what the spec comes to, what the plan has) for every field of either."""
    first, second = dict(_fields("plan", expected)), dict(_fields("plan", plan))
    for path in dict.fromkeys((*first, *second)):
        yield path, first.get(path), second.get(path)


def has_counts(plan: AnyPlan) -> bool:
    """Whether noisy counts of held-out records are in the event, in every part of a comparison."""
    plans = [part.plan for part in plan.parts] if isinstance(plan, ComparisonPlan) else [plan]
    return all(isinstance(one, ExecutionPlan) and one.evaluation is not None for one in plans)


def model_files(plan: AnyPlan) -> tuple[str, ...]:
    """Names of the models that a run of this plan leaves."""
    if not isinstance(plan, ComparisonPlan):
        return (MODEL_FILE,)
    return tuple(f"{part.name}.{MODEL_FILE}" for part in plan.parts)


def given_weights(spec: AnyTrainingSpec) -> tuple[str, ...]:
    """SHA-256 of the weights that training started from instead of drawing its own, of every part of a comparison; each once, sorted."""
    specs: list[AnyPartSpec] = [part.spec for part in spec.parts] if isinstance(spec, Comparison) else [spec]
    models = (one.model for one in specs if isinstance(one, NetworkTraining | NonPrivateTraining))
    given = (model.initial_weights for model in models if isinstance(model, Sequential))
    return tuple(sorted({weights.sha256 for weights in given if isinstance(weights, GivenWeights)}))


def _part(spec: AnyPartSpec, plan: AnyPlan, facts: DataSetFacts) -> AnyPlan:
    if isinstance(spec, AutoencoderSpec | Obfuscation):
        return spec.replanned(facts, plan)
    if isinstance(spec, NetworkTraining) and isinstance(plan, ExecutionPlan):
        multiplier = spec.privacy.noise_multiplier
        return spec.plan_with(facts, plan.noise_std if multiplier is None else multiplier * plan.clipping.sensitivity)
    return spec.plan_for(facts)


def _fields(path: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Value):
        if "kind" not in type(value).model_fields:
            yield f"{path} is", type(value).__name__
        for name in type(value).model_fields:
            yield from _fields(f"{path}.{name}", getattr(value, name))
    elif isinstance(value, tuple):
        yield f"{path}, how many", len(value)
        for index, part in enumerate(value):
            yield from _fields(f"{path}[{index}]", part)
    else:
        yield path, value
