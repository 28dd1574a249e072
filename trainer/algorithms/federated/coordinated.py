r"""A federation's run at its coordinator: each step's noisy sums come from the sites, everything after them is the simulation's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.federated.integers import released_from
from zetadp.trainer.data.splits import Keys
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.engine import NoisyGradients
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.network_run import PreparedNetwork
from zetadp.trainer.engine.noise.torch_source import GENERATOR
from zetadp.trainer.engine.publisher import Evaluation
from zetadp.trainer.engine.run import Ending, Model, PreparedRun, Setting
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import SignedProposal, SiteRecord
from zetadp.trainer.specs.execution_plan import ExecutionPlan

FIRST_PARAMETERS: Final = "first_parameters"
"""In a run's folder: the parameters that it begins with."""


class Sites(Protocol):
    """The sites, however they are reached. As a context, they are connected."""

    def __enter__(self) -> object: ...

    def __exit__(self, *raised: object) -> None: ...

    def round(self, number: int, parameters: NDArray[np.float32]) -> Mapping[int, NDArray[np.int64]]:
        r"""What arrived of a round, by the sites' numbers: integers of one length for all.

        Where only their sum becomes known, it is one site's and the others have zeros.

        Raises:
          TrainingStopped: a stop was requested while it waited.
        """
        ...

    def records(self) -> Sequence[SiteRecord]:
        """What became of every site's part; called once, at the end."""
        ...

    @property
    def proposal(self) -> SignedProposal:
        """What they agreed to."""
        ...


Connecting = Callable[[Setting], Sites]
"""The circumstances of a run -> its sites."""


@final
@dataclass(frozen=True)
class CoordinatedRounds:
    """See ``Algorithm``: the sites' side of the spec is elsewhere, and none of its units are here."""

    spec: FederatedZetaDpSgd
    plan: ExecutionPlan
    connecting: Connecting

    @property
    def steps_release(self) -> bool:
        return True

    def prepare(self, setting: Setting) -> PreparedRun:
        inner = NoisyGradients(self.spec, self.plan, _Nobody(self.spec.nodes)).prepare(setting)
        return _PreparedRounds(self.plan, setting.workdir, inner, self.connecting(setting))


@final
@dataclass(frozen=True)
class _Nobody:
    """No unit of the coordinator's data set takes part."""

    nodes: int

    def __call__(self, _units: int, _keys: Callable[[], Keys]) -> tuple[Tensor, ...]:
        return (torch.arange(0),) * self.nodes


@final
class _PreparedRounds(PreparedRun):
    def __init__(self, plan: ExecutionPlan, workdir: Path, inner: PreparedNetwork, sites: Sites) -> None:
        self._plan, self._workdir, self._inner, self._sites = plan, workdir, inner, sites

    @property
    def evaluation(self) -> Evaluation:
        return self._inner.evaluation

    def initial_state(self) -> TrainingState:
        state = self._inner.initial_state()
        if state.parameters.dtype != torch.float32:
            raise InvalidParameter("model", "one in float32 where nodes are sites", str(state.parameters.dtype))
        # Drawn once: sites that answered the first round answer it again for these parameters alone, however often this process dies.
        path = self._workdir / FIRST_PARAMETERS
        if path.exists():
            first = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)
            return self._inner.state_from(first.to(state.parameters.device))
        write_atomically(path, state.parameters.cpu().numpy().tobytes())
        return state

    def begin(self, start: TrainingState) -> None:
        self._inner.begin(start)

    def working(self) -> AbstractContextManager[object]:
        return self._sites

    def step(self, state: TrainingState) -> TrainingState:
        found = self._sites.round(state.step + 1, state.parameters.cpu().numpy())
        return self._inner.loop.advanced(state, self._sum(state, found))

    def _sum(self, state: TrainingState, found: Mapping[int, NDArray[np.int64]]) -> Tensor:
        """The sum of what arrived, in the order of the sites: as the simulation adds it up, to the bit."""
        loop, arrived = self._inner.loop, None
        like = loop.silence(state).to(loop.released_dtype(state.parameters.dtype))
        if loop.shares is not None:
            total = sum(found.values(), np.zeros(len(like), np.int64))
            value = loop.shares.value(torch.from_numpy(total), len(found))
            return like if value is None else value.to(like.device)
        for number in sorted(found):
            update = released_from(self._plan.mechanism, found[number], like)
            arrived = update.clone() if arrived is None else arrived.add_(update)
        return like if arrived is None else arrived

    def model(self, state: TrainingState) -> Model:
        return self._inner.model(state)

    def finish(self, state: TrainingState) -> Ending:
        ending = self._inner.finish(state)
        # Noise and samples were drawn at the sites: nobody has tested them here.
        sites, proposal = tuple(self._sites.records()), self._sites.proposal
        return Ending(ending.origin, GENERATOR, ending.parameters, sites=sites, proposal=proposal)
