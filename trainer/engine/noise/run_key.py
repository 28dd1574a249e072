r"""The secret of one run, to which its plan was committed: everything random in the run follows from it and from public labels.

Without such a secret every stream has a key of its own from the operating system, which nobody can open. With it an auditor who is given it
repeats the run: each stream's key is HMAC-SHA256, under the secret, of the number of the job's start (its attempt), the state that it
continues from, all that this start has released since, and the stream's label; of noise also of the very numbers that it is added to. So
nobody chooses a stream, and a step that is run again in a later attempt gets other noise.

The rest is for a service that was put back to an earlier moment, where an attempt's number comes twice, perhaps on hardware that rounds
otherwise. Two sums that differ in one bit get independent noise, and equal ones the same release: no two releases that differ share noise,
as far as HMAC-SHA256 can't be told from a random function (as nonces are made in RFC 6979). From the first release that differs on, samples
differ as well. What remains is that the sums of one such step, of one sample, are released twice (docs/operate.md). Whoever learns the
secret can take the noise away.

The run writes down in ``releases.txt`` which attempts it consists of, and the digest of each release. The file is on disk before a
checkpoint or a file of released values is, and is replaced as a whole.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomOrigin, RandomStream
from zetadp.trainer.request import NOISE_KEY, RELEASES, RunSecret, TrainingRequest, why_not_repeatable
from zetadp.trainer.specs.releases import ANEW, ATTEMPT, FROM, RELEASE, RUNTIME, attempts_in

ONCE: Final = 0
"""The step of a release that comes before or after all steps, and is drawn once, whatever the run continues from."""


@final
class RunKey:
    r"""A run's secret in one process.

    Args:
      secret: with the number of this attempt, which no other process of the run had.
      releases: where the digests of releases are written; what earlier attempts wrote is in it.
      header: the first line of a new file.
    Attributes:
      reached: the step that this process has come to; None before its steps begin.
      has_single: whether it has written down a release of ``ONCE``.
    Raises:
      InvalidParameter: this attempt, or a later one, has drawn from the secret before: its noise would be used twice.
    """

    def __init__(self, secret: RunSecret, releases: Path, header: str) -> None:
        self._secret, self._attempt, self._path = bytes.fromhex(secret.secret), secret.attempt, releases
        self._earlier = releases.read_text().splitlines() if releases.exists() else [header]
        if (last := max(attempts_in(self._earlier), default=0)) >= self._attempt:
            raise InvalidParameter("attempt", f"above {last}, which has drawn its noise", self._attempt)
        self._own = [f"{ATTEMPT} {self._attempt}"]
        # What it continues from, and all that was released since.
        self._state = ANEW
        self._asked: dict[str, int] = {}
        self._last: dict[int, tuple[int, RandomStream]] = {}
        self.reached: int | None = None
        self.has_single = False
        self.keep()

    def continues_from(self, digest: str) -> None:
        """The run continues from the state with this digest; told before anything is drawn."""
        assert not self._asked  # nothing is drawn before the checkpoint is read
        self._state = digest

    def stream(self, label: str, vector: bytes | None = None) -> RandomStream:
        """The stream of this label; asked again, another one. ``vector``: the numbers that what is drawn from it is added to."""
        number = self._asked[label] = self._asked.get(label, 0) + 1
        of = "" if vector is None else hashlib.sha256(vector).hexdigest()
        return self._of(f"{label}\n{number}\n{of}")

    def noise(self, site: int, step: int, vector: bytes) -> RandomStream:
        r"""The stream of the noise that is added to these numbers in a step at a site.

        What is released with it is written down. It raises InvalidParameter instead if another stream of this step, or of a later one, has
        released at the site: the step would be released twice.
        """
        found = self._of(f"noise {site} {step} {hashlib.sha256(vector).hexdigest()}")

        def observed(released: bytes) -> None:
            last, stream = self._last.get(site, (0, found))
            if step < last or (step == last and stream is not found):
                raise InvalidParameter("step", f"above {last}, whose noise was released at site {site}", step)
            self._last[site] = step, found
            self._write(site, step, released)

        found.observed = observed
        return found

    def release(self, step: int, released: Sequence[bytes]) -> None:
        """Write down what was released without a stream of ``noise``; at ``ONCE`` in place of what an earlier attempt lost, and durably."""
        if step == ONCE:
            self._earlier = [line for line in self._earlier if not line.startswith(f"{RELEASE} 0 {ONCE} ")]
        self._write(0, step, b"".join(released))
        if step == ONCE:
            self.has_single = True
            self.keep()

    def begins(self, step: int, *, continues: bool) -> None:
        r"""The steps begin. What earlier attempts wrote of steps that are lost was never released, and goes.

        Args:
          step: the one that they begin after.
          continues: whether a checkpoint is continued from.
        """
        header, sections = self._earlier[:1], _sections(self._earlier[1:])
        kept: list[str] = []
        for title, *lines in sections:
            if any(line.startswith(f"{FROM} ") and int(line.split()[1]) > step for line in lines):
                continue  # it began after steps that are lost, so all of its own are
            left = [line for line in lines if not line.startswith(f"{RELEASE} ") or int(line.split()[2]) <= step]
            released = [line for line in left if line.startswith(f"{RELEASE} ")]
            if not continues:  # nothing came of their steps
                left = released
            if continues and not released and f"{FROM} {step}" in left:
                continue  # it began where this one does, and nothing came of it: however many there were, the record has no more lines
            if left:
                kept += [title, *left]
        self._earlier = [*header, *kept]
        self._own.append(f"{FROM} {step}" if continues else ANEW)
        self.reached = step
        self.keep()

    def keep(self) -> None:
        """Write the file, whole and durably."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_name(f".{self._path.name}")
        with unfinished.open("w") as file:
            file.write("".join(f"{line}\n" for line in (*self._earlier, *self._own)))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path)

    def _of(self, label: str) -> RandomStream:
        key = hmac.new(self._secret, f"attempt {self._attempt}\n{self._state}\n{label}".encode(), hashlib.sha256).digest()
        return RandomStream(key, RandomOrigin.OPERATING_SYSTEM)

    def _write(self, site: int, step: int, released: bytes) -> None:
        line = f"{RELEASE} {site} {step} {hashlib.sha256(released).hexdigest()}"
        self._own.append(line)
        self._state = hashlib.sha256(f"{self._state}\n{line}".encode()).hexdigest()


def _sections(lines: Sequence[str]) -> list[list[str]]:
    """Each attempt's lines."""
    found: list[list[str]] = []
    for line in lines:
        if line.startswith(f"{ATTEMPT} "):
            found.append([])
        found[-1].append(line)
    return found


_current: ContextVar[RunKey | None] = ContextVar("run_key", default=None)


def run_key() -> RunKey | None:
    """The secret of the run in this process; None if its randomness comes from the operating system or from a seed."""
    return _current.get()


@contextmanager
def keyed_in(workdir: Path, request: TrainingRequest) -> Generator[RunKey | None]:
    r"""Inside this context the run's randomness follows from the secret in its folder, if there is one. The file is deleted.

    Raises:
      InvalidParameter: a run like this one would use noise twice, or have none that follows from the secret; or this attempt isn't new.
    """
    path = workdir / NOISE_KEY
    if not path.exists():
        yield None
        return
    secret = RunSecret.model_validate_json(path.read_bytes())
    path.unlink()
    if (why := why_not_repeatable(request.spec, request.runtime, request.plan)) is not None:
        raise InvalidParameter("noise key", "absent", why)
    found = RunKey(secret, workdir / RELEASES, f"{RUNTIME} {request.runtime.model_dump_json()}")
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)
