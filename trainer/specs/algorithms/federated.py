r"""The spec of zeta-DP-SGD across nodes that trust neither the server nor each other."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Adjacency, is_absent
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DigitsPhasePairs
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation
from zetadp.trainer.specs.algorithms.federation import Federation
from zetadp.trainer.specs.base import PrivacyTarget, Seed
from zetadp.trainer.specs.descent import AnyOptimizer, FedAdam, ServerOptimizer
from zetadp.trainer.specs.models.model_spec import ComplexMlp
from zetadp.trainer.specs.network_training import BoundedTraining, PublicHeldOut
from zetadp.trainer.specs.samplers import CyclicPoissonSampler, PoissonSampler
from zetadp.trainer.specs.sampling import LARGEST_FEDERATION, FederatedCyclicSampling, FederatedSampling

_SAMPLERS = "poisson or cyclic_poisson in a federation: nodes' samples of other kinds have no guarantee that is proved here"


def _is_simulated(transport: object) -> bool:
    return transport == "simulated"


@final
class FederatedZetaDpSgd(BoundedTraining):
    r"""In every round every node adds noise to the clipped sum of a Poisson sample of its units, and divides by a public constant.

    The server averages what the nodes send, over all nodes, and takes a step of its optimizer. A node that sends nothing, or something
    not finite, counts as zero: the divisor stays the public number of nodes, and its units' guarantee is still charged for the round.
    With correlated noise every node has its own: the server subtracts what follows from that node's releases before, and a node whose
    release didn't arrive begins anew, as does the server for it.

    Attributes:
      nodes: the number of nodes; at most the units of privacy. A hash assigns each unit to a node separately, a user with all records.
      distribution_seed: public; a unit's node follows from it and from that unit alone, so one more unit moves nobody else.
      transport: ``simulated`` trains all nodes in one place. With ``flower`` or ``nvflare`` they're sites of their own, which that
        connects: ``data`` are then the coordinator's, of which only shape and held-out records are used, and ``declared_units`` is
        required.
      federation: who takes part; given if and only if they're sites.
      aggregation: only the sum of all nodes' vectors becomes known, and each adds a share of the noise; None where every node adds its
        whole noise.
      server: the server's optimizer; ``fed_adam`` is that of Reddi et al. 2021.
      expected_batch_size: units expected in one node's sample if it has an equal share of all units.
      sampling: poisson, or cyclic_poisson where the federation is simulated: the group whose turn it is is the same at all nodes.
      noise: correlated only where the federation is simulated, each node with its whole noise, and sampling is cyclic_poisson.
      (others): as in ``BoundedTraining``; ``privacy`` is what each node guarantees its units against the server and all other nodes, with
        ``aggregation`` against the server and up to ``colluding`` other nodes together.
    Raises:
      InvalidParameter: from ``plan``, where the spec doesn't fit the data set.
    """

    SUMMARY: ClassVar[str] = "Federated zeta-DP-SGD: every node clips and adds its own noise; the server averages and optimizes."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Riess, Ziller, Kolek, Rueckert, Schnabel and Kaissis 2024, Algorithm 1 and section 5",
        "Reddi et al. 2021, arXiv:2003.00295, Algorithm 2 (the server's step)",
        "Abadi et al. 2016, arXiv:1607.00133",
        "Andrew, Thakkar, McMahan and Ramaswamy 2021, arXiv:1905.03871 (adaptive clipping)",
        "Tang, Shpilevskiy and Lécuyer 2023, arXiv:2312.14334 (corrected_adam)",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("Z10", "Z11", "Z12", "Z13", "Z22", "C9", "C10", "C11", "C18")
    TRUST: ClassVar[str] = (
        "Here all nodes and the server were simulated in one place: the party that ran the simulation held all data and is trusted with "
        "them; everyone else sees only what is released. The accounting is for nodes in separate places, where the server and the other "
        "nodes need not be trusted: every node samples, clips and adds its whole noise itself before anything leaves it, so the guarantee "
        "holds against anyone who sees all nodes' updates and every model, and a node is trusted only with its own units' data."
    )
    PLANS: ClassVar[tuple[str, ...]] = ("noisy_sums",)

    algorithm: Literal["federated_zeta_dp_sgd"] = "federated_zeta_dp_sgd"
    nodes: Annotated[int, Strict(), Field(ge=1, le=LARGEST_FEDERATION)]
    distribution_seed: Seed
    server: ServerOptimizer
    transport: Literal["simulated", "flower", "nvflare"] = Field(default="simulated", exclude_if=_is_simulated)
    federation: Federation | None = Field(default=None, exclude_if=is_absent)
    aggregation: SecureAggregation | None = Field(default=None, exclude_if=is_absent)

    @model_validator(mode="after")
    def _check_aggregation(self) -> Self:
        if self.aggregation is None:
            return self
        self.aggregation.check(self.nodes)
        self._check_independent("with secure aggregation")
        self._check_one_bound("with secure aggregation")
        if self.audit is not None:
            raise InvalidParameter("audit", "absent with secure aggregation: made-up units would be at one node", self.audit.canaries)
        return self

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.transport == "simulated":
            if self.federation is not None:
                raise InvalidParameter("federation", "absent unless transport is 'flower' or 'nvflare'", "given")
            return self
        self._check_independent("where nodes are sites")
        if self.federation is None or len(self.federation.sites) != self.nodes:
            got = None if self.federation is None else len(self.federation.sites)
            raise InvalidParameter("federation.sites", f"as many as nodes, {self.nodes}, where they are sites", got)
        if self.declared_units is None:
            raise InvalidParameter("declared_units", "given where nodes are sites: nobody counts all sites' units", None)
        self._check_one_bound("where nodes are sites: they agree to one bound")
        if self.evaluation.kind == "private_accuracy":
            raise InvalidParameter("evaluation", "none or public_held_out where nodes are sites", self.evaluation.kind)
        if self.audit is not None:
            raise InvalidParameter("audit", "absent where nodes are sites: made-up units would be at one site", self.audit.canaries)
        return self

    def _check_one_bound(self, where: str) -> None:
        """Raises InvalidParameter for a bound that changes."""
        clipping = self.clipping.clipping(self.clipping_bound, self.steps)
        if clipping.IN_BOUNDS:
            raise InvalidParameter("clipping", f"flat without a schedule, or per_layer, {where}", clipping.kind)

    def _check_independent(self, where: str) -> None:
        """Raises InvalidParameter for what only simulated nodes with their whole noise can do."""
        if self.sampling.kind != "poisson":
            raise InvalidParameter("sampling", f"poisson {where}", self.sampling.kind)
        if self.noise.kind != "independent":
            # A secure sum's shares are on grids for one step's sum; a site's sums would have to outlive its process.
            raise InvalidParameter("noise", f"independent {where}", self.noise.kind)

    def check_request(self) -> None:
        if not isinstance(self.sampling, PoissonSampler | CyclicPoissonSampler):
            raise InvalidParameter("sampling", _SAMPLERS, self.sampling.kind)
        super().check_request()

    @classmethod
    def example(cls) -> Self:
        """Digits as phase pairs at four nodes."""
        return cls(
            data=DigitsPhasePairs(split_seed=0, test_fraction=0.2),
            model=ComplexMlp(hidden=(32,), activation="cardioid", head="real_part"),
            server=FedAdam(learning_rate=0.01),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=8.0),
            clipping_bound=1.0,
            expected_batch_size=60,
            steps=200,
            nodes=4,
            distribution_seed=0,
            evaluation=PublicHeldOut(),
        )

    @property
    def runs_alone(self) -> str | None:
        return super().runs_alone if self.federation is None else "a federation of sites"

    @property
    def descent(self) -> AnyOptimizer:
        return self.server

    @property
    def planned_aggregation(self) -> SecureAggregation | None:
        return self.aggregation

    def planned_sampling(self, units: int, *, is_declared: bool) -> FederatedSampling | FederatedCyclicSampling:
        self._check_audit()
        if self.nodes > units:
            raise InvalidParameter("nodes", f"<= the {units} units of privacy", self.nodes)
        nodes, batch = self.nodes, self.expected_batch_size
        match self.sampling:
            case PoissonSampler():
                return FederatedSampling(nodes=nodes, records=units, expected_batch_size=batch, is_declared=is_declared)
            case CyclicPoissonSampler() as asked:
                groups, seed = asked.groups, asked.seed
                return FederatedCyclicSampling(
                    nodes=nodes, records=units, expected_batch_size=batch, groups=groups, seed=seed, is_declared=is_declared
                )
            case other:
                raise InvalidParameter("sampling", _SAMPLERS, other.kind)
