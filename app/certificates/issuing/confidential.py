r"""Asks the kernel for the report of the confidential machine that this is (Linux, configfs-tsm)."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from zetadp.app.certificates.facts.confidential import SnpFacts, TdxFacts
from zetadp.app.certificates.facts.tpm import qualifying_data
from zetadp.app.certificates.log.machine_evidence import facts_of
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.machine_keys import DATA_BYTES, ReportRefused, check_chosen
from zetadp.app.certificates.signing.snp_reports import SnpReport
from zetadp.app.certificates.signing.tdx_quotes import TdxQuote

PROVIDERS = {"sev_guest": SnpReport.read, "tdx_guest": TdxQuote.read}
"""What the kernel calls AMD SEV-SNP and Intel TDX."""
ANSWER_SECONDS = 60.0
"""A quote of Intel's goes through a service of the host's, which may never answer."""


class MachineSilent(Exception):
    """The machine gave no report; the text says why."""


def machine_report(folder: Path, code: str, head: str) -> tuple[SnpFacts | TdxFacts, bytes]:
    r"""The machine's report over digests of the code's list and of the log's head, and what the certificate says of it.

    Args:
      folder: where the kernel makes reports, such as ``/sys/kernel/config/tsm/report``.
      code: digest of the code's list, in hexadecimal.
      head: the head's text.
    Raises:
      MachineSilent: this isn't such a machine, or it refused, or it didn't answer in ``ANSWER_SECONDS``.
    """
    chosen = qualifying_data(code, sha256_of(head.encode()))
    answers: SimpleQueue[tuple[bytes, str, str] | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_answer(folder, chosen))
        except (OSError, ValueError) as error:
            answers.put(error)

    # Nothing interrupts a read that the kernel doesn't answer; the thread that waits for it is left behind.
    Thread(target=ask, daemon=True).start()
    try:
        found = answers.get(timeout=ANSWER_SECONDS)
    except Empty:
        raise MachineSilent(f"there was no answer in {folder} for {ANSWER_SECONDS:g} seconds") from None
    if isinstance(found, Exception):
        raise MachineSilent(f"no report can be had in {folder}: {found}") from found
    content, provider, questions = found
    if provider not in PROVIDERS:
        raise MachineSilent(f"the machine is one of {provider[:40]!r}, and only reports of {' and '.join(PROVIDERS)} are read")
    if questions != "1":
        raise MachineSilent("somebody else asked in the same place")
    try:
        report = PROVIDERS[provider](content)
        check_chosen(report.data, chosen)
    except ReportRefused as error:
        raise MachineSilent(f"what the machine gave can't be used: {error}") from error
    return facts_of(report), content


def _answer(folder: Path, chosen: bytes) -> tuple[bytes, str, str]:
    """The report, who made it, and how many questions were asked in its place. Raises OSError or ValueError."""
    with _asking(folder) as place:
        (place / "inblob").write_bytes(chosen.ljust(DATA_BYTES, b"\0"))
        content = (place / "outblob").read_bytes()
        provider = (place / "provider").read_text(encoding="utf-8").strip()
        # Somebody else's question in the same place would have been the second.
        return content, provider, (place / "generation").read_text(encoding="utf-8").strip()


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
