"""What an accountant is: a function from an event, or from the leaves that it comes down to, to a privacy profile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import final

from zetadp.accountants.allocation.epochs import bounded_epochs, bounding_release, bounding_steps
from zetadp.accountants.allocation.groups import lower_parts
from zetadp.accountants.allocation.replaced import ReplacedProfile, is_replaced, removed_parts, whole_parts
from zetadp.accountants.between import BetweenProfile, EndsOf
from zetadp.accountants.dominating import pair_of, statement, unsupported_reason
from zetadp.accountants.events import Event, leaves, non_private_reason
from zetadp.accountants.failing import FailingProfile, split
from zetadp.accountants.leaf import Leaf, Selection, unfolded, unshuffled
from zetadp.accountants.profile import NonPrivateProfile, PrivacyProfile
from zetadp.accountants.selected.best_run import SelectedProfile, alone
from zetadp.accountants.shuffled.ends import derivation, lower_ends
from zetadp.mechanisms.base import Step
from zetadp.mechanisms.errors import UnsupportedEvent


class Accountant(ABC):
    """A stateless function from an event to its profile."""

    name: str
    summary: str
    sources: tuple[str, ...]

    @final
    def unsupported(self, event: Event) -> str | None:
        """Why this accountant can't bound the event, or None."""
        return None if non_private_reason(event) is not None else self.unsupported_of_all(leaves(event))

    @final
    def profile(self, event: Event) -> PrivacyProfile:
        """Raises UnsupportedEvent with the reason that ``unsupported`` gives."""
        if (reason := non_private_reason(event)) is not None:
            return NonPrivateProfile(reason)
        return self.of_all(leaves(event))

    @final
    def of_parts(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile of leaves with their counts, none of which may fail. Raises UnsupportedEvent as ``profile`` does."""
        chosen = alone(parts)
        if (reason := self._reason(parts, chosen)) is not None:
            raise UnsupportedEvent(self.name, reason)
        if chosen is not None:
            return self.of_selection(parts, chosen)
        shuffled, others = _split(parts)
        if not shuffled:
            return self._bracketed(parts)
        # What they lose by themselves is lost in the composition, too; a route that is for several releases may not take the others alone.
        alike = self.of_parts(others) if others and self.unsupported_parts(others) is None else None
        return BetweenProfile(self._bracketed(unshuffled(parts)), lambda: lower_ends(shuffled, alike), derivation(shuffled))

    def _bracketed(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile, with lower ends of their own where the pairs of some leaves are only bounds."""
        attained = {leaf: count for leaf, count in parts.items() if not _is_bound(leaf)}
        if len(attained) == len(parts):
            return self._bracketed_allocation(parts)
        # Without a release a composition loses no more than with it.
        return BetweenProfile(
            self._bracketed_allocation(parts),
            lambda: [EndsOf(self._bracketed_allocation(attained))] if attained and self.unsupported_parts(attained) is None else [],
        )

    def _bracketed_allocation(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The same where no pair of noise is a bound, but those of allocations may be."""
        less = lower_parts(parts)
        if not less:
            return self._profile(parts)
        steps = tuple(_epoch_step(leaf) for leaf in parts if is_replaced(leaf))
        return BetweenProfile(
            self._above(parts), lambda: [EndsOf(self._profile(one)) for one in less if one and self.unsupported_parts(one) is None], steps
        )

    def _above(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile of pairs that are bounds; for allocations in which a unit is replaced, the better one of two."""
        whole, removed = self._profile(whole_parts(parts)), removed_parts(parts)
        if removed is None or self.unsupported_parts(removed) is not None:
            return whole
        return ReplacedProfile(whole, self._profile(removed))

    def of_selection(self, parts: Mapping[Leaf, int], chosen: Selection) -> PrivacyProfile:
        """The profile of leaves that are one selection and nothing else, by this accountant's profile of its base."""
        del parts
        return SelectedProfile(chosen, self.of_all(dict(chosen.parts)), None)

    def unsupported_selection(self, parts: Mapping[Leaf, int], chosen: Selection) -> str | None:
        """Why ``of_selection`` has no answer, or None."""
        del parts
        return self.unsupported_of_all(dict(chosen.parts))

    @final
    def of_pairs(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile of the pairs that bound these leaves, which are none of shuffled batches, with the pairs' own lower ends.

        For whoever replaces those where pairs are only bounds, as ``of_parts`` does. Raises UnsupportedEvent as ``profile`` does.
        """
        if (reason := self.unsupported_parts(parts)) is not None:
            raise UnsupportedEvent(self.name, reason)
        return self._profile(parts)

    @final
    def of_all(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile of leaves with their counts, of which some may fail."""
        if epochs := [leaf for leaf in parts if bounding_release(leaf) is not None]:
            # Nothing is known to be attained by these: without them a composition loses no more.
            less = {leaf: count for leaf, count in parts.items() if leaf not in epochs}
            return BetweenProfile(
                self.of_all(bounded_epochs(parts)),
                lambda: [EndsOf(self.of_all(less))] if less and self.unsupported_of_all(less) is None else [],
                tuple(step for leaf in epochs for step in (_epoch_step(leaf), *bounding_steps(leaf))),
            )
        rest, failure = split(parts)
        if failure == 0:
            return self.of_parts(rest)
        return FailingProfile(failure, self.of_parts(rest) if rest else None, rest, parts)

    @final
    def unsupported_of_all(self, parts: Mapping[Leaf, int]) -> str | None:
        """Why ``of_all`` has no answer, or None."""
        rest, _ = split(bounded_epochs(parts))
        return self._reason(rest, alone(rest)) if rest else None

    @final
    def _reason(self, parts: Mapping[Leaf, int], chosen: Selection | None) -> str | None:
        if chosen is not None:
            if _split(unfolded(parts))[0]:
                return "the best of several runs of shuffled batches isn't proved here"
            return self.unsupported_selection(parts, chosen)
        if not (shuffled := _split(parts)[0]):
            return self.unsupported_parts(parts)
        reasons = (unsupported_reason(leaf) for leaf in shuffled)
        return next((reason for reason in reasons if reason is not None), None) or self.unsupported_parts(unshuffled(parts))

    @abstractmethod
    def unsupported_parts(self, parts: Mapping[Leaf, int]) -> str | None:
        """Why this accountant can't bound the composition of these leaves, each with its count, or None."""

    @abstractmethod
    def _profile(self, parts: Mapping[Leaf, int]) -> PrivacyProfile:
        """The profile of leaves that ``unsupported_parts`` accepts."""


def _epoch_step(leaf: Leaf) -> Step:
    """How a random allocation in which a unit is replaced is bounded."""
    formula, source = statement(leaf)
    return Step(symbol="steps", value=float(leaf.steps), formula=formula, source=source)


def _is_bound(leaf: Leaf) -> bool:
    return unsupported_reason(leaf) is None and pair_of(leaf).family.is_bound


def _split(parts: Mapping[Leaf, int]) -> tuple[dict[Leaf, int], Mapping[Leaf, int]]:
    """(epochs of shuffled batches, what else there is)."""
    if all(leaf.scheme != "shuffled" for leaf in parts):
        return {}, parts
    shuffled = {leaf: count for leaf, count in parts.items() if leaf.scheme == "shuffled"}
    return shuffled, {leaf: count for leaf, count in parts.items() if leaf not in shuffled}
