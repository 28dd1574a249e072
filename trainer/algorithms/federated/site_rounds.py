r"""A site's rounds: the simulation's own loop, with the units of one site, the site's data, and integers for an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.algorithms.federated.integers import RecordingRandomness
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.data.splits import Keys
from zetadp.trainer.engine.environment import prepare_torch
from zetadp.trainer.engine.loop import TrainingState
from zetadp.trainer.engine.membership import at_one_place, units_at_nodes
from zetadp.trainer.engine.network_run import NoisyGradients, PreparedNetwork
from zetadp.trainer.engine.noise.randomness import randomness_of
from zetadp.trainer.engine.requests import request_digest
from zetadp.trainer.engine.run import Setting
from zetadp.trainer.engine.self_test import described
from zetadp.trainer.engine.team.interface import Alone, Team
from zetadp.trainer.sites.agreements import check_proposal, spec_at_site
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import Share, SiteSettings
from zetadp.trainer.specs.report import TrainingEvent


@final
@dataclass(frozen=True)
class _Places:
    """All units of the data, or its share of them, are at one site; nobody's are at the others."""

    number: int
    sites: int
    share: Share | None

    def __call__(self, units: int, keys: Callable[[], Keys]) -> tuple[Tensor, ...]:
        if self.share is None:
            own = at_one_place(units, keys)[0]
        else:
            own = units_at_nodes(keys(), self.share.sites, self.share.seed)[self.share.number]
        return tuple(own if number == self.number else own[:0] for number in range(self.sites))


@final
class SiteRounds:
    r"""The rounds of one federation at one site, in memory.

    Args:
      public: the site's public key.
    Raises:
      InvalidParameter: as ``check_proposal``, and if the network can't be trained privately on this machine.
    """

    def __init__(self, proposal: Proposal, settings: SiteSettings, public: str) -> None:
        check_proposal(proposal, settings, public)
        spec, plan = spec_at_site(proposal, settings), proposal.plan
        number = proposal.federation.number(settings.name)
        assert number is not None  # it was checked
        self._number, self._record = number, RecordingRandomness(randomness_of(spec.seed, number, Alone()))

        def randomness(seed: int | None, place: int, team: Team) -> RecordingRandomness:
            return self._record if place == number else RecordingRandomness(randomness_of(seed, place, team))

        spec.check_runtime(settings.runtime)
        places = _Places(number, spec.nodes, settings.share)
        # What a secure sum takes is integers already; otherwise they are what is recorded.
        algorithm = NoisyGradients(spec, plan, places, randomness if plan.aggregation is None else randomness_of)
        facts = data_set_facts(spec.data)
        setting = Setting(
            facts=facts,
            runtime=settings.runtime,
            workdir=Path(settings.state),
            device=prepare_torch(settings.runtime, 1),
            team=Alone(),
            digest=request_digest(spec, plan, facts),
            resumed_from=None,
            report=_unheard,
            should_stop=_never,
        )
        _ = described(setting.device)  # whose self-test has to pass here, where noise is drawn
        self._prepared: PreparedNetwork = algorithm.prepare(setting)
        start = self._prepared.initial_state()
        if start.parameters.dtype != torch.float32:
            raise InvalidParameter("model", "one in float32", str(start.parameters.dtype))
        self._prepared.begin(start)
        self._device, self._bound = setting.device, start.bound
        self.numbers = len(start.parameters)

    def draw(self, number: int, parameters: NDArray[np.float32]) -> NDArray[np.int64]:
        """The integers of a round's noisy sum, anew each time: whoever calls makes sure that it is once for a round."""
        state = TrainingState(number - 1, torch.from_numpy(parameters).to(self._device), {}, self._bound)
        loop = self._prepared.loop
        try:
            released = loop.released(state, loop.layout.unflatten(state.parameters), self._number)
            return self._record.taken() if loop.shares is None else released.to(torch.int64).cpu().numpy()
        finally:
            self._record.forget()  # where something failed after the draw


def _unheard(_event: TrainingEvent) -> None:
    """What happens at a site stays there."""


def _never() -> bool:
    return False
