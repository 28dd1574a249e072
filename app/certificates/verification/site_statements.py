r"""Checks the statements of a federation's sites, which lie next to a certificate, against what it says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from zetadp.app.certificates.facts.report import Check, failed, not_checked, passed
from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.forms import form_of
from zetadp.trainer.sites.record import STATEMENTS, checked_statements
from zetadp.trainer.specs.algorithms.federation import FederatedSite
from zetadp.trainer.specs.execution_plan import ExecutionPlan

NAME = "sites"


def check_site_statements(certificate: PrivacyCertificate, directory: Path | None) -> Iterator[Check]:
    """One check where sites are stated: each one's signatures, by the key that the certificate has, and what they add up to."""
    run, plan = certificate.run, certificate.plan
    if not run.sites or run.proposal is None or not isinstance(plan, ExecutionPlan):
        return
    path = None if directory is None else directory / STATEMENTS
    if path is None or not path.is_file():
        yield not_checked(NAME, f"{STATEMENTS} isn't next to the certificate, so no site's signature was checked")
        return
    sites = [FederatedSite(name=site.name, key=site.key) for site in run.sites]
    try:
        form = form_of(plan, run.parameters)
        found, gaps = checked_statements(sites, run.proposal.digest, run.steps_released, form, path.read_bytes())
    except OSError as error:
        yield not_checked(NAME, f"{STATEMENTS} can't be read: {error.strerror}")
    except InvalidParameter as error:
        yield failed(NAME, f"a statement isn't one of a site of this run: {error}")
    else:
        if found != run.sites:
            yield failed(NAME, "their statements say something else than the certificate")
        else:
            missing = f"; statements that never came: {len(gaps)} times" if gaps else ""
            yield passed(NAME, f"every statement is signed by its site and follows from the one before{missing}")
