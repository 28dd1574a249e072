r"""What a private selection draws before its first run: how many runs there are, and each one's candidate.

All of it follows from one secret, which is on disk before anything is run: a process that was killed goes on with the same runs. If the
number were drawn again once runs have ended, what came out could be the best of several selections.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Annotated, final

from pydantic import StringConstraints, ValidationError

from zetadp.mechanisms.base import Tally, Value
from zetadp.mechanisms.declared.drawn_runs import RANDOM_BITS, number_of_runs
from zetadp.mechanisms.declared.runs import AnyRuns
from zetadp.trainer.durable import write_atomically
from zetadp.trainer.errors import CheckpointRefused

DRAWN = "drawn.json"


@final
class Drawn(Value):
    r"""The secret that the runs follow from.

    Attributes:
      digest: of spec, plan and data, for which it was drawn.
      secret: 32 bytes in hexadecimal.
      resumptions: how often a later attempt went on with it.
    """

    digest: str
    secret: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
    resumptions: Tally

    def candidates(self, law: AnyRuns, count: int) -> tuple[int, ...]:
        """The candidate of each run, of ``count``: drawn uniformly, with replacement."""
        numbers = _Numbers(bytes.fromhex(self.secret))
        runs = number_of_runs(law, numbers.next())
        return tuple(numbers.below(count) for _ in range(runs))


@final
class _Numbers:
    """Independent uniform numbers of 256 bits: SHA-256 of the secret and a counter."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._drawn = secret, 0

    def next(self) -> int:
        self._drawn += 1
        digest = hashlib.sha256(b"zetadp private selection" + self._secret + self._drawn.to_bytes(8, "big")).digest()
        return int.from_bytes(digest, "big")

    def below(self, count: int) -> int:
        """Uniform in 0 .. count - 1, exactly: what would favour the first ones is drawn again."""
        most = (1 << RANDOM_BITS) // count * count
        while (found := self.next()) >= most:
            pass
        return found % count


def drawn_in(folder: Path, digest: str, seed: int | None) -> Drawn:
    r"""What was drawn in this folder, now or by an earlier attempt; on disk when this returns.

    Args:
      seed: a reproducible selection's, from which the secret follows then.
    Raises:
      CheckpointRefused: runs were begun there whose number isn't known any more, or those of another selection.
    """
    path = folder / DRAWN
    if path.exists():
        try:
            earlier = Drawn.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise CheckpointRefused(DRAWN, "it is damaged, and a new number of runs would be a second selection") from error
        if earlier.digest != digest:
            raise CheckpointRefused(DRAWN, "it was drawn for another spec, plan or data set")
        drawn = Drawn(digest=digest, secret=earlier.secret, resumptions=earlier.resumptions + 1)
    elif folder.exists() and any(path.is_dir() for path in folder.iterdir()):
        raise CheckpointRefused(DRAWN, "it is gone, and a new number of runs would be a second selection")
    else:
        secret = secrets.token_bytes(32) if seed is None else hashlib.sha256(f"zetadp private selection {seed}".encode()).digest()
        drawn = Drawn(digest=digest, secret=secret.hex(), resumptions=0)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, drawn.model_dump_json().encode())
    return drawn
