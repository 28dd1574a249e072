r"""Repetitions of each training of a distributed autoencoder, side by side in one network, by the service's own engine.

R repetitions with m encoders are one network of R m encoders, each of which sees its own repetition's rows: encoders share no weight, so
what one repetition draws never meets another's rows. Divisors grow by R, and learning rates of plain SGD with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.functional_mechanism.sums_release import released, weights
from zetadp.trainer.engine import Alone, PrivateLoop, Site, TrainingState, initial_state, update
from zetadp.trainer.engine.autoencoders import SLOPES, Autoencoder, ClippedRows, RowDescent, TrainingRows, initial_parameters, layout_of
from zetadp.trainer.engine.autoencoders.batches import Batches
from zetadp.trainer.engine.autoencoders.denoising import denoised
from zetadp.trainer.engine.autoencoders.printed import PrintedSlopes, printed_gradient, sensed
from zetadp.trainer.engine.autoencoders.statistics import Code
from zetadp.trainer.engine.noise.randomness import FreshRandomness
from zetadp.trainer.engine.noise.torch_source import TorchSource
from zetadp.trainer.specs.algorithms.dp_sgd_laplace import DpSgdLaplace
from zetadp.trainer.specs.algorithms.functional_mechanism import FunctionalMechanism
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.autoencoder import AutoencoderDescent, AutoencoderShape
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.execution_plan import ExecutionPlan, L1Clipping
from zetadp.trainer.specs.plans import RecordReleasePlan, StatisticReleasePlan
from zetadp.trainer.specs.printed import PrintedTraining
from zetadp.trainer.specs.sampling import PoissonSampling

BEYOND = 1e30
"""Weights beyond it have diverged: their squares leave float32. They are set to 0, so that no other repetition meets them, and counted."""

PROCESSOR = torch.device("cpu")

AT_ONCE = 5
"""Repetitions of DP-SGD side by side: its rows meet all encoders, so that more would cost more than one after the other."""


@dataclass(frozen=True)
class Table:
    r"""Rows to train on and to score, and how they are used.

    Attributes:
      training, test: (rows, n) float32 in [0, 1].
      encoders: m.
      sensors: standard deviation of environmental noise.
      repetitions: R.
    """

    training: Tensor
    test: Tensor
    encoders: int
    sensors: float
    repetitions: int

    def network(self, hidden: int) -> Autoencoder:
        """All repetitions' encoders in one network."""
        shape = AutoencoderShape(encoders=self.encoders * self.repetitions, features=self.training.shape[1], hidden=hidden)
        return Autoencoder.of(shape, PROCESSOR)

    def as_sensed(self) -> Tensor:
        """What reaches a service that clips to [0, 1], a draw for each repetition, (R, rows, n)."""
        many = self.training.expand(self.repetitions, -1, -1)
        return many if self.sensors == 0.0 else (many + self.sensors * torch.randn(many.shape)).clamp(0.0, 1.0)

    def dealt(self, rows: Tensor) -> Tensor:
        """Rows (R, rows, n), row i of a repetition at encoder i mod m of it: (R rows, n), row k at encoder k mod R m."""
        parts = rows.reshape(self.repetitions, -1, self.encoders, rows.shape[2])
        return parts.transpose(0, 1).reshape(-1, rows.shape[2])

    def places(self) -> Tensor:
        """Of the rows that ``dealt`` gives."""
        return torch.arange(self.repetitions * len(self.training)) % (self.encoders * self.repetitions)

    def scores(self, network: Autoencoder, parameters: Tensor, sensors: float, *, clipped: bool) -> Tensor:
        """1 - mean squared error of the outputs on test rows as sensed, against the rows themselves, (R,)."""
        count, m = len(self.test), self.encoders
        inputs = self.test.to(parameters.dtype).repeat(self.repetitions, 1)
        if sensors:
            inputs = inputs + sensors * torch.randn(inputs.shape, dtype=inputs.dtype)
            inputs = inputs.clamp(0.0, 1.0) if clipped else inputs
        places = (torch.arange(self.repetitions)[:, None] * m + torch.arange(count) % m).flatten()
        found = network.forward(parameters, inputs, network.masks_of(places).to(parameters.dtype))
        outputs = torch.sigmoid(found.logits).view(self.repetitions, count, -1)
        return 1.0 - (outputs - self.test).square().mean(dim=(1, 2))


class Result(NamedTuple):
    r"""Of the repetitions that didn't diverge.

    Attributes:
      scores: on clean test rows.
      sensed: on test rows with the sensors' noise; the same where there is none.
      diverged: repetitions of which there are no scores.
    """

    scores: Tensor
    sensed: Tensor
    diverged: int


def _result(table: Table, network: Autoencoder, parameters: Tensor, *, clipped: bool, lost: Tensor | None = None) -> Result:
    kept = torch.ones(table.repetitions, dtype=torch.bool) if lost is None else ~lost.view(table.repetitions, -1).any(dim=1)
    clean = table.scores(network, parameters, 0.0, clipped=clipped)
    noisy = clean if table.sensors == 0.0 else table.scores(network, parameters, table.sensors, clipped=clipped)
    return Result(clean[kept], noisy[kept], int((~kept).sum()))


def _joined(parts: Sequence[Result]) -> Result:
    return Result(torch.cat([one.scores for one in parts]), torch.cat([one.sensed for one in parts]), sum(one.diverged for one in parts))


def _start(spec: AutoencoderDescent, network: Autoencoder) -> TrainingState:
    parameters = initial_parameters(spec, network.shape, RandomStream.from_operating_system())
    return TrainingState(0, parameters, initial_state(spec.optimizer, parameters), 1.0)


def plain(table: Table, spec: Spof) -> Result:
    """The rows as they are, without privacy."""
    return _descended(table, spec, table.as_sensed())


def local(table: Table, spec: Spof, plan: RecordReleasePlan) -> Result:
    """Each row released once, and what training makes of the released ones."""
    source = TorchSource(RandomStream.from_operating_system(), PROCESSOR)
    rows = [
        denoised(plan.mechanism.release(each.double(), source), plan.mechanism, spec.method.denoising).float() for each in table.as_sensed()
    ]
    return _descended(table, spec, torch.stack(rows))


def _descended(table: Table, spec: Spof, rows: Tensor) -> Result:
    network, dealt = table.network(spec.hidden), table.dealt(rows)
    descent = RowDescent(
        network=network,
        inputs=dealt,
        targets=dealt,
        places=table.places(),
        slopes_of=SLOPES[spec.loss],
        optimizer=spec.optimizer,
        batch_size=spec.batch_size * table.repetitions,
        steps=spec.steps,
    )
    state = _start(spec, network)
    while state.step < spec.steps:
        state = descent.step(state)
    return _result(table, network, state.parameters, clipped=True)


def noisy_descent(table: Table, spec: DpSgdLaplace, plan: ExecutionPlan) -> Result:
    """DP-SGD's own loop, on some repetitions' rows at once: a row is in a sample or not, independently of all others."""
    if table.repetitions > AT_ONCE:
        first, rest = replace(table, repetitions=AT_ONCE), replace(table, repetitions=table.repetitions - AT_ONCE)
        return _joined((noisy_descent(first, spec, plan), noisy_descent(rest, spec, plan)))
    network = table.network(spec.hidden)
    rows = TrainingRows(table.dealt(table.as_sensed()), table.places(), None)
    size = plan.sampling.expected_batch_size * table.repetitions
    several = ExecutionPlan(
        sampling=PoissonSampling(records=len(rows.features), expected_batch_size=size),
        clipping=plan.clipping,
        mechanism=plan.mechanism,
        steps=plan.steps,
        delta=plan.delta,
    )

    def optimizer(state: dict[str, Tensor], parameters: Tensor, gradient: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        return update(spec.optimizer, state, parameters, gradient * table.repetitions, step, plan.steps)

    loop = PrivateLoop(
        clipped=ClippedRows(network, rows, SLOPES[spec.loss], "l1" if isinstance(plan.clipping, L1Clipping) else "l2"),
        layout=layout_of(network),
        plan=several,
        sites=(Site(torch.arange(len(rows.features)), FreshRandomness()),),
        optimizer=optimizer,
        team=Alone(),
    )
    start = _start(spec, network)
    state = TrainingState(0, start.parameters, start.optimizer, plan.clipping.bound)
    while state.step < plan.steps:
        state = loop.step(state)
    return _result(table, network, state.parameters, clipped=True)


def functional(table: Table, spec: FunctionalMechanism, plan: StatisticReleasePlan) -> Result:
    """One release of the sums in each repetition. Rows of all users go to its one encoder."""
    alone = Table(table.training, table.test, 1, table.sensors, 1)
    network, found = alone.network(spec.hidden), []
    for rows in table.as_sensed():
        code = Code.of(rows.shape[1], spec.hidden, spec.spread, RandomStream.from_operating_system())
        source = TorchSource(RandomStream.from_operating_system(), PROCESSOR)
        found.append(_result(alone, network, weights(spec, plan, code, released(plan, code, rows, source)), clipped=True))
    return _joined(found)


def printed(table: Table, spec: PrintedTraining, slopes_of: PrintedSlopes, epochs: int) -> Result:
    """A printed algorithm: a step is one row of every encoder, whose updates touch that encoder's weights alone."""
    assert isinstance(spec.optimizer, Sgd)  # another one would move encoders whose rows wait
    network = table.network(spec.hidden)
    network = Autoencoder(network.shape, network.masks.double())
    rows = table.dealt(table.training.double().expand(table.repetitions, -1, -1))
    encoders = network.shape.encoders
    source = TorchSource(RandomStream.from_operating_system(), PROCESSOR)
    parameters = _start(spec, network).parameters.double()
    lost = torch.zeros(encoders, dtype=torch.bool)
    rate = spec.optimizer.learning_rate * encoders  # the gradient is a mean over as many rows
    # Rows are in turns of one for every encoder; the turns are shuffled.
    turns = Batches((rows.view(-1, encoders, rows.shape[1]),), 1)
    for step in range(epochs * (len(rows) // encoders)):
        (turn,) = turns.after(step)
        seen = sensed(network, parameters, turn[0], network.masks, spec.environmental_noise_std, source)
        parameters = parameters - rate * printed_gradient(network, parameters, seen, slopes_of(seen, turn[0], source))
        lost |= _drop_diverged(network, parameters)
    return _result(table, network, parameters, clipped=False, lost=lost)


def _drop_diverged(network: Autoencoder, parameters: Tensor) -> Tensor:
    """Sets the weights of diverged encoders to 0, in place; which they are, (encoders,)."""
    parts = network.split(parameters)
    lost = torch.stack([~(part.abs() < BEYOND).flatten(1).all(dim=1) for part in parts.values()]).any(dim=0)
    for part in parts.values():
        part[lost] = 0.0
    return lost
