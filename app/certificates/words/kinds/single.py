r"""Which kind one training is, by its plan."""

from __future__ import annotations

from zetadp.app.certificates.words.kinds.base import Kind
from zetadp.app.certificates.words.kinds.feature_release import FeatureReleases
from zetadp.app.certificates.words.kinds.gradient_sums import GradientSums
from zetadp.app.certificates.words.kinds.local_release import LocalReleases
from zetadp.app.certificates.words.kinds.statistic import StatisticRelease
from zetadp.app.certificates.words.kinds.unprotected import Unprotected
from zetadp.trainer.specs.execution_plan import ExecutionPlan
from zetadp.trainer.specs.plans import FeatureReleasePlan, PartPlan, RecordReleasePlan, StatisticReleasePlan, UnprotectedPlan


def single_kind(plan: PartPlan) -> Kind:
    """The kind of training of this plan."""
    match plan:
        case ExecutionPlan():
            return GradientSums(plan)
        case RecordReleasePlan():
            return LocalReleases(plan)
        case StatisticReleasePlan():
            return StatisticRelease(plan)
        case FeatureReleasePlan():
            return FeatureReleases(plan)
        case UnprotectedPlan():
            return Unprotected(plan)
