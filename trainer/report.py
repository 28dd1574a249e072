r"""What a training run tells: the events on its way and the report at its end. Free of torch.

Only what the guarantee covers, or what doesn't depend on the training data, is in here. The size of a drawn sample, the training loss,
how many gradients were clipped or not finite are functions of the data that no noise covers: no field exists for them.
"""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, Strict

from accountants.events import Event
from mechanisms import RandomOrigin
from mechanisms.base import Count, Extended, NonNegative, OpenProbability, Positive, Value

Step = Annotated[int, Strict(), Field(ge=0, le=10**12)]
Accuracy = Annotated[float, Strict(), Field(ge=0.0, le=1.0, allow_inf_nan=False)]


@final
class RunReport(Value):
    r"""What a finished run did: the facts a certificate is made of.

    Attributes:
      steps_released: noisy sums that were released, counted by the loop; steps lost with a killed worker were never released.
      event: the event of exactly those releases.
      noise_std: std per real component of the released sum.
      random_origin: where sampling and noise came from; ``user_seed`` isn't private against someone who knows the seed.
      resumptions: how often the run continued from a checkpoint.
      test_accuracy: fraction of the held-out records classified rightly, in [0, 1]. The guarantee doesn't cover those records.
      test_records: how many were held out.
      training_records: how many were trained on.
      parameters: real parameters; a complex one counts twice.
      versions: of python, torch, numpy and zetadp.
      hardware: processor or accelerator, and threads.
      training_seconds: over all attempts, without what was lost; to a tenth of a second.
    """

    steps_released: Count
    event: Event
    noise_std: Positive
    random_origin: RandomOrigin
    resumptions: Step
    test_accuracy: Accuracy
    test_records: Count
    training_records: Count
    parameters: Count
    versions: dict[str, str]
    hardware: str
    training_seconds: NonNegative


@final
class Started(Value):
    """The first line of every attempt; ``resumed_from_step`` is 0 without a checkpoint."""

    event: Literal["started"] = "started"
    resumed_from_step: Step


@final
class Progress(Value):
    """``step`` of ``steps`` are done and cost at most ``epsilon`` at ``delta``; ``seconds`` count over all attempts."""

    event: Literal["progress"] = "progress"
    step: Step
    steps: Count
    epsilon: Extended
    delta: OpenProbability
    seconds: NonNegative


@final
class Metrics(Value):
    """Accuracy on the held-out records of a model that is already in a checkpoint, so that no lost step was ever seen."""

    event: Literal["metrics"] = "metrics"
    step: Step
    test_accuracy: Accuracy


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
    """The run can't go on; ``reason`` is one line for the user."""

    event: Literal["failed"] = "failed"
    reason: str


TrainingEvent = Annotated[Started | Progress | Metrics | CheckpointWritten | Finished | Stopped | Failed, Field(discriminator="event")]
"""One line of a training child's output."""
