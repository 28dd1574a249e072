r"""THE KINDS of training a certificate can tell of: one module each, with its sections, sentences, checks and what is read aloud."""

from __future__ import annotations

from app.certificates.comparison import ComparisonFacts
from app.certificates.kinds.base import Kind, Setting, Training
from app.certificates.kinds.comparison import Comparison
from app.certificates.kinds.single import sections_of, single_kind
from app.certificates.sections import Sections


def kind_of(sections: Sections, comparison: ComparisonFacts | None) -> Kind | None:
    """The kind of training that a certificate states; None where it states none, or more than one."""
    if comparison is None:
        return single_kind(sections)
    alone = all(getattr(sections, name) is None for name in Sections.model_fields)
    return Comparison(comparison) if alone else None


__all__ = ["Kind", "Setting", "Training", "kind_of", "sections_of", "single_kind"]
