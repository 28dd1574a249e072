r"""What a certificate says of secure aggregation: whose shares the stated noise is, whom one has to trust, and what masks rest on."""

from __future__ import annotations

from typing import Final

from zetadp.trainer.sites.coding import packed_bytes
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.shares import share_grid

RELEASED: Final = "one sum of the nodes' integers in every round, and the model after every round"
POST_PROCESSING: Final = (
    "the guarantee holds even against someone who sees the sum of every round, from which the model is computed, but not a node's own sum"
)
PROOFS: Final = ("shared_noise.md", "secure_sum.md")
NOT_COVERED: Final = (
    "whether sums are right: a node or a coordinator that departs from the protocol can make a round fail, or its sum wrong"
)

KEYS: Final = (
    "the keys that each site's operator entered for the other sites are those sites' own, which nobody checked here: a site takes part in "
    "sums with these keys alone, and whoever holds several of them counts as so many colluding nodes"
)


def honest(plan: ExecutionPlan) -> int | None:
    """How many nodes' shares the stated noise is; None where each node adds the whole."""
    return None if plan.aggregation is None else plan.aggregation.honest(plan.sampling.nodes)


def noise(plan: ExecutionPlan) -> str:
    """Instead of the sentence on nodes that add their whole noise."""
    secure, nodes, shares = _of(plan)
    return (
        f"every node adds a share of the noise to its own sum, of the stated variance divided by {shares}, and only one sum over the nodes "
        f"becomes known, in integers modulo a power of two; the stated noise is that of {shares} shares: so many of {nodes} are left if "
        f"{secure.dropouts} drop out and the noise of {secure.colluding} more is known to an attacker"
    )


def assumption(plan: ExecutionPlan) -> str:
    """What the guarantee rests on."""
    secure, nodes, _ = _of(plan)
    return (
        f"at most {secure.colluding} of the {nodes} nodes are an attacker's, tell one what they know, or fail to add their share of the "
        "noise; all others follow the protocol. A node knows its own share of the noise, so that one that looks at others' units is an "
        "attacker's"
    )


def sent(plan: ExecutionPlan, numbers: int) -> str:
    r"""What each site sends in a round besides keys and signatures.

    Args:
      numbers: of the model's real parameters.
    """
    width = share_grid(plan, numbers).width
    return f"In a round each site sent {numbers} integers of {width} bits under masks, in {packed_bytes(numbers, width)} bytes"


def trust(plan: ExecutionPlan, *, is_connected: bool) -> str:
    """Who is trusted, and with what."""
    secure, nodes, shares = _of(plan)
    least = secure.least(nodes)
    whom = f"at least {shares} of any {least} of the {nodes} nodes are honest"
    if not is_connected:
        return (
            "Here all nodes and the server were simulated in one place: the party that ran the simulation held all data and is trusted "
            "with them, and no masks were used; everyone else sees only what is released. The accounting is for nodes in separate places "
            f"whose sums are masked, where {whom}: one node's own noise is only a share of what is stated"
        )
    return (
        f"Nobody is trusted with a site's data but the site, as long as {whom}: each one samples, clips and adds its share of the noise "
        "itself, and sends integers under masks that come off only in a sum. A coordinator, whatever it sends, gets no sum with fewer "
        f"honest shares: in a round a site answers for one list of at least {least} sites, which as many have signed. This holds against "
        "anybody who can't break X25519, Ed25519, SHA-256, AES-256 or ChaCha20-Poly1305; that a site did its part is its own signed word"
    )


def _of(plan: ExecutionPlan) -> tuple[SecureAggregation, int, int]:
    """How it adds up, the nodes, and the honest ones."""
    assert plan.aggregation is not None  # asked of such a plan alone
    nodes = plan.sampling.nodes
    return plan.aggregation, nodes, plan.aggregation.honest(nodes)
