"""A federation of two made-up sites: its spec, its proposal, its sites' settings, and sites that draw numbers without any network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from zetadp.trainer.sites.agreements import DOMAIN as AGREED
from zetadp.trainer.sites.agreements import Agreement, agreements_in
from zetadp.trainer.sites.keys import make_key, public_text
from zetadp.trainer.sites.ledger import SiteLedger, make_ledger
from zetadp.trainer.sites.messages import Opened, Refusal, RoundRequest, Statement, digest, opened, read, sealed
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteBudget
from zetadp.trainer.sites.site import Site
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd

NUMBERS = 5
"""Parameters of the made-up network; it isn't the spec's."""
DATA: dict[str, Any] = {"kind": "digits_phase_pairs", "split_seed": 0, "test_fraction": 0.2}
Draw = Callable[[int, NDArray[np.float32]], NDArray[np.int64]]


def spec_of(coordinator: str, sites: Sequence[str], **changes: Any) -> FederatedZetaDpSgd:
    """A federation of these public keys, whose sites are a, b, ..."""
    named = [{"name": chr(ord("a") + number), "key": key} for number, key in enumerate(sites)]
    document = {
        "data": DATA,
        "model": {"kind": "complex_mlp", "hidden": [4], "activation": "cardioid", "head": "real_part"},
        "server": {"kind": "fed_adam", "learning_rate": 0.01},
        "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 1.0},
        "clipping_bound": 1.0,
        "expected_batch_size": 30,
        "steps": 6,
        "nodes": len(sites),
        "distribution_seed": 0,
        "declared_units": 700,
        "evaluation": {"kind": "public_held_out"},
        "transport": "flower",
        "federation": {"name": "made-up", "coordinator": coordinator, "sites": named},
    }
    return FederatedZetaDpSgd.model_validate(document | changes)


class MadeUp:
    """A coordinator, and the first of two sites with a ledger of its own; ``draws`` counts what was drawn."""

    def __init__(self, folder: Path, *, epsilon: float = 100.0, draw: Draw | None = None) -> None:
        self.folder, self.coordinator = folder, Ed25519PrivateKey.generate()
        self.key = make_key(folder / "site.pem")
        self.other = Ed25519PrivateKey.generate()
        self.public = public_text(self.key)
        self.budget = SiteBudget.model_validate({"epsilon": epsilon, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"})
        self.proposal = self.proposed()
        make_ledger(folder / "ledger.sqlite")
        self.agree(self.proposal)
        self.draws: list[int] = []
        self.failures: list[Exception] = []
        self.site = self.opened(draw)

    def proposed(self, **changes: Any) -> Proposal:
        """What the coordinator proposes."""
        spec = spec_of(public_text(self.coordinator), (self.public, public_text(self.other)), **changes)
        return Proposal.of(spec, spec.plan())

    def agree(self, proposal: Proposal) -> None:
        """The operator signs; whether the proposal fits is tested where the data are."""
        signature = self.key.sign(AGREED + proposal.digest.encode()).hex()
        folder = self.folder / "agreements"
        folder.mkdir(exist_ok=True)
        (folder / f"{proposal.digest}.json").write_text(Agreement(proposal=proposal, signature=signature).model_dump_json())

    @property
    def ledger(self) -> SiteLedger:
        """The site's ledger, opened once more."""
        return SiteLedger(self.folder / "ledger.sqlite", self.budget.budget, self.budget.adjacency, self.budget.unit)

    def opened(self, draw: Draw | None = None) -> Site:
        """A new process of the site, as it were."""

        def drawn(number: int, parameters: NDArray[np.float32]) -> NDArray[np.int64]:
            self.draws.append(number)
            return np.arange(NUMBERS) + 1000 * len(self.draws) if draw is None else draw(number, parameters)

        agreed = agreements_in(self.folder / "agreements", self.public)
        return Site("a", self.key, self.ledger, lambda: agreed, lambda _proposal: (NUMBERS, drawn), self.failures.append)

    def request(
        self,
        number: int,
        parameters: Sequence[float] = (0.0,) * NUMBERS,
        proposal: str | None = None,
        key: Ed25519PrivateKey | None = None,
    ) -> bytes:
        """The coordinator's request for a round."""
        payload = np.asarray(parameters, "<f4").tobytes()
        asked = RoundRequest(proposal=proposal or self.proposal.digest, round=number, numbers=len(parameters), payload=digest(payload))
        return sealed(asked, payload, key or self.coordinator)

    def reason(self, frame: bytes) -> str:
        """Why the site refuses this."""
        found = opened(self.site.answer(frame))
        assert found.is_by(self.public)
        return read(Refusal, found).reason


def statement_of(frame: bytes) -> tuple[Statement, Opened]:
    """A statement, and the frame's parts."""
    found = opened(frame)
    return read(Statement, found), found
