r"""Asks this machine's TPM for a quote, by the programs of tpm2-tools."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from zetadp.app.certificates.facts.tpm import TpmQuote, qualifying_data
from zetadp.app.certificates.signing.digests import sha256_of
from zetadp.app.certificates.signing.tpm_quotes import ATTRIBUTES, REGISTERS, SCHEME, Quote, QuoteRefused, coordinates_in, signature_in

ANSWER_SECONDS = 30.0
"""For each of two programs: a TPM is a slow chip."""


class TpmSilent(Exception):
    """The TPM gave no quote; the text says why."""


def quoted(tpm: str, code: str, head: str) -> TpmQuote:
    r"""A quote over digests of the code's list and of the log's head.

    Args:
      tpm: a device's path, or how tpm2-tools reach it (a TCTI).
      code: digest of the code's list, in hexadecimal.
      head: the head's text.
    Raises:
      TpmSilent: there is no such TPM or no tpm2-tools, or it refused.
    """
    reach = f"device:{tpm}" if tpm.startswith("/") else tpm
    digest = sha256_of(head.encode())
    qualifying = qualifying_data(code, digest)
    with tempfile.TemporaryDirectory(prefix="zetadp-tpm-") as name:
        folder = Path(name)
        made = ("-C", "o", "-g", "sha256", "-G", SCHEME, "-a", ATTRIBUTES, "-c", "key", "-f", "tss", "-o", "public")
        _run(("tpm2_createprimary", "-Q", "-T", reach, *made), folder)
        registers = f"sha256:{','.join(map(str, REGISTERS))}"
        asked = ("-c", "key", "-g", "sha256", "-l", registers, "-q", qualifying.hex(), "-m", "attested", "-o", "registers", "-F", "values")
        _run(("tpm2_quote", "-Q", "-T", reach, *asked, "-f", "tss", "-s", "signature"), folder)
        try:
            quote = Quote(
                key=coordinates_in((folder / "public").read_bytes()),
                registers=(folder / "registers").read_bytes(),
                attested=(folder / "attested").read_bytes(),
                signature=signature_in((folder / "signature").read_bytes()),
            )
            quote.check(qualifying)
        except (QuoteRefused, OSError) as error:
            raise TpmSilent(f"what the TPM gave can't be used: {error}") from error
    parts = {part: base64.b64encode(getattr(quote, part)).decode() for part in ("key", "registers", "attested", "signature")}
    return TpmQuote.model_validate({"head": digest} | parts)


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_SECONDS, check=True)  # noqa: S603 (the operator's word)
    except FileNotFoundError as error:
        raise TpmSilent(f"{command[0]} isn't installed (tpm2-tools)") from error
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", None) or b""
        raise TpmSilent(f"{command[0]} failed: {' '.join(said.decode(errors='replace').split())[-300:] or error}") from error
