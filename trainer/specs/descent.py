r"""Optimizers and schedules, of learning rates and clipping bounds, as values. Free of torch."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Positive, Value
from zetadp.mechanisms.errors import InvalidParameter

Decay = Annotated[float, Strict(), Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
Share = Annotated[float, Strict(), Field(ge=0.0, le=1.0, allow_inf_nan=False)]
StepNumber = Annotated[int, Strict(), Field(ge=1, le=10**9)]


@final
class Constant(Value):
    """The same value in every step."""

    kind: Literal["constant"] = "constant"

    def factor(self, step: int, steps: int) -> float:
        """On the value, in ``step`` (from 1) of ``steps``."""
        del step, steps
        return 1.0


@final
class Cosine(Value):
    """Falls from the full value in the first step along half a cosine to ``final_share`` of it, reached just after the last."""

    kind: Literal["cosine"] = "cosine"
    final_share: Share = 0.0

    def factor(self, step: int, steps: int) -> float:
        """On the value, in ``step`` (from 1) of ``steps``."""
        return self.final_share + (1.0 - self.final_share) * 0.5 * (1.0 + math.cos(math.pi * (step - 1) / steps))


@final
class StepDecay(Value):
    """The value is multiplied by ``gamma`` after each of the steps ``after``, in ascending order."""

    kind: Literal["steps"] = "steps"
    after: Annotated[tuple[StepNumber, ...], Field(min_length=1, max_length=1000)]
    gamma: Annotated[float, Strict(), Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 0.1

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(second <= first for first, second in pairwise(self.after)):
            raise InvalidParameter("schedule.after", "ascending step numbers", self.after)
        return self

    def factor(self, step: int, steps: int) -> float:
        """On the value, in ``step`` (from 1) of ``steps``."""
        del steps
        return self.gamma ** sum(1 for last in self.after if step > last)


FallingSchedule = Annotated[Cosine | StepDecay, Field(discriminator="kind")]
"""Of what changes over the steps."""
Schedule = Annotated[Constant | Cosine | StepDecay, Field(discriminator="kind")]


@final
class Sgd(Value):
    """Gradient descent with momentum."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: Positive
    momentum: Decay = 0.0
    schedule: Schedule = Constant()


@final
class Adam(Value):
    """Adam; the second moment is kept for each complex coordinate's two real parts separately."""

    kind: Literal["adam"] = "adam"
    learning_rate: Positive
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    stabiliser: Positive = 1e-8
    schedule: Schedule = Constant()


@final
class NAdam(Value):
    r"""Adam with Nesterov's momentum (Dozat 2016): its momentum in step t is beta1 (1 - 0.96^(t momentum_decay) / 2)."""

    kind: Literal["nadam"] = "nadam"
    learning_rate: Positive
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    momentum_decay: Annotated[float, Strict(), Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 4e-3
    stabiliser: Positive = 1e-8
    schedule: Schedule = Constant()


@final
class RmsProp(Value):
    """The gradient over the root of its running mean square (``decay``), with momentum."""

    kind: Literal["rmsprop"] = "rmsprop"
    learning_rate: Positive
    decay: Decay = 0.99
    momentum: Decay = 0.0
    stabiliser: Positive = 1e-8
    schedule: Schedule = Constant()


@final
class FedAdam(Value):
    r"""The server's Adam of adaptive federated optimisation (Reddi et al. 2021, Algorithm 2): no bias correction, v_0 = tau^2.

    Attributes:
      tau: degree of adaptivity, added to the root of the second moment.
    """

    kind: Literal["fed_adam"] = "fed_adam"
    learning_rate: Positive
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Positive = 1e-3
    schedule: Schedule = Constant()


@final
class CorrectedAdam(Value):
    r"""Adam without the part of the second moment that is the noise's own (Tang, Shpilevskiy and Lécuyer 2023, DP-AdamBC, Algorithm 1).

    The mean square of a released gradient is that of the gradient plus the noise's variance, which is public. Where noise is most of it,
    Adam divides every coordinate by about the same number; without it the steps depend on the gradient again.

    Attributes:
      floor: the least second moment after the correction, gamma' in the paper: coordinates of nearly nothing but noise move by the first
        moment over its root.
    """

    kind: Literal["corrected_adam"] = "corrected_adam"
    learning_rate: Positive
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    floor: Positive
    schedule: Schedule = Constant()


@final
class ExponentialAveraging(Value):
    r"""The model is a running mean of the parameters after all steps, and held-out records are measured by it; steps don't see it.

    After step t the mean moves to the parameters by 1 - min(decay, (1 + t) / (10 + t)): De, Berrada, Hayes, Smith and Balle 2022,
    arXiv:2204.13650, with a warm-up. It is a function of what was released, and costs nothing.
    """

    kind: Literal["exponential"] = "exponential"
    decay: Annotated[float, Strict(), Field(gt=0.0, lt=1.0, allow_inf_nan=False)] = 0.9999

    def kept(self, step: int) -> float:
        """The share of the mean that is left after ``step``, from 1.

        >>> ExponentialAveraging(decay=0.99).kept(1), ExponentialAveraging(decay=0.99).kept(10_000)
        (0.18181818181818182, 0.99)
        """
        return min(self.decay, (1.0 + step) / (10.0 + step))


Optimizer = Annotated[Sgd | Adam | NAdam | RmsProp, Field(discriminator="kind")]
GradientOptimizer = Annotated[Sgd | Adam | NAdam | RmsProp | CorrectedAdam, Field(discriminator="kind")]
"""Of gradients with noise of one known standard deviation on every coordinate."""
ServerOptimizer = Annotated[Sgd | Adam | NAdam | RmsProp | CorrectedAdam | FedAdam, Field(discriminator="kind")]
AnyOptimizer = Sgd | Adam | NAdam | RmsProp | CorrectedAdam | FedAdam
