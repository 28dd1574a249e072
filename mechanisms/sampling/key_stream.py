r"""The key stream of AES-256 in counter mode, computed by OpenSSL's fastest code for it.

GCM encrypts with the same stream from its third block on, and its code uses wide registers if the processor has them: it takes half the
time of CTR. Its checksum is discarded.
"""

from __future__ import annotations

from typing import Final, final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

BLOCK: Final = 16
"""Bytes of a block."""

SEGMENT: Final = BLOCK << 32
"""Bytes from one nonce of GCM, 96 of the counter's 128 bits."""

SKIPPED: Final = 2 * BLOCK
"""Bytes of a segment that GCM uses itself: they come from CTR."""

_ZEROS: Final = memoryview(bytes(1 << 18))
"""Zeros, which encrypt to the key stream itself."""


@final
class KeyStream:
    r"""The stream from counter 0; each byte is used once.

    >>> KeyStream(bytes(32)).next(20) == Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update(bytes(20))
    True
    """

    def __init__(self, key: bytes) -> None:
        self._cipher, self._in_gcm = algorithms.AES(key), False
        self._begin(0)

    def next(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        found = bytearray(count)
        self.fill(memoryview(found))
        return bytes(found)

    def fill(self, target: memoryview) -> None:
        """Overwrites the target with the next bytes."""
        while len(target):
            if not self._left:
                self._go_on()
            count = min(len(target), self._left, len(_ZEROS))
            self._encryptor.update_into(_ZEROS[:count], target[:count])
            self._left -= count
            target = target[count:]

    def _begin(self, segment: int) -> None:
        self._segment, self._left = segment, SKIPPED
        self._encryptor = Cipher(self._cipher, modes.CTR(self._nonce + bytes(4))).encryptor()

    def _go_on(self) -> None:
        if self._in_gcm:
            self._begin(self._segment + 1)
        else:
            self._left = SEGMENT - SKIPPED
            self._encryptor = Cipher(self._cipher, modes.GCM(self._nonce)).encryptor()
        self._in_gcm = not self._in_gcm

    @property
    def _nonce(self) -> bytes:
        return self._segment.to_bytes(12, "big")
