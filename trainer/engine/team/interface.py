r"""Processes that share one run's work. This is the interface that the loop needs; a single process is a team too."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, final

from torch import Tensor


class Team(Protocol):
    """Equal processes, each with its own data in memory; all hold the same parameters."""

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""
        ...

    @property
    def size(self) -> int:
        """The number of processes."""
        ...

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes; every process gets the same bits."""
        ...

    def share(self, path: Path, /) -> None:
        """Make the file at this path on every other machine what it is on the first; if it isn't there, nowhere."""
        ...


@final
class Alone:
    """A team of one process."""

    @property
    def rank(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return 1

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def share(self, _path: Path) -> None:
        return None
