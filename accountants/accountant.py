"""What an accountant is: a function from an event, or from the leaves that it comes down to, to a privacy profile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import final

from zetadp.accountants.events import Event, leaves, non_private_reason
from zetadp.accountants.failing import FailingProfile, split
from zetadp.accountants.leaf import Leaf
from zetadp.accountants.profile import NonPrivateProfile, PrivacyProfile
from zetadp.mechanisms.errors import UnsupportedEvent


class Accountant(ABC):
    """A stateless function from an event to its profile."""

    name: str
    summary: str
    sources: tuple[str, ...]

    @final
    def unsupported(self, event: Event) -> str | None:
        """Why this accountant can't bound the event, or None."""
        if non_private_reason(event) is not None:
            return None
        rest, _ = split(leaves(event))
        return self.unsupported_parts(rest) if rest else None

    @final
    def profile(self, event: Event) -> PrivacyProfile:
        """Raises UnsupportedEvent with the reason that ``unsupported`` gives."""
        if (reason := non_private_reason(event)) is not None:
            return NonPrivateProfile(reason)
        rest, failure = split(leaves(event))
        if failure == 0:
            return self.of_parts(rest)
        return FailingProfile(failure, self.of_parts(rest) if rest else None, rest)

    @final
    def of_parts(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile of leaves with their counts, none of which may fail. Raises UnsupportedEvent as ``profile`` does."""
        if (reason := self.unsupported_parts(parts)) is not None:
            raise UnsupportedEvent(self.name, reason)
        return self._profile(parts)

    @abstractmethod
    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        """Why this accountant can't bound the composition of these leaves, each with its count, or None."""

    @abstractmethod
    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile of leaves that ``unsupported_parts`` accepts."""
