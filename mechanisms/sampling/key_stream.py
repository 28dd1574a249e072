r"""The key stream of AES-256 in counter mode: from our own kernel where the processor has instructions for it, else from OpenSSL.

Of OpenSSL by its fastest code: GCM encrypts with the same stream from its third block on, and uses wide registers if the processor has
them, in half the time of CTR. Its checksum is discarded. The kernel makes noise of the stream where it makes the stream, and prepares a
key in next to no time.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final, NoReturn, final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from zetadp.mechanisms.sampling import kernel

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
    r"""The stream from counter 0; each byte is used once, by whichever thread asks for it.

    >>> KeyStream(bytes(32)).next(20) == Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor().update(bytes(20))
    True

    Attributes:
      secret: the key.
    """

    def __init__(self, key: bytes) -> None:
        self.secret = key
        self._position = 0
        self._segments = None if kernel.ciphers() else Segments(key)
        self._turn = Lock()

    def next(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        found = bytearray(count)
        self.fill(memoryview(found))
        return bytes(found)

    def fill(self, target: memoryview) -> None:
        """Overwrites the target with the next bytes."""
        with self._turn:
            if self._segments is not None:
                self._segments.fill(target)
                return
            first, self._position = self._position, self._position + len(target)
        kernel.COMPILED.key_stream(kernel.ciphers(), self.secret, first, target)

    def reserve(self, count: int) -> int | None:
        r"""The number of the block from which the next ``count`` bytes are for ``kernel.streamed``; nobody else gets them.

        None, and nothing is reserved, where the kernel doesn't compute the stream or the last bytes used ended within a block.
        """
        with self._turn:
            if self._segments is not None or self._position % BLOCK:
                return None
            block, self._position = self._position // BLOCK, self._position + count
        return block

    def take(self, of: Callable[[bytes, int], int]) -> None:
        """Lets the kernel use bytes from the next one on, where ``reserve`` works: ``of`` the key and that one's place it returns the place
        behind its last."""
        with self._turn:
            assert self._segments is None
            self._position = of(self.secret, self._position)

    def __reduce__(self) -> NoReturn:
        """Raises TypeError: a copy would give the same bytes again."""
        raise TypeError("a key stream can't be copied or pickled: each of its bytes is used once")


@final
class Segments:
    """The same stream of OpenSSL, in segments of as many blocks as a nonce of GCM has."""

    def __init__(self, key: bytes) -> None:
        self._cipher, self._in_gcm = algorithms.AES(key), False
        self._begin(0)

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
