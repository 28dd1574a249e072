r"""What a certificate says of sites that a network connected: the words of their own signed statements, and what nobody but they saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from zetadp.app.certificates.facts.phrases import so_many
from zetadp.trainer.specs.algorithms.federation import SignedProposal, SiteRecord

TRUST: Final = (
    "Nobody is trusted with a site's data but the site: each one samples, clips and adds its whole noise itself before anything leaves it, "
    "so its guarantee holds against the coordinator, the other sites and everyone who sees all sites' noisy sums and every model; that a "
    "site did so is its own signed word"
)
CUSTODY: Final = (
    "every site ran the code and the plan whose digest its operator signed, on its own data, with random numbers of its own: its "
    "statements are signed, but nobody else saw its data, samples or noise, and nobody tested them here"
)


def site_lines(sites: Sequence[SiteRecord], proposal: SignedProposal | None, rounds: int) -> Iterator[str]:
    """One line for all sites, and one that explains it; none where nothing was connected."""
    if not sites or proposal is None:
        return
    yield f"Sites: {'; '.join(_site(site, rounds) for site in sites)}."
    yield (
        f"  Each answered only for proposal {proposal.digest}, which holds this spec and plan, the network {proposal.network} and the code "
        f"{proposal.code}. An answer that was late, wrong, missing, or in a secure sum that failed counts as zero; its site may have "
        "released it all the same. All statements that came are in statements.jsonl, and each has the digest of the same site's previous "
        "one. The data above are the coordinator's: of them only the shape and the held-out records were used."
    )


def _site(site: SiteRecord, rounds: int) -> str:
    counted = f"{site.name}, key {site.key}: {site.arrived} of {rounds} answers counted"
    if site.statement is None or site.charged is None:
        return f"{counted}; what its ledger charged isn't known"
    if site.uncounted:
        counted += f", {site.uncounted} more didn't count"
    each = round(site.sent_bytes / (site.arrived + site.uncounted))
    counted += f", whose integers took {each} bytes a round"
    charged = so_many(site.charged, "round", "rounds")
    return f"{counted}; by its last statement, {site.statement}, it had charged {charged}, and may have charged more since"
