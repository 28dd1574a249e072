r"""What is known of the shuffled batches in a composition beside whole releases: lower ends, and lines of a derivation."""

from __future__ import annotations

from collections.abc import Mapping

from zetadp.accountants import shared_sample
from zetadp.accountants.between import EndsOf, LowerEnds
from zetadp.accountants.dominating import statement
from zetadp.accountants.leaf import Leaf, Selection
from zetadp.accountants.profile import PrivacyProfile
from zetadp.accountants.shuffled.attained import attained
from zetadp.mechanisms.base import Step

_MOST_PARTS = 10
"""Different parts of shuffled batches whose tests are tried: those that weigh most."""


def lower_ends(shuffled: Mapping[Leaf, int], others: PrivacyProfile | None) -> list[LowerEnds]:
    """What some part of the composition loses alone. proofs/shuffled.md, (5).

    Args:
      shuffled: the epochs of shuffled batches, with their counts.
      others: the profile of all other parts; None if there are none.
    """
    weights = sorted(shuffled.items(), key=lambda part: part[1] * part[0].mechanism.privacy_loss().distance ** 2, reverse=True)
    found: list[LowerEnds] = [ends for leaf, count in weights[:_MOST_PARTS] if (ends := attained(leaf, count)) is not None]
    return found if others is None else [*found, EndsOf(others)]


def derivation(shuffled: Mapping[Leaf, int]) -> tuple[Step, ...]:
    """What stands for each kind of epoch."""
    lines: list[Step] = []
    for leaf in shuffled:
        formula, source = statement(leaf)
        lines.append(Step(symbol="steps", value=float(leaf.steps), formula=formula, source=source))
        if leaf.releases > 1 and not isinstance(leaf.mechanism, Selection):
            lines.extend(shared_sample.derivation(leaf.mechanism, leaf.releases))
    return tuple(lines)
