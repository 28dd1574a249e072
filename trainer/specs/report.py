r"""What a training run reports: the events along the way and the report at its end. Free of torch.

It contains only what the guarantee covers, or what doesn't depend on the training data. The size of a drawn sample, the training loss, and
how many gradients were clipped or not finite are functions of the data that no noise covers: no field exists for them.

Durations are the one exception. A larger sample takes longer, so anyone who watches the seconds pass learns something about its size; no
guarantee covers that, just as none covers any other side channel of the machine.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.accountants.events import Event
from zetadp.mechanisms import RandomOrigin
from zetadp.mechanisms.base import Count, Extended, NonNegative, Number, OpenProbability, Tally, Value, is_absent
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.specs.algorithms.federation import MOST_SITES, SignedProposal, SiteRecord, SiteStanding
from zetadp.trainer.specs.findings.attacks import AttackFindings
from zetadp.trainer.specs.findings.runs import CanaryFindings, NoiseFindings, SampleFindings
from zetadp.trainer.specs.plan_base import PartName

Step = Annotated[int, Strict(), Field(ge=0, le=10**12)]

MetricName = Literal[
    "accuracy",
    "roc_auc",
    "f1",
    "recall",
    "nmse",
    "psnr",
    "ssim",
    "nmse_of_input",
    "psnr_of_input",
    "ssim_of_input",
    "score",
    "score_all_zero",
    "score_column_means",
]
r"""The first four are for classification, the next six for image reconstruction; psnr in decibels, fractions in [0, 1].

Those of the input are of the image that the network was given, in the place of its output: training that stays below them is of no use.
The last three are for autoencoders: 1 - mean squared error of the outputs, of zeros, and of the held-out columns' own means in their place.
"""

METRICS = {
    "nmse_of_input": "NMSE of the input instead of the output",
    "psnr_of_input": "PSNR of the input instead of the output",
    "ssim_of_input": "SSIM of the input instead of the output",
    "score": "score (1 minus the mean squared error)",
    "score_all_zero": "score of zeros instead of outputs",
    "score_column_means": "score of column means instead of outputs",
}
"""Metrics whose names don't say what they are."""

MetricValues = Annotated[dict[MetricName, Number], Field(min_length=1)]

HeldOut = Literal["public", "private", "none", "encoded"]
"""How the held-out records were used: declared public and measured on, measured through budgeted noise, nothing left the process, or only
their features left it, with budgeted noise."""

FRACTIONS = ("accuracy", "roc_auc", "f1", "recall")


def _check_fractions(metrics: dict[MetricName, float] | None) -> None:
    for name, value in (metrics or {}).items():
        if name in FRACTIONS and not 0.0 <= value <= 1.0:
            raise InvalidParameter(f"metrics.{name}", "in [0, 1]", value)


@final
class Selected(Value):
    """The outcome of a private selection: the best run's candidate; None if no model came out, since there was no run or all failed."""

    candidate: PartName | None = Field(default=None, exclude_if=is_absent)


@final
class RunReport(Value):
    r"""What a finished run did: the facts for a certificate.

    Attributes:
      steps_released: noisy sums that were released (by each node, in a federation), counted by the loop; steps lost with a killed worker
        were never released, and a step that an error ended counts as released.
      event: the event of exactly those releases, private evaluations included; of all planned ones where the run stopped early, which may
        have followed from what was released.
      noise_std: std per real component of the released vector; Laplace's scale b; 0 where nothing is claimed about the noise, or
        where a comparison's parts each have their own.
      random_origin: where sampling and noise came from; ``user_seed`` isn't private against someone who knows the seed.
      generator: how the noise was computed from its keys, in words.
      resumptions: how often the run continued from a checkpoint.
      held_out: what the metrics say about held-out people; see ``HeldOut``.
      metrics: of the final model on the held-out records; None where ``held_out`` is none, noisy where it is private. For a comparison
        those of its first run; all are in its table.
      test_records: how many records were held out.
      training_records: how many records were trained on.
      training_units: units of privacy among them: the records themselves, or users.
      checkpoints_released: states that were written to a checkpoint, over all attempts; the guarantee covers all of them.
      parameters: number of real parameters; a complex one counts twice. 0 where a private selection has no model.
      versions: of python, torch, numpy and zetadp.
      hardware: the processor or accelerator, and the number of threads.
      training_seconds: over all attempts, without what was lost; to a tenth of a second.
      noise_test: the test of the noise drawn; None where no noise is added to numbers.
      sample_test: the test of who was sampled; None where steps don't sample units by chance.
      audit: the canaries' findings; None if none were requested.
      attacks: the findings of attacks on sent features; None if there were none.
      sites: what became of every site's part, in their order, where they were connected over a network.
      proposal: what these sites agreed to; None where there are none.
      selected: of a private selection, which candidate's model came out; else None. Nothing here is about any other run: steps, metrics,
        parameters are the best one's, and no time, checkpoint or test is stated.
    Raises:
      ValidationError: no metrics or parameters although a model came out and was measured, or the reverse.
    """

    steps_released: Count
    event: Event
    noise_std: NonNegative
    random_origin: RandomOrigin
    generator: str
    resumptions: Step
    held_out: HeldOut
    metrics: MetricValues | None
    test_records: Tally
    training_records: Count
    training_units: Count
    checkpoints_released: Step
    parameters: Tally
    versions: dict[str, str]
    hardware: str
    training_seconds: NonNegative
    # Left out of JSON where absent: most runs have none of them.
    noise_test: NoiseFindings | None = Field(default=None, exclude_if=is_absent)
    sample_test: SampleFindings | None = Field(default=None, exclude_if=is_absent)
    audit: CanaryFindings | None = Field(default=None, exclude_if=is_absent)
    attacks: AttackFindings | None = Field(default=None, exclude_if=is_absent)
    sites: Annotated[tuple[SiteRecord, ...], Field(max_length=MOST_SITES, exclude_if=is_absent)] = ()
    proposal: SignedProposal | None = Field(default=None, exclude_if=is_absent)
    selected: Selected | None = Field(default=None, exclude_if=is_absent)

    @model_validator(mode="after")
    def _check(self) -> Self:
        has_model = self.selected is None or self.selected.candidate is not None
        if (self.held_out in {"none", "encoded"} or not has_model) != (self.metrics is None):
            raise InvalidParameter("metrics", "given if and only if held_out is 'public' or 'private' and there is a model", self.held_out)
        if has_model != (self.parameters > 0):
            raise InvalidParameter("parameters", "0 if and only if there is no model", self.parameters)
        if self.selected is not None and (self.checkpoints_released or self.training_seconds or self.noise_test or self.sample_test):
            raise InvalidParameter("selected", "without checkpoints, seconds and tests, which may tell of other runs", self.selected)
        _check_fractions(self.metrics)
        return self


@final
class Started(Value):
    """The first line of every attempt; ``resumed_from_step`` is 0 without a checkpoint."""

    event: Literal["started"] = "started"
    resumed_from_step: Step


@final
class Progress(Value):
    r"""``step`` of ``steps`` are done and in a checkpoint; ``seconds`` count over all attempts.

    ``epsilon`` at ``delta`` is what a run planned for ``step`` steps would cost at most. It is for watching only: if a run is ended
    because of what it reported, its outputs chose its number of steps, and it is as private as all its planned steps, or as a filter says.
    """

    event: Literal["progress"] = "progress"
    step: Step
    steps: Count
    epsilon: Extended
    delta: OpenProbability
    seconds: NonNegative


@final
class Metrics(Value):
    r"""Metrics on held-out records: public ones, or noisy ones if the records are private (``held_out``).

    They describe a model that is already in a checkpoint, so that no lost step was ever seen.
    """

    event: Literal["metrics"] = "metrics"
    step: Step
    held_out: Literal["public", "private"]
    metrics: MetricValues

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_fractions(self.metrics)
        return self


@final
class Stage(Value):
    """Work other than steps has begun that may take minutes: ``doing`` names it in a few words without any data value."""

    event: Literal["stage"] = "stage"
    doing: Annotated[str, Field(min_length=1, max_length=200)]


@final
class SitesStanding(Value):
    """After round ``round`` of ``rounds``: how every site stands that a network connects, in their order."""

    event: Literal["sites"] = "sites"
    round: Count
    rounds: Count
    sites: Annotated[tuple[SiteStanding, ...], Field(max_length=MOST_SITES)]


@final
class CheckpointWritten(Value):
    """The state after ``step`` is durable."""

    event: Literal["checkpoint"] = "checkpoint"
    step: Step


@final
class Finished(Value):
    """Model and report are written."""

    event: Literal["finished"] = "finished"


@final
class Stopped(Value):
    """Stopped on request after ``step``, which is in the checkpoint."""

    event: Literal["stopped"] = "stopped"
    step: Step


@final
class Failed(Value):
    r"""The run can't continue.

    Attributes:
      reason: one line for the user.
      executed: the most steps that were executed, over all attempts, if all of them are in the checkpoint; None if that isn't known:
        then the whole plan counts as executed.
    """

    event: Literal["failed"] = "failed"
    reason: str
    executed: Step | None = None


TrainingEvent = Annotated[
    Started | Progress | Metrics | Stage | SitesStanding | CheckpointWritten | Finished | Stopped | Failed, Field(discriminator="event")
]
"""One line of a training child's output."""
