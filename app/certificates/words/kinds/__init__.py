r"""The kinds of training that a certificate can describe: one module each, with its sentences and what they rest on."""

from __future__ import annotations

from zetadp.app.certificates.facts.statement import PartFacts
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.app.certificates.words.kinds.comparison import Comparison
from zetadp.app.certificates.words.kinds.private_selection import PrivateSelections
from zetadp.app.certificates.words.kinds.single import single_kind
from zetadp.trainer import AnyPlan
from zetadp.trainer.specs.algorithms.selection_plan import SelectionPlan
from zetadp.trainer.specs.plans import ComparisonPlan


def kind_of(plan: AnyPlan, parts: tuple[PartFacts, ...]) -> Kind:
    """The kind of training of this plan; ``parts``: the facts of a comparison's parts, else empty."""
    match plan:
        case ComparisonPlan():
            return Comparison(plan, parts)
        case SelectionPlan():
            return PrivateSelections(plan)
        case _:
            return single_kind(plan)


__all__ = ["History", "Kind", "Setting", "kind_of"]
