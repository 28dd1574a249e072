r"""A finished run as a certificate sees it, and whether it is the run that was planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import final

from app.certificates.errors import CertificateRefused
from app.certificates.statement import MODEL_FILE
from mechanisms import RandomOrigin
from trainer import AnyTrainingSpec, ExecutionPlan, RuntimeSpec
from trainer.data import DataSetFacts
from trainer.report import RunReport


@final
@dataclass(frozen=True)
class CertificateInput:
    r"""A finished run, as the worker saw it.

    Attributes:
      job_id: of the job.
      spec: what was asked for; ``spec.json`` beside the certificate is its canonical JSON.
      runtime: what it ran with; nothing of it changes the guarantee.
      plan: what training ran from.
      report: what training says it did.
      artifacts: files to be named in the certificate, by name; ``model.safetensors`` among them.
      started, finished: aware times.
      attempts: how often a worker took the job up; >= 1.
    """

    job_id: str
    spec: AnyTrainingSpec
    runtime: RuntimeSpec
    plan: ExecutionPlan
    report: RunReport
    artifacts: Mapping[str, Path]
    started: datetime
    finished: datetime
    attempts: int

    @property
    def protects_users(self) -> bool:
        """Whether a unit is somebody with several records, whose summed gradient is clipped."""
        return self.spec.records_per_user is not None


def check_run(given: CertificateInput, facts: DataSetFacts) -> None:
    """Raises CertificateRefused, naming the first thing in which the run, its spec, its plan and its data disagree."""
    plan, report = given.plan, given.report
    origin = RandomOrigin.USER_SEED if given.spec.reproducible else RandomOrigin.OPERATING_SYSTEM
    unit, units = (facts.user_unit, facts.users) if given.protects_users else (facts.unit, facts.training_records)
    pairs: tuple[tuple[str, object, object], ...] = (
        ("the number of released steps", plan.steps, report.steps_released),
        ("the noise per real component", plan.mechanism.noise_scale, report.noise_std),
        ("the event", plan.event, report.event),
        ("the number of training records", facts.training_records, report.training_records),
        ("the number of units in the training data", plan.sampling.records, report.training_units),
        ("the number of units in the data set", units, report.training_units),
        ("the number of held-out records", facts.test_records, report.test_records),
        ("the privacy unit", unit, plan.mechanism.sensitivity.unit),
        ("what the held-out records are", _held_out(given), report.held_out),
        ("private evaluations", given.spec.evaluation.kind == "private_accuracy", plan.evaluation is not None),
        ("the clipping", given.spec.clipping.kind, plan.clipping.kind),
        ("the origin of the randomness", origin.value, report.random_origin.value),
        ("a model file", MODEL_FILE, next((name for name in given.artifacts if name == MODEL_FILE), None)),
    )
    for what, planned, reported in pairs:
        if planned != reported:
            raise CertificateRefused(what, planned, reported)
    for what, time in (("the start", given.started), ("the end", given.finished)):
        if time.tzinfo is None:
            raise CertificateRefused(f"the time of {what}", "a time with its zone", time.isoformat())


def _held_out(given: CertificateInput) -> str:
    return {"none": "none", "public_held_out": "public", "private_accuracy": "private"}[given.spec.evaluation.kind]
