r"""What a run with a committed noise key writes of its releases, and what comes of repeating it. Free of torch.

The file's first line has the settings of speed. Then each attempt that is left of the run has a line with its number, one that says whether
it began anew or continued after a step, and one for each release: site, step, and the SHA-256 of the released numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.base import RuntimeSpec

Release = tuple[int, int, str]
"""(site, step, SHA-256 of the released numbers' bytes)."""

RUNTIME, ATTEMPT, ANEW, FROM, RELEASE = "runtime", "attempt", "anew", "from", "release"
"""What lines begin with."""
_NUMBER = r"(0|[1-9][0-9]{0,11})"
_BEGUN = rf"{ATTEMPT} (?P<attempt>[1-9][0-9]{{0,11}})|(?P<anew>{ANEW})|{FROM} (?P<step>{_NUMBER})"
_LINE: Final = re.compile(rf"{_BEGUN}|{RELEASE} (?P<release>{_NUMBER} {_NUMBER} [0-9a-f]{{64}})", re.ASCII)


@final
@dataclass(frozen=True)
class RunAttempt:
    r"""One process of a run: a start of its job.

    Attributes:
      number: of the start.
      after: the step that it continued after; None if it began anew.
      releases: those of its releases that weren't lost, in their order.
    """

    number: int
    after: int | None
    releases: tuple[Release, ...]


@final
@dataclass(frozen=True)
class Recorded:
    r"""What a run wrote of its releases.

    Attributes:
      runtime: the settings that it ran with.
      attempts: what is left of each, in their order.
    """

    runtime: RuntimeSpec
    attempts: tuple[RunAttempt, ...]

    @property
    def releases(self) -> tuple[Release, ...]:
        """All of them, in their order."""
        return tuple(release for attempt in self.attempts for release in attempt.releases)


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
    header, *lines = text.splitlines() or [""]
    kind, _, settings = header.partition(" ")
    try:
        runtime = RuntimeSpec.model_validate_json(settings if kind == RUNTIME else "")
    except ValueError as error:
        raise InvalidParameter("releases.txt", "a first line with the run's settings", header[:100]) from error
    attempts: list[tuple[int, list[int | None], list[Release]]] = []
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None or (not attempts and found["attempt"] is None):
            raise InvalidParameter("releases.txt", "lines as a run writes them", line[:100])
        if found["attempt"] is not None:
            attempts.append((int(found["attempt"]), [], []))
        elif found["release"] is not None:
            site, step, digest = found["release"].split(" ")
            attempts[-1][2].append((int(site), int(step), digest))
        else:
            attempts[-1][1].append(None if found["anew"] else int(found["step"]))
    numbers = [number for number, _, _ in attempts]
    if not attempts or numbers != sorted(set(numbers)) or any(len(begun) > 1 for _, begun, _ in attempts):
        raise InvalidParameter("releases.txt", "at least one attempt, in their order, each begun once", numbers[:20])
    return Recorded(runtime, tuple(RunAttempt(number, next(iter(begun), None), tuple(releases)) for number, begun, releases in attempts))


def attempts_in(lines: Iterable[str]) -> list[int]:
    """The numbers of the attempts that these lines are of."""
    return [int(line.split(" ")[1]) for line in lines if line.startswith(f"{ATTEMPT} ")]
