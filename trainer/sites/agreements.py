r"""The proposals that a site's operator has signed: nothing else is ever drawn for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import StringConstraints

from zetadp import accountants
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.sites.code import code_digest
from zetadp.trainer.sites.keys import is_signed, public_text
from zetadp.trainer.sites.ledger import SiteLedger, make_ledger
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteSettings
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import Federation
from zetadp.trainer.specs.network_training import NoEvaluation

DOMAIN: Final = b"zetadp agreement 1\n"
ROUNDING: Final = 1e-6
"""A plan's epsilon may exceed its spec's by this share."""


@final
class Agreement(Value):
    """A proposal with the signature of a site's operator over its digest."""

    proposal: Proposal
    signature: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{128}$")]


def spec_at_site(proposal: Proposal, settings: SiteSettings) -> FederatedZetaDpSgd:
    """The spec with the site's own data, about which nothing is ever measured."""
    return FederatedZetaDpSgd.model_validate(dict(proposal.spec) | {"data": settings.data, "evaluation": NoEvaluation()})


def check_proposal(proposal: Proposal, settings: SiteSettings, public: str) -> None:
    r"""Whether this site can take part.

    Raises:
      InvalidParameter: the proposal names another key, for this site or, where sums are secure, for any other; runs other code, protects
        another unit, doesn't fit the site's data, or its noise misses the spec's epsilon.
    """
    number = proposal.federation.number(settings.name)
    expected = None if number is None else proposal.federation.sites[number].key
    if expected != public:
        raise InvalidParameter("spec.federation.sites", f"a list with {settings.name!r} and its key {public}", expected)
    if proposal.plan.aggregation is not None:
        _check_others(proposal.federation, settings)
    if proposal.code != code_digest():
        raise InvalidParameter("code", f"{code_digest()}, that of the code installed here", proposal.code)
    sensitivity, budget = proposal.plan.mechanism.sensitivity, settings.budget
    for what, theirs, ours in (("adjacency", sensitivity.adjacency, budget.adjacency), ("unit", sensitivity.unit, budget.unit)):
        if theirs != ours:
            raise InvalidParameter(f"plan.{what}", f"{ours!r}, that of the site's budget", theirs)
    if proposal.spec.reproducible and not settings.allows_seeds:
        raise InvalidParameter("spec.reproducible", "false: noise from a seed hides nothing from whoever knows it", True)
    spec_at_site(proposal, settings).check_plan(proposal.plan, data_set_facts(settings.data))
    asked = proposal.spec.privacy.epsilon
    if asked is not None:
        found = accountants.profile(proposal.plan.event).epsilon(proposal.plan.delta).upper
        if not found <= asked * (1.0 + ROUNDING):
            raise InvalidParameter("plan.mechanism.std", f"enough noise for the spec's epsilon of {asked:g}", f"epsilon {found:g}")


def _check_others(federation: Federation, settings: SiteSettings) -> None:
    """Whoever writes a proposal could name keys of its own as the other sites'; their shares of the noise would hide nothing from it."""
    for other in federation.sites:
        if other.name == settings.name:
            continue
        known = settings.sites.get(other.name)
        if known is None:
            expected = f"sites that the list `sites` of {settings.name}'s settings names, with their keys"
            raise InvalidParameter("spec.federation.sites", expected, other.name)
        if known != other.key:
            expected = f"a list in which {other.name} has the key of {settings.name}'s settings, {known}"
            raise InvalidParameter("spec.federation.sites", expected, other.key)


def agree(proposal: Proposal, settings: SiteSettings, key: Ed25519PrivateKey) -> Path:
    """Signs the proposal and keeps it. Raises as ``check_proposal``."""
    check_proposal(proposal, settings, public_text(key))
    _ = ledger_of(settings)  # before the first agreement, without which one may be made
    agreement = Agreement(proposal=proposal, signature=key.sign(DOMAIN + proposal.digest.encode()).hex())
    path = settings.agreements / f"{proposal.digest}.json"
    write_atomically(path, agreement.model_dump_json().encode())
    return path


def ledger_of(settings: SiteSettings) -> SiteLedger:
    r"""The site's ledger, made if the site has agreed to nothing yet.

    Raises:
      InvalidParameter: it is missing though the site has agreed to something, or isn't whole.
    """
    path, budget = settings.ledger_file, settings.budget
    if not path.exists() and not any(settings.agreements.glob("*.json")):
        make_ledger(path)
    return SiteLedger(path, budget.budget, budget.adjacency, budget.unit)


def agreements_in(folder: Path, public: str) -> Mapping[str, Proposal]:
    r"""The proposals that are signed with this key, by their digests.

    Raises:
      InvalidParameter: a file isn't an agreement, or another key signed it.
    """
    found: dict[str, Proposal] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            agreement = Agreement.model_validate_json(path.read_bytes())
        except ValueError as error:
            raise InvalidParameter(path.name, "an agreement", "another file") from error
        digest = agreement.proposal.digest
        if not is_signed(public, bytes.fromhex(agreement.signature), DOMAIN + digest.encode()):
            raise InvalidParameter(path.name, "signed with the site's key", agreement.signature)
        found[digest] = agreement.proposal
    return found
