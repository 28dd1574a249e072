r"""A TPM's quote over the code's digest and the log's head with the plan, as a certificate holds it, and in words."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated, final

from pydantic import Field, StringConstraints, model_validator

from zetadp.app.certificates.facts.announced import Hex256
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter

NOT_VOUCHED = (
    "nobody vouched for that key, so this shows that its owner signed, the same in all certificates with this key, and not that the key is "
    "in a TPM, what software the machine ran, or that this code did"
)


@final
class TpmQuote(Value):
    r"""What a machine's TPM signed when the certificate was made, all in base64.

    Attributes:
      head: SHA-256 of the text of the log's head under which the plan is.
      key: the two coordinates of the P-256 key that signed.
      registers: the values of the SHA-256 registers (PCRs) 0, 4 and 7: what firmware says of itself, of the boot loader, of secure boot.
      attested: what was signed, as the TPM made it (TPMS_ATTEST).
      signature: the two numbers of the ECDSA signature.
    """

    head: Hex256
    key: Annotated[str, StringConstraints(strict=True, min_length=88, max_length=88)]
    registers: Annotated[str, StringConstraints(strict=True, min_length=128, max_length=128)]
    attested: Annotated[str, Field(strict=True, min_length=100, max_length=400)]
    signature: Annotated[str, StringConstraints(strict=True, min_length=88, max_length=88)]

    @model_validator(mode="after")
    def _check(self) -> TpmQuote:
        for name in ("key", "registers", "attested", "signature"):
            text = getattr(self, name)
            try:
                is_canonical = base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
            except ValueError:
                is_canonical = False
            if not is_canonical:
                raise InvalidParameter(f"tpm.{name}", "base64", text[:40])
        return self


def qualifying_data(code: str, head: str) -> bytes:
    """What the TPM is asked to sign along: a digest of the digests, in hexadecimal, of the code's list and of the head's text."""
    return hashlib.sha256(f"zetadp-tpm-quote\n{code}\n{head}\n".encode()).digest()


def tpm_line(quote: TpmQuote | None) -> tuple[str, ...]:
    """The quote in words, for a reader of the certificate; nothing where there is none."""
    if quote is None:
        return ()
    return (f"TPM: a quote binds the code's digest and the log's head with the plan to a key; {NOT_VOUCHED}.",)
