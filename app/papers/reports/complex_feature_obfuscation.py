r"""Obfuscation of features: no guarantee, as the accountants express it."""

from __future__ import annotations

from zetadp.accountants import NonPrivate
from zetadp.app.papers.recompute import reading
from zetadp.app.papers.schemas import ExperimentReport, PaperReport, PaperSummary
from zetadp.app.papers.tables import complex_feature_obfuscation as tables

_RELEASE = NonPrivate(
    reason="a rotation and a public fake feature leave the real feature in the span of Re x and Im x: output laws of two inputs are "
    "mutually singular (errata O5)"
)


SUMMARY = PaperSummary(
    paper="complex_feature_obfuscation",
    title="Attributes obfuscation with complex-valued features",
    authors="anonymous, under double-blind review",
    proposes="hiding a feature as one part of a complex one, rotated by a secret angle, with a fake feature as the other part",
    holds="No statement of differential privacy: epsilon is infinite and delta 1 (O1, O5). k-anonymity isn't reached either (O6, O7).",
)
"""What the paper is, without its experiments."""


def report() -> PaperReport:
    """The paper's claim, as accounted for."""
    return SUMMARY.with_experiments(
        tuple(
            ExperimentReport(
                experiment=each,
                readings=(reading(each, "as_printed", "one release of a rotated feature", _RELEASE, errata=("O1", "O3", "O5", "O6")),),
            )
            for each in tables.EXPERIMENTS
        )
    )
