r"""Secrets of webhooks, in the form of Standard Webhooks: ``whsec_`` and the base64 of 24 to 64 random bytes, which are the key."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Annotated

from pydantic import AfterValidator, Field

from zetadp.mechanisms.errors import InvalidParameter

_PREFIX = "whsec_"
_BASE64 = "[A-Za-z0-9+/]"
# 8 to 20 groups of 3 bytes and up to 4 bytes more, with the bits behind the last byte 0: each key has one text only.
_PATTERN = (
    f"^{_PREFIX}(?:{_BASE64}{{4}}){{8,20}}(?:{_BASE64}{{4}}|(?:{_BASE64}{{4}})?{_BASE64}[AQgw]==|{_BASE64}{{2}}[AEIMQUYcgkosw048]=)?$"
)


def key_of(secret: str) -> bytes:
    r"""The bytes that sign.

    Raises:
      InvalidParameter: it isn't such a secret. The text doesn't repeat it.

    >>> key_of("whsec_" + 8 * "AAAB") == 8 * bytes([0, 0, 1])
    True
    """
    if re.fullmatch(_PATTERN, secret) is None:
        what = f"a text of {len(secret)} characters {'with' if secret.startswith(_PREFIX) else 'without'} {_PREFIX}"
        raise InvalidParameter("secret", f"{_PREFIX} and the base64 of 24 to 64 bytes", what)
    return b64decode(secret.removeprefix(_PREFIX))


def _checked(secret: str) -> str:
    key_of(secret)
    return secret


# The schema alone states length and pattern: a check by Pydantic would repeat the secret in its error.
WebhookSecret = Annotated[str, Field(json_schema_extra={"maxLength": 94, "pattern": _PATTERN}), AfterValidator(_checked)]
