r"""What a cluster must be able to do. Everything else, as when to start a worker for which job, is the launcher's (``process.py``).

Nothing rests on it: a worker that is started twice, too late or not at all can neither run a job twice nor lose one, since only one attempt
of a job may write, and its lease tells whether it lives.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol, final

from zetadp.app.jobs.needs import Capacity, Needs
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter


class LaunchState(StrEnum):
    """What the cluster says of a worker: it waits for a machine, it runs, or it has ended."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@final
class Order(Value):
    r"""A worker to start.

    Attributes:
      name: unique in the cluster: small letters, digits and hyphens, at most 63.
      job_id: the job that it is there for, ``zetadp worker --job``.
      cpus: processor cores on each machine.
      seconds: how long the cluster keeps it; None for as long as the cluster's own rules allow.
      grace_seconds: how long it may take to end once the cluster wants its machine back; then it may be killed.
    """

    name: str
    job_id: str
    needs: Needs
    cpus: int
    seconds: int | None
    grace_seconds: float


@final
class Found(Value):
    """What the cluster knows of a worker; ``reason`` is its own word for why it waits or has ended, for people to read."""

    state: LaunchState
    reason: str | None = None


class ClusterUnavailable(Exception):
    """It doesn't answer, or not in time; ``what`` says which command or request, and how it ended."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)


class LaunchRefused(Exception):
    """The cluster doesn't take this order, whenever it is given; the text is the cluster's own."""


class Cluster(Protocol):
    """A cluster that starts workers. All of its methods may raise ClusterUnavailable, and take seconds at most."""

    def capacity(self) -> Capacity:
        """What one job may have at most."""
        ...

    def described(self) -> str:
        """One line for people to read."""
        ...

    def start(self, order: Order) -> None:
        """Start a worker, unless there is one of this name already. Raises LaunchRefused."""
        ...

    def found(self, names: Sequence[str]) -> Mapping[str, Found]:
        """Those of these workers that the cluster knows; of others nothing is left."""
        ...

    def end(self, name: str) -> None:
        """End a worker that isn't needed any more: it gets SIGTERM and its grace. Nothing happens if there is none."""
        ...

    def close(self) -> None:
        """The launcher ends; the cluster's workers go on, except for those that are this machine's own."""
        ...


def words(setting: str, text: str) -> list[str]:
    r"""The words of a command in a setting, as a shell reads them. Raises InvalidParameter.

    >>> words("ZETADP_LAUNCH_COMMAND", "conda run -n 'my env' zetadp worker")
    ['conda', 'run', '-n', 'my env', 'zetadp', 'worker']
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidParameter(setting, "words as a shell reads them", f"{text!r} ({error})") from None
