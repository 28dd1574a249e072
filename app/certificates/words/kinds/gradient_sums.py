r"""Training by noisy sums of clipped gradients: every step's release is accounted for, and the model follows from the releases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from zetadp.app.certificates.facts import wording
from zetadp.app.certificates.facts.decimals import exact
from zetadp.app.certificates.facts.phrases import sentence
from zetadp.app.certificates.facts.wording import ArithmeticName
from zetadp.app.certificates.words import shares
from zetadp.app.certificates.words.kinds.base import History, Kind, Setting
from zetadp.app.certificates.words.kinds.projection import projection_lines
from zetadp.app.certificates.words.releases import NOISE, release_phrase, releases_of
from zetadp.trainer.specs.descent import Cosine, FallingSchedule, StepDecay
from zetadp.trainer.specs.execution_plan import AdaptiveClipping, Clipping, ExecutionPlan, LayerBoundsClipping, ScheduledClipping
from zetadp.trainer.specs.sampling import AtNodes, InEpochs, InTurns
from zetadp.trainer.specs.strategy import BandedInverseStrategy, BandedStrategy, Strategy


@final
@dataclass(frozen=True)
class GradientSums(Kind):
    """Noisy sums, at one place or at every node."""

    plan: ExecutionPlan

    @property
    def proofs(self) -> tuple[str, ...]:
        cyclic = ("banded_sums.md",) if isinstance(self.plan.sampling, InTurns) else ()
        return ("clipped_sum.md", *cyclic, *(shares.PROOFS if self.plan.aggregation is not None else ()))

    @property
    def _is_federated(self) -> bool:
        return isinstance(self.plan.sampling, AtNodes)

    def released(self, setting: Setting) -> str:
        computed = wording.POST_PROCESSING if self.plan.aggregation is None else shares.POST_PROCESSING
        covered = computed if setting.guaranteed else wording.NOTHING_COVERED
        averaged = f"; {setting.averages()}" if setting.averaged else ""
        whole = f"{wording.RELEASED[setting.held_out]}; {covered}{averaged}"
        by_nodes = wording.RELEASED_BY_NODES if self.plan.aggregation is None else shares.RELEASED
        return f"{by_nodes}; {whole}" if self._is_federated else whole

    def checkpoint(self) -> str:
        return wording.CHECKPOINTS

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        central = self._is_federated and setting.held_out == "private"
        return (
            wording.DECLARED_NUMBER if setting.is_declared else wording.COUNTED_NUMBER,
            wording.SAMPLED[self.plan.sampling.kind],
            *wording.RUN_ASSUMPTIONS,
            *((setting.named(wording.USER_ASSUMPTION),) if setting.records_per_unit is not None else ()),
            *((wording.FEDERATED_ASSUMPTION,) if self._is_federated else ()),
            *((shares.assumption(self.plan),) if self.plan.aggregation is not None else ()),
            *((wording.CENTRAL_EVALUATION,) if central else ()),
        )

    def not_covered(self, setting: Setting) -> tuple[str, ...]:
        found = super().not_covered(setting)
        return found if self.plan.aggregation is None else (*found, shares.NOT_COVERED)

    def arithmetic(self) -> tuple[ArithmeticName, ...]:
        strategy = self.plan.strategy
        correlated = () if strategy is None else (wording.CORRELATED_SUMS[strategy.kind],)
        counted: tuple[ArithmeticName, ...] = () if self.plan.evaluation is None else ("probed_counts",)
        return ("probed_gradient_sums", *counted, *correlated, *wording.variates(self.plan.mechanisms))

    def lines(self, setting: Setting, history: History) -> Iterator[str]:
        plan, sampling = self.plan, self.plan.sampling
        if isinstance(sampling, AtNodes):
            yield f"Nodes: {sampling.nodes}, each with units of its own. {sentence(wording.PARTICIPATION)}"
            yield f"  {sentence(wording.NODE_NOISE if plan.aggregation is None else shares.noise(plan))}"
            if plan.strategy is not None:
                yield f"  {sentence(wording.NODE_STRATEGY)}"
        yield from _turns(plan, history.released)
        yield from (f"Noise: {line}." for line in self._noise(history))
        if plan.strategy is not None:
            yield f"{_strategy(plan.strategy)} {sentence(setting.named(wording.CORRELATED[plan.strategy.kind]))}"
        yield f"Clipping: {_bounded(plan.clipping)}: {_clipped(plan.clipping, setting)}."
        if plan.projection is not None:
            yield from projection_lines(plan.projection)
        stopped = f" {sentence(wording.STOPPED_EARLY)}" if history.released < plan.steps else ""
        charged = "charged (some of an interrupted epoch may have released nothing)" if isinstance(sampling, InEpochs) else "released"
        yield (
            f"Steps: {history.released} {charged} of {plan.steps} planned{history.restarts}, each sum divided by the "
            f"public number {sampling.expected_batch_size}.{stopped}{history.checkpoints}"
        )

    def _noise(self, history: History) -> Iterator[str]:
        """Every different release, with its owner and units if the figures don't show them."""
        plan = self.plan.cut_to(history.released)
        found = releases_of(plan.event)
        counts = 0 if plan.evaluation is None else plan.evaluation.releases(plan.steps, plan.steps)
        for release in found[:-1] if counts else found:
            units = _UNITS.get(plan.clipping.kind, "")
            least = shares.honest(plan)
            nodes = "" if not self._is_federated else " at each node" if least is None else f" in the shares of {least} nodes together"
            turns = "; each time, the data are those of the group whose turn it is" if isinstance(plan.sampling, InTurns) else ""
            if plan.strategy is not None and plan.strategy.is_one_release:
                turns = f"; all {history.released} noisy sums together count as this one"
            yield f"{release_phrase(release, plan.unit, history.canaries)}{nodes}{turns}{units}"
        if counts and plan.evaluation is not None:
            noise = f"{NOISE[plan.evaluation.mechanism.kind]} of standard deviation {exact(plan.evaluation.mechanism.std)}"
            yield f"{counts} counts of correct answers among all {history.test_records} held-out records with {noise}"


_UNITS = {
    "adaptive": "; in units of the joint vector of sum and count, not of the gradient",
    "scheduled": "; in units of the step's clipping bound, not of the gradient",
}
"""In what a release's noise is stated, by the kind of clipping, where it isn't that of the gradients' sum."""


def _turns(plan: ExecutionPlan, released: int) -> Iterator[str]:
    """Which steps a unit can be in, where it isn't each of them."""
    match plan.sampling:
        case InEpochs() as sampling if isinstance(sampling, InTurns):
            turns = "1 turn" if sampling.turns == 1 else f"{sampling.turns} turns"
            yield (
                f"Turns: {sampling.groups} groups of units have samples of their own, one after the other. Epochs: of {turns} of each "
                f"group, {sampling.epoch} steps, of which a unit is in one; one that isn't finished is charged as a whole."
            )
        case InTurns() as sampling:
            most = -(-released // sampling.groups)
            yield (
                f"Turns: {sampling.groups} groups of units have samples of their own, one after the other: a unit can be in at most {most} "
                f"of {released} samples."
            )
        case InEpochs() as sampling:
            yield f"Epochs: of {sampling.epoch} steps each; one that isn't finished is charged as a whole."
        case _:
            return


def _strategy(strategy: Strategy) -> str:
    if isinstance(strategy, BandedStrategy):
        return f"Bands: {strategy.bands}, with weights {', '.join(map(exact, strategy.coefficients))}."
    if isinstance(strategy, BandedInverseStrategy):
        return f"Inverse bands: {', '.join(map(exact, strategy.coefficients))}, all times {exact(strategy.weight)}."
    buffers = ", ".join(f"{exact(one.weight)} decaying by {exact(one.decay)}" for one in strategy.buffers)
    return f"Buffers: weights {buffers}, all times {exact(strategy.weight)}."


def _clipped(clipping: Clipping, setting: Setting) -> str:
    """How a unit's contribution was bounded."""
    return setting.named(wording.CLIPPING[clipping.kind] + (wording.SUMMED if setting.records_per_unit is not None else ""))


def _bounded(clipping: Clipping) -> str:
    bound = exact(clipping.bound)
    if isinstance(clipping, AdaptiveClipping):
        return (
            f"to a bound that starts at {bound} and follows the {exact(clipping.quantile)} quantile of the norms; its count accounts for "
            f"{exact(clipping.count_share)} of the squared sensitivity"
        )
    if isinstance(clipping, ScheduledClipping):
        return f"to a bound that starts at {bound} and {_falls(clipping.schedule)}, over {clipping.steps} steps"
    if isinstance(clipping, LayerBoundsClipping):
        bounds = ", ".join(f"{exact(layer.bound)} for {layer.layer}" for layer in clipping.layers)
        return f"layer by layer ({bounds}), to an l2 norm of {bound} in all"
    norm = "l1" if clipping.kind == "l1" else "l2"
    return f"to an {norm} norm of {bound}" + (", shared by the layers" if clipping.kind == "per_layer" else "")


def _falls(schedule: FallingSchedule) -> str:
    match schedule:
        case Cosine():
            return f"falls along half a cosine to {exact(schedule.final_share)} of it"
        case StepDecay():
            return f"is multiplied by {exact(schedule.gamma)} after steps {', '.join(map(str, schedule.after))}"
