r"""``agree``, ``site`` and ``status``: what a site's operator does."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from zetadp import accountants
from zetadp.app.cli.console import Exit, JsonFile, clear_errors, fail, out, read_json
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.mechanisms.numerics.rounding import text_up
from zetadp.trainer.sites.agreements import agree as sign
from zetadp.trainer.sites.agreements import agreements_in, check_proposal, ledger_of
from zetadp.trainer.sites.keys import load_key, public_text
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteSettings, read_settings
from zetadp.trainer.specs.execution_plan import ExecutionPlan

SettingsFile = Annotated[Path, typer.Option("--settings", help="The site's settings, a YAML file.")]


def agree(
    proposal: JsonFile,
    settings: SettingsFile,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
) -> None:
    """Show what a proposal would do with this site's data, and sign it: the site draws noise for nothing else."""
    with _read(settings) as found:
        asked = read_json(proposal, Proposal)
        key = load_key(found.key_file)
        check_proposal(asked, found, public_text(key))
        out.print("\n".join(_words(asked, found)), markup=False)
        if not yes:
            typer.confirm("Sign it?", abort=True)
        sign(asked, found, key)
    out.print(f"signed by {found.name} with {public_text(key)}", markup=False)


def site(settings: SettingsFile) -> None:
    """Run a site: load its data, connect to the coordinator, answer the rounds that were agreed to. It opens no port."""
    with _read(settings):
        # The same process from here on, so that whoever supervises it sees one.
        os.execv(sys.executable, [sys.executable, "-m", "zetadp.process", "zetadp.trainer.site", str(settings)])  # noqa: S606 (our own command line)


def status(settings: SettingsFile) -> None:
    """Print how many rounds of each federation a site's ledger has charged, and how many more its budget admits."""
    with _read(settings) as found:
        ledger = ledger_of(found)
        budget = found.budget
        unit = f"{budget.unit}, {budget.adjacency}"
        out.print(f"budget: epsilon {budget.epsilon:g} at delta {budget.delta:g} for each {unit}, of everything", markup=False)
        for digest, one in agreements_in(found.agreements, public_text(load_key(found.key_file))).items():
            charged, left = ledger.charged(digest), ledger.rounds_left(one.plan.event_after(1))
            name = one.federation.name
            out.print(f"{name} ({digest[:16]}): {charged} of {one.plan.steps} rounds charged; the budget admits {left} more", markup=False)


def _words(proposal: Proposal, settings: SiteSettings) -> Iterator[str]:
    plan, federation = proposal.plan, proposal.federation
    sensitivity, event = plan.mechanism.sensitivity, plan.event
    epsilon = accountants.profile(event).epsilon(plan.delta).upper
    left = ledger_of(settings).rounds_left(plan.event_after(1))
    yield f"Federation {federation.name}, proposal {proposal.digest}"
    yield f"Coordinator: {federation.coordinator}"
    yield from (f"Site {one.name}: {one.key}" for one in federation.sites)
    yield f"Rounds: {plan.steps}; each takes a {sensitivity.unit} of yours with probability {plan.sampling.probability:.6g}"
    yield f"Clipping: each {sensitivity.unit}'s gradient to norm {plan.clipping.bound:g} ({plan.clipping.kind})"
    yield from _noise(plan)
    if proposal.spec.reproducible:
        yield "Guarantee: none. REPRODUCIBLE: the noise follows from a seed in this proposal and hides nothing from whoever has it"
    else:
        each = f"each {sensitivity.unit} ({sensitivity.adjacency})"
        yield f"Guarantee of all rounds: epsilon {text_up(epsilon, 6)} at delta {plan.delta:g} for {each}"
        yield f"  against {_attackers(plan)}"
    yield f"Your budget: epsilon {settings.budget.epsilon:g} at delta {settings.budget.delta:g}; it admits {left} of these rounds"


def _noise(plan: ExecutionPlan) -> Iterator[str]:
    if plan.aggregation is None:
        yield f"Noise: standard deviation {plan.noise_std:.6g} on each real number, all of it added here"
        return
    secure, nodes = plan.aggregation, plan.sampling.nodes
    shares = secure.honest(nodes)
    yield f"Noise: standard deviation {plan.noise_std:.6g} on each number of all sites' sum, by the shares of {shares} of {nodes} sites"
    lost = f"{secure.dropouts} sites may drop out, and {secure.colluding} others be an attacker's"
    yield f"  your share is {plan.noise_std / shares**0.5:.6g}: {lost}"
    yield "Secure aggregation: your integers leave under masks, and one sum of at least that many honest sites alone becomes known"
    yield "  The sites' keys are those of your settings' list `sites`: this holds if each of them is that site's own, as you made sure"


def _attackers(plan: ExecutionPlan) -> str:
    if plan.aggregation is None:
        return "the coordinator, the other sites and everyone who sees what they see"
    return (
        f"the coordinator, up to {plan.aggregation.colluding} other sites that work with it or alone, and everyone who sees what they see, "
        "unless they break the masks' cryptography"
    )


@contextmanager
def _read(path: Path) -> Generator[SiteSettings]:
    """The settings; every error that an operator can cause is one line."""
    with clear_errors():
        try:
            found = read_settings(SiteSettings, path)
        except ValidationError as invalid:
            fail(f"{path}: {summary(field_errors(invalid.errors(), None, 'settings'))}", Exit.USAGE)
            raise AssertionError from invalid  # fail() leaves
        yield found
