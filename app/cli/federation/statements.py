r"""``statements``: checks the sites' signed statements that a job leaves, or that a site shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zetadp.app.cli.console import Exit, JsonFile, clear_errors, fail, out, read_json
from zetadp.trainer.sites.forms import form_of
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import checked_statements


def statements(
    proposal: JsonFile,
    file: Annotated[Path, typer.Argument(help="statements.jsonl, one of the job's files.")],
) -> None:
    """Check a federation's statements: each one's signature, its proposal and round, and that each follows from the one before."""
    with clear_errors():
        asked = read_json(proposal, Proposal)
        form = form_of(asked.plan, None)
        records, gaps = checked_statements(asked.federation.sites, asked.digest, asked.plan.steps, form, file.read_bytes())
    for record in records:
        charged = f"by the last {record.charged} of {asked.plan.steps} rounds charged, and maybe more since"
        known = "what its ledger charged isn't known" if record.charged is None else charged
        counted = f"{record.arrived} statements that counted, {record.uncounted} that didn't"
        sent = f"{record.sent_bytes} bytes of integers"
        out.print(f"{record.name}: {counted}; {known}; {sent}", markup=False)
    for gap in gaps:
        out.print(f"  {gap}", markup=False)
    if not any(record.charged for record in records):
        fail("no site stated anything", Exit.FAILED)
