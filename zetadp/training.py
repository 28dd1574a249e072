r"""``train``: a caller's own module, trained privately in the caller's program, and the certificate of it."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import TensorDataset

from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.facts.run import CertificateInput
from zetadp.app.certificates.facts.statement import CERTIFICATE_FILE, MODEL_FILE, SPEC_FILE
from zetadp.app.certificates.issuing.issue import issue_certificate, spec_file
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import read
from zetadp.app.kit.settings import Settings
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.own_module.evaluation import (
    Held,
    PrivateRecords,
    PublicRecords,
    are_labels,
    asked_evaluation,
    held_tensors,
)
from zetadp.trainer.algorithms.own_module.handover import first_weights
from zetadp.trainer.algorithms.own_module.optimization import TorchOptimization
from zetadp.trainer.algorithms.own_module.preparation import (
    CODE_FILE,
    code_of,
    defined,
    losses_of,
    name_of,
    released,
    trainable,
    weights_of,
)
from zetadp.trainer.algorithms.own_module.sources import write_code_list
from zetadp.trainer.algorithms.own_module.training import OwnTraining, Rows
from zetadp.trainer.data.base import DataSetFacts
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine.checkpoint import read_tensors
from zetadp.trainer.engine.environment import prepare_torch
from zetadp.trainer.engine.gradients.inputs import add_to_digest, features_of, inputs_and_target, kinds_of, parts_of
from zetadp.trainer.engine.gradients.lazy_rows import MappedRecords, Records, lazy
from zetadp.trainer.engine.network_run import Optimization
from zetadp.trainer.engine.run import MODEL, run
from zetadp.trainer.errors import TrainingInterrupted, TrainingStopped
from zetadp.trainer.layers.flat_parameters import ParameterLayout, as_real
from zetadp.trainer.progress import CERTIFIED, CertifiedTraining
from zetadp.trainer.specs.algorithms.own_module import ModuleFacts, OwnModule, OwnRecords
from zetadp.trainer.specs.base import PrivacyTarget, RuntimeSpec
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.findings.runs import CanaryAudit
from zetadp.trainer.specs.network_training import FlatMethod, PerLayerMethod
from zetadp.trainer.specs.report import Progress, RunReport
from zetadp.watching import held_alone, interruptible, named_by_argument, watched

Data = tuple[Any, ...] | Mapping[str, Any] | TensorDataset | Records
"""(input, ..., target) as tensors or arrays, (records, ...) each; inputs by name, ``({"mask": ...}, target)``, or with the target as
"labels"; a ``TensorDataset``; or a map-style data set whose items are any of these for one record."""

WORK, ID_FILE = "training", "id"
"""The folder of the checkpoint, in the run's."""
KEYS_FILE = "jwks.json"
METHODS = {"flat": FlatMethod(), "per_layer": PerLayerMethod()}
OWN = "The caller's own records, read in its program."


@final
@dataclass(frozen=True)
class Trained:
    r"""What ``train`` returns.

    Attributes:
      module: a copy of the caller's module with the trained parameters.
      certificate: the signed certificate, as ``zetadp verify`` reads it; it lies in ``folder`` with the files that it names.
      folder: of the run.
      report: what was done.
      spec: what the certificate's digest of ``spec.json`` covers.
    """

    module: nn.Module
    certificate: bytes
    folder: Path
    report: RunReport
    spec: OwnModule


def train(
    module: nn.Module,
    loss: Callable[..., Tensor],
    data: Data,
    *,
    delta: float,
    unit: str,
    clipping_bound: float,
    expected_batch_size: int,
    steps: int,
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
    folder: str | Path,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    scheduler: Callable[[Optimizer], LRScheduler] | None = None,
    clipping: Literal["flat", "per_layer"] = "flat",
    users: Sequence[object] | None = None,
    records_per_user: int | None = None,
    declared_units: int | None = None,
    evaluation: PublicRecords | PrivateRecords | None = None,
    canaries: int | None = None,
    seed: int | None = None,
    description: str = OWN,
    runtime: RuntimeSpec | None = None,
    callback: Callable[[Progress], None] | None = None,
    progress: bool = False,
    settings: Settings | None = None,
) -> Trained:
    r"""Trains a module by DP-SGD and certifies it.

    Each step takes a Poisson sample of the units, clips each unit's gradient over all trained parameters (complex ones as real pairs),
    adds exact Gaussian noise to the sum, divides by the expected batch size, and gives the result to the optimizer as the gradient.
    A run that was interrupted is resumed by the same call. Neighbours differ by one unit that one of them lacks.

    Args:
      module: complex, real or mixed; parameters that don't require a gradient stay as they are and count as public, as the initial weights
        do. Each row of its output has to depend on the same row of its input alone: ``zetadp.check`` says which part doesn't.
      loss: (outputs, targets) -> each record's own loss; torch's losses are asked for it (``reduction="none"``).
      data: see ``Data``. A map-style data set is read when its records are sampled.
      epsilon: to which the noise is calibrated, for the whole run; either this or ``noise_multiplier``.
      delta: in (0, 1).
      unit: what is protected: the name of one row of the data ("record", "image"), or of the user whose rows they are.
      clipping_bound: B > 0, in l2.
      expected_batch_size: units expected in a sample, a public number.
      steps: noisy gradients that are released.
      optimizer: gives torch's optimizer of the parameters, for example ``partial(torch.optim.Adam, lr=1e-3)``.
      folder: where checkpoint, model and certificate are written.
      scheduler: gives the schedule of that optimizer; stepped after every step.
      clipping: of the whole gradient, or of each layer to ``clipping_bound / sqrt(layers)``.
      users: each record's user, where users are the units, with ``records_per_user``: how many of a user's first records are used.
      declared_units: N, a public number of units known without counting them; None if their number is public.
      evaluation: records to measure on, public or paid for. Metrics are in ``Trained.report``, and in the bar on the way.
      canaries: made-up records, 100 to 10000, that bound epsilon from below and cost nothing but time and a little accuracy.
      seed: makes the run reproducible, and without any guarantee against those who know it.
      description: of the data, for the certificate.
      runtime: device, microbatch size and the like: none of it changes the result's guarantee.
      callback: gets step and epsilon so far, at most twice a second. To end the run because of what it says is a choice by the outputs: the
        certificate is for all planned steps.
      progress: draw a bar on standard error: steps, epsilon so far, time left. Where that is no terminal, a line now and then.
      settings: whose folder holds the key that signs; by default that of ``ZETADP_DATA_DIR``.
    Raises:
      InvalidParameter: an argument is out of its range, or module, loss and data can't be trained on privately.
      CheckpointRefused: the folder holds another run.
      TrainingDiverged: the parameters stopped being finite.
      TrainingInterrupted: after Ctrl-C (a KeyboardInterrupt); the same call goes on from the checkpoint.
    """
    asked = Asked(
        module=module,
        loss=loss,
        data=data,
        epsilon=epsilon,
        noise_multiplier=noise_multiplier,
        delta=delta,
        unit=unit,
        clipping_bound=clipping_bound,
        clipping=clipping,
        expected_batch_size=expected_batch_size,
        steps=steps,
        users=users,
        records_per_user=records_per_user,
        declared_units=declared_units,
        evaluation=evaluation,
        canaries=canaries,
        seed=seed,
        description=description,
        folder=Path(folder),
        runtime=runtime or RuntimeSpec(),
        settings=settings or Settings(),
    )
    run_of = OwnRun(asked, lambda trained, layout: TorchOptimization(trained, layout, optimizer, scheduler), optimizer, scheduler)
    with held_alone(run_of.work), interruptible() as is_interrupted, watched(callback, draws=progress) as tell:
        run_of.keep_code()
        try:
            report = run(run_of.algorithm, asked.runtime, run_of.work, report=tell, should_stop=is_interrupted)
        except TrainingStopped as stopped:
            raise TrainingInterrupted(stopped.step, str(folder)) from stopped
        return run_of.certified(report)


@final
@dataclass(frozen=True)
class Asked:
    """What ``train`` and ``private`` are asked for alike; see ``train``."""

    module: nn.Module
    loss: Callable[..., Tensor]
    data: Data
    epsilon: float | None
    noise_multiplier: float | None
    delta: float
    unit: str
    clipping_bound: float
    clipping: str
    expected_batch_size: int
    steps: int
    users: Sequence[object] | None
    records_per_user: int | None
    declared_units: int | None
    evaluation: Held
    canaries: int | None
    seed: int | None
    description: str
    folder: Path
    runtime: RuntimeSpec
    settings: Settings


class Described(Optimization, Protocol):
    """An optimization that says what it is, for a certificate."""

    @property
    def described(self) -> str: ...


@final
class OwnRun:
    r"""A run in the caller's program: what is trained, by which plan, and the certificate at its end.

    Args:
      optimize: gives what makes use of the released gradients of this module.
      code: the caller's functions that do.
    Raises:
      InvalidParameter: as ``train``.
    """

    def __init__(self, asked: Asked, optimize: Callable[[nn.Module, ParameterLayout], Described], *code: object) -> None:
        if (method := METHODS.get(asked.clipping)) is None:
            raise InvalidParameter("clipping", " or ".join(map(repr, METHODS)), asked.clipping)
        self._asked, self._started, self.work = asked, datetime.now(UTC), asked.folder / WORK
        module, device = asked.module, prepare_torch(asked.runtime)
        trained = trainable(module).to(device)
        layout = ParameterLayout.of(trained)
        features, targets, digest = _rows(asked.data, device)
        held = held_tensors(asked.evaluation, device)
        facts = _measured(_facts(features, digest, asked.unit, asked.users, asked.description), held[1])
        optimization = optimize(trained, layout)
        functions = (asked.loss, *code)
        self._code, self._trained = code_of(module, *functions), trained
        self._modules = {one.__module__ or "builtins" for one in defined(module, *functions)}
        with named_by_argument():
            privacy = PrivacyTarget(
                adjacency=Adjacency.ADD_REMOVE,
                unit=asked.unit,
                delta=asked.delta,
                epsilon=asked.epsilon,
                noise_multiplier=asked.noise_multiplier,
            )
            self.spec = OwnModule(
                data=OwnRecords.of(facts),
                module=ModuleFacts(
                    name=type(module).__qualname__,
                    code_sha256=hashlib.sha256(self._code.encode()).hexdigest(),
                    weights_sha256=first_weights(self.work, weights_of(module), asked.steps),
                    constants_sha256=weights_of(module, but=layout.names),
                    loss=name_of(asked.loss),
                    optimizer=optimization.described,
                    is_complex=any(parameter.is_complex() for parameter in trained.parameters()),
                    trained=layout.real_parameters,
                    frozen=sum(as_real(one.detach()).numel() for one in module.parameters() if not one.requires_grad),
                ),
                privacy=privacy,
                clipping_bound=asked.clipping_bound,
                clipping=method,
                expected_batch_size=asked.expected_batch_size,
                steps=asked.steps,
                records_per_user=asked.records_per_user,
                declared_units=asked.declared_units,
                evaluation=asked_evaluation(asked.evaluation),
                audit=None if asked.canaries is None else CanaryAudit(canaries=asked.canaries),
                reproducible=asked.seed is not None,
                seed=asked.seed,
            )
            self.plan = self.spec.plan()
        losses = losses_of(asked.loss)
        self.algorithm = OwnTraining(self.spec, self.plan, trained, losses, features, targets, asked.users, held, optimization)

    def keep_code(self) -> None:
        """Lists the code that this attempt began with."""
        write_code_list(self._asked.folder / CODE_FILE, self._code, self._modules)

    def certified(self, report: RunReport) -> Trained:
        """Signs what was done, and writes it beside the model."""
        folder, settings = self._asked.folder, self._asked.settings
        (folder / SPEC_FILE).write_bytes(spec_file(self.spec))
        self.keep_code()
        shutil.copyfile(self.work / MODEL, folder / MODEL_FILE)
        given = CertificateInput(
            job_id=_run_id(self.work / ID_FILE),
            spec=self.spec,
            runtime=self._asked.runtime,
            plan=self.plan,
            report=report,
            artifacts={name: folder / name for name in (MODEL_FILE, CODE_FILE)},
            started=self._started,
            finished=datetime.now(UTC),
            attempts=report.resumptions + 1,
        )
        certificate = issue_certificate(given, settings)
        (folder / CERTIFICATE_FILE).write_bytes(certificate)
        (folder / KEYS_FILE).write_text(jwks(settings).model_dump_json(indent=2) + "\n", encoding="utf-8")
        if (trainings := CERTIFIED.get()) is not None:
            trainings.append(_summary(certificate, folder, self.plan, report))
        module = _released(self._asked.module, self._trained, folder / MODEL_FILE, prepare_torch(self._asked.runtime))
        return Trained(module, certificate, folder, report, self.spec)


def _measured(facts: DataSetFacts, targets: Tensor) -> DataSetFacts:
    """The same with the records that the module is measured on."""
    return DataSetFacts(**(dict(facts) | {"test_records": len(targets), "task": "classification" if are_labels(targets) else "other"}))


def _rows(data: Data, device: torch.device) -> tuple[Rows, Rows, str]:
    """Features, targets and their digest."""
    given = data.tensors if isinstance(data, TensorDataset) else data
    if not isinstance(given, tuple | Mapping):
        return lazy(given, device)
    inputs, target = inputs_and_target(given)
    if any(isinstance(one, np.memmap) for one in (*inputs.values(), target)):
        return lazy(MappedRecords(inputs, target), device)
    features, targets = features_of({name: _tensor(one) for name, one in inputs.items()}), _tensor(target)
    digest = hashlib.sha256(f"{len(features)} {kinds_of(features, targets)}".encode())
    add_to_digest(digest, features, targets)
    return features.to(device), targets.to(device), digest.hexdigest()


def _tensor(given: Any) -> Tensor:
    return given.detach() if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))


def _facts(features: Rows, digest: str, unit: str, users: Sequence[object] | None, description: str) -> DataSetFacts:
    counts = [] if users is None else list(np.unique(np.asarray(users), return_counts=True)[1])
    if users is not None and len(users) != len(features):
        raise InvalidParameter("users", f"{len(features)}, one for each record", len(users))
    parts = list(parts_of(features).values())
    return DataSetFacts(
        training_records=len(features),
        test_records=0,
        shape=tuple(parts[0].shape[1:]) or (1,) if len(parts) == 1 else (sum(one[0].numel() for one in parts),),
        is_complex=any(one.is_complex() for one in parts),
        task="other",
        classes=None,
        unit=unit if users is None else "record",
        user_unit=None if users is None else unit,
        users=None if users is None else len(counts),
        largest_user=None if users is None else int(max(counts)),
        sha256=digest,
        description=description,
    )


def _run_id(path: Path) -> str:
    """Of the run in this folder: drawn once, by chance, so that it says nothing about spec or data."""
    if not path.exists():
        write_atomically(path, f"own-{secrets.token_hex(16)}".encode())
    return path.read_text(encoding="utf-8")


def _summary(certificate: bytes, folder: Path, plan: ExecutionPlan, report: RunReport) -> CertifiedTraining:
    guarantee = read(certificate).guarantee
    return CertifiedTraining(
        folder=str(folder),
        certificate=str(folder / CERTIFICATE_FILE),
        epsilon=float(guarantee.epsilon) if isinstance(guarantee, ApproximateDp) else None,
        delta=plan.delta,
        steps=plan.steps,
        steps_released=report.steps_released,
        stopped_early=report.steps_released < plan.steps,
    )


def _released(module: nn.Module, trained: nn.Module, model: Path, device: torch.device) -> nn.Module:
    """The caller's module with the parameters of the model file."""
    _, kept = read_tensors(model, "it was written just now")
    values = {name: torch.view_as_complex(kept[name]) if one.is_complex() else kept[name] for name, one in trained.named_parameters()}
    return released(module, values).to(device)


__all__ = ["Data", "Trained", "train"]
