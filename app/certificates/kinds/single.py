r"""Which kind one training is: from its plan to its sections, and from its sections to what they say."""

from __future__ import annotations

from app.certificates.kinds.base import Kind, Setting
from app.certificates.kinds.feature_release import FeatureReleases, feature_sections
from app.certificates.kinds.gradient_sums import GradientSums, gradient_sections
from app.certificates.kinds.local_release import LocalReleases, local_sections
from app.certificates.kinds.statistic import StatisticRelease, statistic_sections
from app.certificates.kinds.unprotected import Unprotected, unprotected_sections
from app.certificates.sections import Sections
from trainer.plan import ExecutionPlan
from trainer.plans import FeatureReleasePlan, PartPlan, RecordReleasePlan, StatisticReleasePlan, UnprotectedPlan


def sections_of(plan: PartPlan, setting: Setting) -> Sections:
    """What a certificate says of this plan alone."""
    match plan:
        case ExecutionPlan():
            return gradient_sections(plan, setting)
        case RecordReleasePlan():
            return local_sections(plan, setting)
        case StatisticReleasePlan():
            return statistic_sections(plan)
        case FeatureReleasePlan():
            return feature_sections(plan)
        case UnprotectedPlan():
            return unprotected_sections(plan)


def single_kind(sections: Sections) -> Kind | None:
    """The kind of training that these sections state; None where they state none, several, or more than belongs to it."""
    found: list[Kind] = []
    if sections.clipping is not None:
        found.append(GradientSums(sections.clipping, sections.projection, sections.federation))
    elif sections.projection is not None or sections.federation is not None:
        return None
    if sections.local_release is not None:
        found.append(LocalReleases(sections.local_release))
    if sections.statistic is not None:
        found.append(StatisticRelease(sections.statistic))
    if sections.feature_release is not None:
        found.append(FeatureReleases(sections.feature_release))
    if sections.unprotected is not None:
        found.append(Unprotected(sections.unprotected))
    return found[0] if len(found) == 1 else None
