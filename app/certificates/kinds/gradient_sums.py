r"""Training by noisy sums of clipped gradients: what every step releases is accounted, and the model follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from accountants.events import Event, leaves
from app.certificates import wording
from app.certificates.decimals import exact, fraction
from app.certificates.evaluation import count_problems, training_part
from app.certificates.facts import releases_of
from app.certificates.kinds.base import Kind, Sentence, Setting, Training
from app.certificates.kinds.phrases import release_phrase, sentence
from app.certificates.kinds.projection import meaning, projection_facts, projection_lines, projection_problems
from app.certificates.sections import Sections
from app.certificates.training import ClippingFacts, FederationFacts, LayerBoundFacts, ProjectionFacts
from mechanisms import Laplace, Sensitivity
from mechanisms.base import Adjacency
from trainer.plan import AdaptiveClipping, Clipping, ExecutionPlan, FederatedSampling, LayerBound, LayerBoundsClipping

JOINT_SENSITIVITY = 1.0
"""Of the vector that adaptive clipping releases: sum over bound, and count, each with its share."""


def gradient_sections(plan: ExecutionPlan, setting: Setting) -> Sections:
    """What a certificate says of this plan alone."""
    sampling = plan.sampling
    nodes = (
        FederationFacts(nodes=sampling.nodes, participation=wording.PARTICIPATION, noise=wording.NODE_NOISE)
        if isinstance(sampling, FederatedSampling)
        else None
    )
    return Sections(
        federation=nodes,
        clipping=_clipping_facts(plan.clipping, setting),
        projection=None if plan.projection is None else projection_facts(plan.projection),
    )


@final
@dataclass(frozen=True)
class GradientSums(Kind):
    """Noisy sums, at one place or at every node."""

    clipping: ClippingFacts
    projection: ProjectionFacts | None
    federation: FederationFacts | None
    proofs = ("clipped_sum.md",)

    def released(self, setting: Setting) -> str:
        covered = wording.POST_PROCESSING if setting.guaranteed else wording.NOTHING_COVERED
        whole = f"{wording.RELEASED[setting.held_out]}; {covered}"
        return whole if self.federation is None else f"{wording.RELEASED_BY_NODES}; {whole}"

    def checkpoint(self) -> str:
        return wording.CHECKPOINTS

    def run_assumptions(self, setting: Setting) -> tuple[str, ...]:
        central = self.federation is not None and setting.held_out == "private"
        return (
            wording.DECLARED_NUMBER if setting.is_declared else wording.COUNTED_NUMBER,
            wording.SAMPLED_INDEPENDENTLY,
            *wording.RUN_ASSUMPTIONS,
            *((setting.named(wording.USER_ASSUMPTION),) if setting.records_per_unit is not None else ()),
            *((wording.FEDERATED_ASSUMPTION,) if self.federation is not None else ()),
            *((wording.CENTRAL_EVALUATION,) if central else ()),
        )

    def arithmetic(self, setting: Setting) -> str:
        run = wording.GRADIENT_ARITHMETIC.replace("{precision}", wording.PRECISION[setting.precision])
        return "; ".join((run, *wording.variates(setting.mechanisms)))

    def sentences(self, setting: Setting) -> Iterator[Sentence]:
        if self.federation is not None:
            yield "federation.participation", self.federation.participation, wording.PARTICIPATION
            yield "federation.noise", self.federation.noise, wording.NODE_NOISE
        yield "clipping.meaning", self.clipping.meaning, _clipped(self.clipping.kind, setting)
        if self.projection is not None:
            yield "projection.meaning", self.projection.meaning, meaning(self.projection.order)

    def problems(self, training: Training) -> Iterator[str]:
        yield from count_problems(training.event, training.steps.planned, training.steps.released, training.counts)
        part = training_part(training.event, training.counts)
        if part is None:
            return
        released = sum(release.count for release in releases_of(part))
        if training.steps.released != released:
            yield f"steps.released: the certificate says {training.steps.released}, its event has {released}"
        yield from _clipping_problems(self.clipping, part)
        if self.projection is not None:
            yield from projection_problems(self.projection, self.clipping)
        yield from self._sampling_problems(training, part)

    def lines(self, training: Training) -> Iterator[str]:
        if self.federation is not None:
            yield f"Nodes: {self.federation.nodes}, each with units of its own. {sentence(self.federation.participation)}"
            yield f"  {sentence(self.federation.noise)}"
        yield from (f"Noise: {line}." for line in self._noise(training))
        yield f"Clipping: {_bounded(self.clipping)}: {self.clipping.meaning}."
        if self.projection is not None:
            yield from projection_lines(self.projection)
        yield (
            f"Steps: {training.steps.released} released of {training.steps.planned} planned{training.restarts}, each sum divided by the "
            f"public number {training.expected_batch_size}.{training.checkpoints}"
        )

    def _noise(self, training: Training) -> Iterator[str]:
        """Every different release, with whose it is and in what units where that isn't plain from the figures."""
        *sums, last = training.releases
        counts = sums and training.counts is not None
        for release in sums if counts else training.releases:
            units = "; in units of the joint vector of sum and count, not of the gradient" if self.clipping.kind == "adaptive" else ""
            nodes = "" if self.federation is None else " at each node"
            yield f"{release_phrase(release, training.unit)}{nodes}{units}"
        if counts:
            noise = f"{last.mechanism.kind} noise of standard deviation {last.mechanism.std_real}"
            yield f"{last.count} counts of right answers among all {training.test_records} held-out records with {noise}"

    def _sampling_problems(self, training: Training, event: Event) -> Iterator[str]:
        """Expected batch and units, against the probability that every release was accounted with."""
        name, units, batch = training.units_name, training.units, training.expected_batch_size
        if batch is None:
            yield "expected_batch_size: must be stated for noisy sums"
            return
        # All nodes sample with one probability, the expected batch over a node's share of all units.
        nodes, at_all = (1, "") if self.federation is None else (self.federation.nodes, " * federation.nodes")
        probability = exact(batch * nodes / units)
        for sampling in (release.sampling for release in releases_of(event)):
            if sampling.kind == "poisson" and sampling.probability != probability:
                yield f"expected_batch_size{at_all} / {name} is {probability}, the event samples with {sampling.probability}"
            sizes = sampling.sample_size, sampling.population_size
            if sampling.kind == "fixed_size" and sizes != (batch, units):
                yield (
                    f"expected_batch_size and {name} are {batch} and {units}, the event samples "
                    f"{sampling.sample_size} of {sampling.population_size}"
                )


def _clipped(kind: str, setting: Setting) -> str:
    """How a unit's contribution was bounded."""
    return setting.named(wording.CLIPPING[kind] + (wording.SUMMED if setting.records_per_unit is not None else ""))


def _clipping_facts(clipping: Clipping, setting: Setting) -> ClippingFacts:
    adaptive = clipping if isinstance(clipping, AdaptiveClipping) else None
    layers = clipping.layers if isinstance(clipping, LayerBoundsClipping) else None
    return ClippingFacts(
        kind=clipping.kind,
        bound=exact(clipping.bound),
        layers=None if layers is None else tuple(LayerBoundFacts(layer=layer.layer, bound=exact(layer.bound)) for layer in layers),
        quantile=adaptive and exact(adaptive.quantile),
        learning_rate=adaptive and exact(adaptive.learning_rate),
        count_share=adaptive and exact(adaptive.count_share),
        meaning=_clipped(clipping.kind, setting),
    )


def _bounded(clipping: ClippingFacts) -> str:
    if clipping.kind == "adaptive":
        return (
            f"to a bound that starts at {clipping.bound} and follows the {clipping.quantile} quantile of the norms; its count takes "
            f"{clipping.count_share} of the squared sensitivity"
        )
    if clipping.layers is not None:
        bounds = ", ".join(f"{layer.bound} for {layer.layer}" for layer in clipping.layers)
        return f"layer by layer ({bounds}), to an l2 norm of {clipping.bound} in all"
    norm = "l1" if clipping.kind == "l1" else "l2"
    return f"to an {norm} norm of {clipping.bound}" + (", shared by the layers" if clipping.kind == "per_layer" else "")


def _clipping_problems(clipping: ClippingFacts, training: Event) -> Iterator[str]:
    """The stated bound, against the sensitivity that every release of the training was accounted with."""
    yield from _adaptive_problems(clipping)
    yield from _layer_problems(clipping)
    for leaf in leaves(training):
        sensitivity = leaf.mechanism.sensitivity
        covered = (
            _bound(sensitivity, sensitivity.l1, sensitivity.l1_contribution)
            if clipping.kind == "l1"
            else _bound(sensitivity, sensitivity.l2, sensitivity.l2_contribution)
        )
        if covered is None or isinstance(leaf.mechanism, Laplace) != (clipping.kind == "l1"):
            # Laplace noise says nothing of an l2 norm, nor Gaussian noise of an l1 norm.
            yield f"clipping.kind: the certificate says {clipping.kind}, the event's noise is for another norm"
        elif clipping.kind == "adaptive":
            if covered != JOINT_SENSITIVITY:
                yield f"clipping: the adaptive vector moves by {JOINT_SENSITIVITY}, the event's sensitivity is for {exact(covered)}"
        elif exact(covered) != clipping.bound:
            yield f"clipping.bound: the certificate says {clipping.bound}, the event's sensitivity is for {exact(covered)}"


def _adaptive_problems(clipping: ClippingFacts) -> Iterator[str]:
    stated = clipping.quantile, clipping.learning_rate, clipping.count_share
    if (clipping.kind == "adaptive") != (None not in stated) or (clipping.kind != "adaptive" and any(part is not None for part in stated)):
        yield f"clipping: quantile, learning_rate and count_share are stated exactly for adaptive clipping, got kind {clipping.kind!r}"
    for name, text in (("quantile", clipping.quantile), ("count_share", clipping.count_share)):
        if text is not None and not 0 < fraction(text) < 1:
            yield f"clipping.{name} must be in (0, 1), got {text}"


def _layer_problems(clipping: ClippingFacts) -> Iterator[str]:
    if (clipping.kind == "layer_bounds") != (clipping.layers is not None):
        yield f"clipping.layers: stated exactly for bounds by layer, got kind {clipping.kind!r}"
    if clipping.layers is None:
        return
    if len({layer.layer for layer in clipping.layers}) != len(clipping.layers):
        yield "clipping.layers: a layer is named twice"
    try:
        bounds = LayerBoundsClipping(layers=tuple(LayerBound(layer=one.layer, bound=float(one.bound)) for one in clipping.layers))
    except ValueError:
        yield "clipping.layers: every bound must be a positive number in the range of float64"
        return
    if exact(bounds.bound) != clipping.bound:
        yield f"clipping.bound: the certificate says {clipping.bound}, the layers' bounds give {exact(bounds.bound)}"


def _bound(sensitivity: Sensitivity, move: float | None, contribution: float | None) -> float | None:
    """The largest clipping bound that this sensitivity covers; of two clipped terms that replace each other, the difference is twice it."""
    if move is None:
        return None
    bound = move / 2.0 if sensitivity.adjacency is Adjacency.REPLACE_ONE else move
    return bound if contribution is None else min(bound, contribution)
