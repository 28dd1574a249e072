r"""Training of a federated spec: over Flower, or simulated, one node after the other, each with its own units, sample and noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from zetadp.trainer.algorithms.federated.coordinated import CoordinatedRounds
from zetadp.trainer.algorithms.federated.remote_sites import RemoteSites
from zetadp.trainer.engine import NoisyGradients
from zetadp.trainer.engine.membership import at_nodes
from zetadp.trainer.engine.run import run
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.report import RunReport, TrainingEvent


def train(
    spec: FederatedZetaDpSgd,
    plan: ExecutionPlan,
    runtime: RuntimeSpec,
    workdir: Path,
    *,
    report: Callable[[TrainingEvent], None],
    should_stop: Callable[[], bool],
) -> RunReport:
    r"""Runs ``plan`` to its end, as ``zeta_dp_sgd``'s ``train`` does; a step is a round in which every node takes part.

    The event is one node's. It is every unit's guarantee for this reason: a unit u is at node k alone. Fix everything that was released in
    earlier rounds. The vectors of the other nodes are functions of it, of their own data and of their own randomness: their law is the
    same with u and without. Node k's vector is a Poisson-sampled release whose sum u moves by at most the clipping bound, with node k's
    whole noise on it. So the joint law of a round's vectors differs as node k's does, rounds compose adaptively, and the server's step
    is a function of what was released. Nothing was assumed of the server or of other nodes: they may see and combine all vectors.

    With cyclic samples and correlated noise each node encodes its own sums, and its releases are one place's: see mechanisms/proofs/
    banded_sums.md, 7.

    With secure aggregation a round's output is one sum over at least the accounted number of honest nodes: see mechanisms/proofs/
    secure_sum.md for what a server can get, and shared_noise.md for why the same event holds. The simulation adds the integers up
    without masks.

    Raises as ``run``.
    """
    if spec.transport != "simulated":
        sites = CoordinatedRounds(spec, plan, partial(RemoteSites, spec, plan))
        return run(sites, runtime, workdir, report=report, should_stop=should_stop)
    algorithm = NoisyGradients(spec, plan, partial(at_nodes, spec.nodes, spec.distribution_seed))
    return run(algorithm, runtime, workdir, report=report, should_stop=should_stop)
