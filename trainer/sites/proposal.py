r"""What a coordinator proposes and each site's operator signs: training, plan, network and code, by one digest."""

from __future__ import annotations

import json
from typing import Literal, Self, final

from pydantic import model_validator

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.code import code_digest
from zetadp.trainer.sites.messages import Sha256, digest
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import Federation, SignedProposal
from zetadp.trainer.specs.execution_plan import ExecutionPlan


@final
class Proposal(Value):
    r"""A federation, before it begins.

    Attributes:
      spec: with ``transport`` flower or nvflare.
      plan: the spec's, with its noise: what every site draws from, and what its epsilon follows from.
      network: SHA-256 of the network's description.
      code: SHA-256 of the code that every site runs (``code_digest``).
    Raises:
      ValidationError: the parts aren't of one training.
    """

    format: Literal["zetadp federation proposal 1"] = "zetadp federation proposal 1"
    spec: FederatedZetaDpSgd
    plan: ExecutionPlan
    network: Sha256
    code: Sha256

    @classmethod
    def of(cls, spec: FederatedZetaDpSgd, plan: ExecutionPlan, code: Sha256 | None = None) -> Self:
        """The proposal of this training, with the code that is installed here if no other's digest is given."""
        return cls(spec=spec, plan=plan, network=_network(spec), code=code_digest() if code is None else code)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.spec.federation is None:
            raise InvalidParameter("spec.transport", "flower or nvflare", self.spec.transport)
        if self.network != (expected := _network(self.spec)):
            raise InvalidParameter("network", f"{expected}, that of the spec's network", self.network)
        if (self.plan.sampling.kind, self.plan.sampling.nodes) != ("federated_poisson", self.spec.nodes):
            raise InvalidParameter("plan.sampling", f"federated_poisson with {self.spec.nodes} nodes", self.plan.sampling.kind)
        if self.plan.steps != self.spec.steps or self.plan.delta != self.spec.privacy.delta:
            raise InvalidParameter("plan", "the spec's", self.plan.steps)
        if self.plan.strategy is not None or self.plan.projection is not None:
            raise InvalidParameter("plan", "of independent noise on the whole gradient", self.plan.kind)
        if self.plan.clipping.IN_BOUNDS:
            raise InvalidParameter("plan.clipping", "of a bound that stays the same: sites agree to one", self.plan.clipping.kind)
        if self.plan.aggregation != self.spec.aggregation:
            raise InvalidParameter("plan.aggregation", "the spec's", self.plan.aggregation)
        return self

    @property
    def federation(self) -> Federation:
        """Who takes part."""
        assert self.spec.federation is not None  # checked at construction
        return self.spec.federation

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return digest(_canonical(self))

    @property
    def signed(self) -> SignedProposal:
        """The digests, as a run's report names what its sites agreed to."""
        return SignedProposal(digest=self.digest, network=self.network, code=self.code)


def _canonical(value: Value) -> bytes:
    return json.dumps(value.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()


def _network(spec: FederatedZetaDpSgd) -> str:
    return digest(_canonical(spec.model))
