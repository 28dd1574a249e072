r"""A confidential machine's own report over the code's digest and the log's head with the plan, as a certificate names it, and in words."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import StringConstraints

from zetadp.mechanisms.base import Value

REPORT_FILE = "snp-report.bin"
"""Beside a certificate, which names it with its digest."""
SHOWS_NOT = (
    "it doesn't show that this code ran, or that the training was as stated: any program in that guest can ask for a report about "
    "anything, and what was measured is only what the guest was launched with"
)
DEBUGGED = "The guest was launched with debugging allowed: its host can read and change all of its memory, so it is not confidential"
MOVED = "The guest was launched with an agent allowed that may move it to another machine"


@final
class ConfidentialFacts(Value):
    r"""What the report in ``REPORT_FILE`` says of the guest that the certificate was made in; the rest is in the file.

    Attributes:
      kind: of AMD SEV-SNP.
      measurement: digest of the guest's memory at its launch.
      debugging: whether the host may read and write the guest's memory.
      migration: whether a migration agent may move the guest to another machine.
    """

    kind: Literal["amd_sev_snp"]
    measurement: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{96}$")]
    debugging: bool
    migration: bool


def confidential_line(facts: ConfidentialFacts | None) -> tuple[str, ...]:
    """The report in words, for a reader of the certificate; nothing where there is none."""
    if facts is None:
        return ()
    limits = f"{f' {DEBUGGED}.' if facts.debugging else ''}{f' {MOVED}.' if facts.migration else ''}"
    return (
        f"Confidential machine: {REPORT_FILE} is to be an AMD SEV-SNP guest's report on the code's digest and the log's head with the "
        f"plan, with the launch measurement {facts.measurement}; who signed it only `verify` says, given the chip's certificates.{limits} "
        f"Even then {SHOWS_NOT}.",
    )
