r"""A confidential machine's own report over the code's digest and the log's head with the plan, as a certificate names it, and in words."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, StringConstraints

from zetadp.mechanisms.base import Value

REPORT_FILE = "machine-report.bin"
"""Beside a certificate, which names it with its digest."""
SHOWS_NOT = (
    "it doesn't show that this code ran, or that the training was as stated: any program in that guest can ask for a report about "
    "anything, and what was measured is only what the guest was launched with, and what software in it added to registers where it has any"
)
_OPEN = {
    "debugging": "The guest was launched with debugging allowed: its host can read and change all of its memory, so it is not confidential",
    "migration": "The guest was launched with an agent allowed that may move it to another machine",
}
_MIGRATABLE = 1 << 29

Hex384 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{96}$")]
Attributes = Annotated[str, StringConstraints(strict=True, pattern=r"^00[0-9a-f]{14}$")]
"""The first byte is about debugging, of which nothing may be allowed."""


@final
class SnpFacts(Value):
    r"""What the report in ``REPORT_FILE`` says of the AMD SEV-SNP guest that the certificate was made in; the rest is in the file.

    Attributes:
      measurement: digest of the guest's memory at its launch.
      debugging: whether the host may read and write the guest's memory.
      migration: whether a migration agent may move the guest to another machine.
    """

    kind: Literal["amd_sev_snp"]
    measurement: Hex384
    debugging: bool
    migration: bool

    @property
    def allowed(self) -> tuple[str, ...]:
        """What the guest allows and a confidential one shouldn't."""
        return tuple(name for name, is_so in (("debugging", self.debugging), ("migration", self.migration)) if is_so)

    @property
    def launched(self) -> str:
        """With what, in words."""
        return f"launched with the measurement {self.measurement}"


@final
class TdxFacts(Value):
    r"""What the quote in ``REPORT_FILE`` says of the Intel TDX guest that the certificate was made in; the rest is in the file.

    Attributes:
      mrtd: digest of what the guest was launched with.
      rtmr0, rtmr1, rtmr2, rtmr3: the registers that its firmware, and what was loaded later, extended.
      mrseam: digest of the TDX module that measured it.
      attributes: of the guest (TDATTRIBUTES), in the order of their bytes.
    """

    kind: Literal["intel_tdx"]
    mrtd: Hex384
    rtmr0: Hex384
    rtmr1: Hex384
    rtmr2: Hex384
    rtmr3: Hex384
    mrseam: Hex384
    attributes: Attributes

    @property
    def allowed(self) -> tuple[str, ...]:
        """As of an SNP guest; one with debugging has no quote that is read."""
        return ("migration",) if int.from_bytes(bytes.fromhex(self.attributes), "little") & _MIGRATABLE else ()

    @property
    def launched(self) -> str:
        """With what, in words."""
        return f"launched with the measurement (MRTD) {self.mrtd}"


ConfidentialFacts = Annotated[SnpFacts | TdxFacts, Field(discriminator="kind")]


def allowed_line(facts: SnpFacts | TdxFacts) -> str:
    """What the guest allows, in sentences with a space before each; empty if nothing."""
    return "".join(f" {_OPEN[name]}." for name in facts.allowed)


def confidential_line(facts: SnpFacts | TdxFacts | None) -> tuple[str, ...]:
    """The report in words, for a reader of the certificate; nothing where there is none."""
    if facts is None:
        return ()
    about = "on the code's digest and the log's head with the plan"
    if isinstance(facts, SnpFacts):
        of, checked = "an AMD SEV-SNP guest's report", "who signed it only `verify` says, given the chip's certificates"
    else:
        of = "an Intel TDX guest's quote"
        checked = "the certificate states its registers and module too, and who signed it only `verify` says"
    return (
        f"Confidential machine: {REPORT_FILE} is to be {of} {about}, {facts.launched}; {checked}.{allowed_line(facts)} "
        f"Even then {SHOWS_NOT}.",
    )
