r"""What a run with a committed noise key writes of its releases, and what comes of repeating it. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.base import RuntimeSpec

Release = tuple[int, int, str]
"""(site, step, SHA-256 of the released numbers' bytes)."""


@final
@dataclass(frozen=True)
class Recorded:
    r"""What a run wrote of its releases.

    Attributes:
      runtime: the settings that it ran with.
      processes: of each process of the run its own bytes, and the step that it continued after.
    """

    runtime: RuntimeSpec
    processes: tuple[tuple[bytes, int], ...]
    releases: tuple[Release, ...]


@final
@dataclass(frozen=True)
class Repeated:
    r"""What came of it.

    Attributes:
      same: how many releases were the same, from the first on.
      recorded: how many the run had written.
      departed: the site and step of the first that wasn't, or that only one of the two runs has; None if there is none.
      model_sha256: of the model that the repeated run wrote.
    """

    same: int
    recorded: int
    departed: tuple[int, int] | None
    model_sha256: str


def read_releases(text: str) -> Recorded:
    """What a run wrote. Raises InvalidParameter for anything that isn't laid out so."""
    processes: list[tuple[bytes, int]] = []
    releases: list[Release] = []
    runtime, start = RuntimeSpec(), b""
    line = ""
    try:
        for line in text.splitlines():
            kind, _, rest = line.partition(" ")
            match kind:
                case "runtime":
                    runtime = RuntimeSpec.model_validate_json(rest)
                case "start":
                    start = bytes.fromhex(rest)
                case "from":
                    processes.append((start, int(rest)))
                case _:
                    site, step, digest = rest.split(" ")
                    releases.append((int(site), int(step), digest))
    except ValueError as error:
        raise InvalidParameter("releases.txt", "lines as a run writes them", line[:100]) from error
    if not processes:
        raise InvalidParameter("releases.txt", "at least one process that trained", text[:100])
    return Recorded(runtime, tuple(processes), tuple(releases))
