r"""Processes that share one run's work. This is what the loop needs of them; one process alone is a team too."""

from __future__ import annotations

from typing import Protocol, final

from torch import Tensor


class Team(Protocol):
    """Processes of equal standing, each with its own data in memory; every one of them holds the same parameters."""

    @property
    def rank(self) -> int:
        """Of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """Processes."""
        ...

    def sum(self, tensor: Tensor) -> Tensor:
        """Over all processes; every one gets the same bits."""
        ...


@final
class Alone:
    """One process."""

    @property
    def rank(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return 1

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor
