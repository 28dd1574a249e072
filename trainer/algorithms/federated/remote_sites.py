r"""A federation's sites, reached over Flower or NVFLARE: from a job's spec and its coordinator's settings to rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from zetadp.mechanisms import ComplexGaussian
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.engine.checkpoint import checkpointed_step
from zetadp.trainer.engine.run import CHECKPOINT, MODEL, Setting
from zetadp.trainer.errors import TrainingStopped
from zetadp.trainer.sites.flare_line import FlareLine
from zetadp.trainer.sites.flower_line import FlowerLine
from zetadp.trainer.sites.forms import integers_released
from zetadp.trainer.sites.keys import load_key, public_text
from zetadp.trainer.sites.local_line import LocalLine
from zetadp.trainer.sites.messages import HEAD, MOST_BYTES, PARTS_BYTES
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import FederationRecord
from zetadp.trainer.sites.rounds import Rounds
from zetadp.trainer.sites.secure.rounds import SecureRounds
from zetadp.trainer.sites.settings import CoordinatorSettings, read_settings
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import FEDERATION_VARIABLE, SignedProposal, SiteRecord
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.report import SitesStanding, Stage

TELL_SECONDS: Final = 10.0


@final
class RemoteSites:
    r"""See ``Sites``.

    Raises:
      InvalidParameter: this machine has no coordinator's settings, they are for another transport, or its key isn't the spec's.
    """

    def __init__(self, spec: FederatedZetaDpSgd, plan: ExecutionPlan, setting: Setting) -> None:
        path = os.environ.get(FEDERATION_VARIABLE)
        if path is None:
            raise InvalidParameter(FEDERATION_VARIABLE, "the path of a coordinator's settings, in the worker's environment", None)
        self._settings = read_settings(CoordinatorSettings, Path(path))
        self._key, self._proposal, self._setting = load_key(self._settings.key), Proposal.of(spec, plan), setting
        if public_text(self._key) != self._proposal.federation.coordinator:
            raise InvalidParameter(
                "federation.coordinator", f"{public_text(self._key)}, this machine's", self._proposal.federation.coordinator
            )
        self._record = FederationRecord(setting.workdir, self._proposal.federation)
        self._line = self._line_of(spec.transport)
        self._is_complex = isinstance(plan.mechanism, ComplexGaussian)
        self._open = ExitStack()
        self._rounds: Rounds | SecureRounds | None = None
        self._written, self._told = 0, 0.0
        self._answered: frozenset[int] | None = None

    def __enter__(self) -> Self:
        starting = "starting Flower's server, and waiting" if self._settings.relay is None else "waiting for NVFLARE's controller, and"
        self._setting.report(Stage(doing=f"{starting} for the sites"))
        self._open.enter_context(self._line)
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def round(self, number: int, parameters: NDArray[np.float32]) -> Mapping[int, NDArray[np.int64]]:
        if self._rounds is None:
            self._rounds = self._made(len(parameters))
        found = self._rounds.round(number, parameters)
        self._forget()
        self._tell(number, self._rounds)
        return found

    def _line_of(self, transport: str) -> LocalLine:
        relay = self._settings.relay
        if transport != ("flower" if relay is None else "nvflare"):
            raise InvalidParameter("transport", "'flower' with listen in the coordinator's settings, 'nvflare' with relay", transport)
        if relay is None:
            return FlowerLine(self._settings, self._setting.workdir / "flower", self._still_wanted)
        return FlareLine(relay, self._still_wanted)

    def _made(self, parameters: int) -> Rounds | SecureRounds:
        settings, setting = self._settings, self._setting
        numbers = integers_released(parameters, is_complex=self._is_complex)
        self._line.largest = HEAD + MOST_BYTES * numbers
        if self._proposal.plan.aggregation is not None:
            self._line.largest += PARTS_BYTES
            return SecureRounds(
                proposal=self._proposal,
                key=self._key,
                line=self._line,
                record=self._record,
                folder=setting.workdir,
                numbers=parameters,
                should_stop=setting.should_stop,
                round_seconds=settings.round_seconds,
                first_seconds=settings.first_seconds,
            )
        return Rounds(
            proposal=self._proposal,
            key=self._key,
            line=self._line,
            record=self._record,
            numbers=numbers,
            should_stop=setting.should_stop,
            round_seconds=settings.round_seconds,
            first_seconds=settings.first_seconds,
        )

    def records(self) -> tuple[SiteRecord, ...]:
        return self._record.finished((self._setting.workdir / MODEL).parent)

    @property
    def proposal(self) -> SignedProposal:
        return self._proposal.signed

    def _tell(self, number: int, rounds: Rounds | SecureRounds) -> None:
        """How the sites stand: whenever that changed, now and then, and after the last round."""
        answered, now = rounds.answered, time.monotonic()
        if answered == self._answered and now - self._told < TELL_SECONDS and number < self._proposal.plan.steps:
            return
        self._answered, self._told = answered, now
        self._setting.report(SitesStanding(round=number, rounds=self._proposal.plan.steps, sites=rounds.standing()))

    def _forget(self) -> None:
        # Reading it takes a while: only where it was written anew.
        path = self._setting.workdir / CHECKPOINT
        written = path.stat().st_mtime_ns if path.exists() else 0
        if written != self._written:
            self._written = written
            step = checkpointed_step(path)
            self._record.forget(step)
            if isinstance(self._rounds, SecureRounds):
                self._rounds.forget(step)

    def _still_wanted(self) -> None:
        if self._setting.should_stop():
            raise TrainingStopped(self._setting.resumed_from or 0)
