r"""Asks the kernel for the report of the confidential machine that this is (Linux, configfs-tsm)."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from zetadp.app.certificates.facts.confidential import ConfidentialFacts
from zetadp.app.certificates.facts.tpm import qualifying_data
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.snp_reports import DATA_BYTES, ReportRefused, SnpReport

PROVIDER = "sev_guest"
"""What the kernel calls AMD SEV-SNP."""


class MachineSilent(Exception):
    """The machine gave no report; the text says why."""


def machine_report(folder: Path, code: str, head: str) -> tuple[ConfidentialFacts, bytes]:
    r"""The machine's report over digests of the code's list and of the log's head, and what the certificate says of it.

    Args:
      folder: where the kernel makes reports, such as ``/sys/kernel/config/tsm/report``.
      code: digest of the code's list, in hexadecimal.
      head: the head's text.
    Raises:
      MachineSilent: this isn't such a machine, or it refused.
    """
    chosen = qualifying_data(code, sha256_of(head.encode()))
    try:
        with _asking(folder) as place:
            (place / "inblob").write_bytes(chosen.ljust(DATA_BYTES, b"\0"))
            content = (place / "outblob").read_bytes()
            provider = (place / "provider").read_text(encoding="utf-8").strip()
            # Somebody else's question in the same place would have been the second.
            questions = (place / "generation").read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise MachineSilent(f"no report can be had in {folder}: {error}") from error
    if provider != PROVIDER:
        raise MachineSilent(f"the machine is one of {provider[:40]!r}, and only reports of {PROVIDER!r} are read")
    if questions != "1":
        raise MachineSilent("somebody else asked in the same place")
    try:
        report = SnpReport.read(content)
        report.check_data(chosen)
    except ReportRefused as error:
        raise MachineSilent(f"what the machine gave can't be used: {error}") from error
    facts = ConfidentialFacts(
        kind="amd_sev_snp", measurement=report.measurement.hex(), debugging=report.allows_debugging, migration=report.allows_migration
    )
    return facts, content


@contextmanager
def _asking(folder: Path) -> Generator[Path]:
    """A place of our own for one question; the kernel makes what is in it, and takes it away again."""
    place = folder / f"zetadp-{secrets.token_hex(8)}"
    place.mkdir()
    try:
        yield place
    finally:
        with suppress(OSError):
            place.rmdir()
