r"""The text of a key, ``zdp_<id>_<secret>``: making it, reading it, and removing it from any output."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Self, final

ID_PATTERN = r"^[0-9a-f]{24}$"
_KEY = re.compile(r"zdp_([0-9a-f]{24})_([0-9a-f]{64})")
_SHOWN = re.compile(r"(zdp_[0-9a-fA-F]{1,64})_[0-9a-fA-F]+")


@final
@dataclass(frozen=True)
class KeyText:
    """An id, which isn't secret, and 256 random bits, which are; written in hexadecimal."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def fresh(cls) -> Self:
        """A new one; ids sort by the millisecond they were made in."""
        return cls(f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(6)}", secrets.token_hex(32))

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The parts of a key's text, or None if it isn't one.

        >>> KeyText.read("zdp_" + 24 * "0" + "_" + 64 * "1")
        KeyText(id='000000000000000000000000')
        >>> KeyText.read("zdp_1_2") is None
        True
        """
        found = _KEY.fullmatch(text)
        return None if found is None else cls(found[1], found[2])

    @property
    def text(self) -> str:
        """What its holder sends."""
        return f"zdp_{self.id}_{self.secret}"

    @property
    def sha256(self) -> str:
        """What is stored. The secret has 256 random bits, so a fast digest can't be searched backwards."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def without_secrets(text: str) -> str:
    """The text without the secrets of the keys in it.

    >>> without_secrets("/v1/keys/zdp_0a_1b/rotate")
    '/v1/keys/zdp_0a_.../rotate'
    """
    return _SHOWN.sub(r"\1_...", text)
