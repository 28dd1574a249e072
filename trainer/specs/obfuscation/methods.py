r"""How an obfuscation job hides features: the paper's rotation, the sound form with noise, and the paper's baselines. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Adjacency, Count, NonNegative, Positive, Value
from zetadp.trainer.specs.base import CalibratedPrivacy

AnonymitySet = Annotated[int, Strict(), Field(ge=2, le=1024)]
r"""k of the paper: the critic sees features turned by k - 1 wrong angles. At least 2: with k = 1 there is no wrong angle and nothing to
learn. It is not k-anonymity (errata O1)."""


@final
class WeightClipping(Value):
    """Every weight of the critic is kept in [-bound, bound] (Arjovsky, Chintala and Bottou 2017)."""

    kind: Literal["weight_clipping"] = "weight_clipping"
    bound: Positive = 0.01


@final
class GradientPenalty(Value):
    """weight * (|gradient of the critic| - 1)^2 between true and turned features (Gulrajani et al. 2017)."""

    kind: Literal["gradient_penalty"] = "gradient_penalty"
    weight: Positive = 10.0


@final
class Critic(Value):
    r"""The discriminator D of true features a against features turned by a wrong angle: a convolution and a linear layer.

    Attributes:
      learning_rate: of the critic's Adam (beta1 0.5, beta2 0.9).
      steps: critic steps in each step of the network.
      channels: channels of the critic's convolution.
      constraint: the constraint that makes it a WGAN's critic.
    """

    learning_rate: Positive = 1e-3
    steps: Annotated[int, Strict(), Field(ge=1, le=100)] = 3
    channels: Annotated[int, Strict(), Field(ge=1, le=4096)] = 32
    constraint: Annotated[WeightClipping | GradientPenalty, Field(discriminator="kind")] = GradientPenalty()


class Turned(Value):
    r"""x = e^(i theta) (a + i b) with a fresh secret theta in [0, 2 pi) for every record (paper, eq. 2 without its misprint, errata O2).

    Attributes:
      k: see ``AnonymitySet``.
      adversarial_weight: lambda on the critic's loss (eq. 9 has 1), divided by the root of a feature's number of coordinates: this makes
        distances root mean squares instead of l2, with which larger features would drown the task. 0 trains without a critic.
      critic: the discriminator.
    """

    k: AnonymitySet = 8
    adversarial_weight: NonNegative = 1.0
    critic: Critic = Critic()


@final
class Rotation(Turned):
    r"""The paper's method. No guarantee.

    Attributes:
      counterpart: b: the feature of another record of the same people (the paper's choice, which exposes two inputs for one, errata O11),
        of a public training record, or made up from the public features' means and deviations.
      (others): as in ``Turned``.
    """

    kind: Literal["rotation"] = "rotation"
    counterpart: Literal["other_record", "public", "synthetic"] = "other_record"


@final
class FeaturePrivacy(CalibratedPrivacy):
    r"""The guarantee requested for one record, whose feature is sent ``queries`` times.

    Attributes:
      adjacency: replace_one: one record's content against any other; the fact that a record was sent is visible.
      (others): as in ``CalibratedPrivacy``; the noise multiplier is std / (2 C), so that one query has mu = 1 / noise_multiplier.
    """

    adjacency: Literal[Adjacency.REPLACE_ONE]


@final
class NoisyRotation(Turned):
    r"""The sound form: the feature is clipped to l2 norm C and gets Gaussian noise before it is turned. Turning it earns nothing.

    Attributes:
      counterpart: a public training record's feature, or a made-up one; another private record's would need its own budget.
      noisy_counterpart: the counterpart gets noise of the same deviation. It costs nothing and earns nothing in the guarantee; without it
        the noise itself would show the angle, as the direction in which the sent feature varies most.
      clipping_norm: C, public, fixed before anybody looks at the data.
      queries: how often each record's feature is sent; every one is counted.
      privacy: the guarantee for one record, over all its queries.
      (others): as in ``Turned``.
    """

    kind: Literal["noisy_rotation"] = "noisy_rotation"
    counterpart: Literal["public", "synthetic"] = "public"
    noisy_counterpart: Annotated[bool, Strict()] = True
    clipping_norm: Positive
    queries: Count
    privacy: FeaturePrivacy


@final
class Original(Value):
    """Baseline 1: the original network, without generator; the real feature is sent."""

    kind: Literal["original"] = "original"


@final
class AdditionalLayers(Value):
    """Baseline 3: with the generator's convolution, without critic; the real feature is sent."""

    kind: Literal["additional_layers"] = "additional_layers"


@final
class Noisy(Value):
    r"""Baseline 2: a + gamma eps is sent, eps of the same average magnitude as a.

    That scale depends on the record and nothing is clipped: no guarantee (as with every data-dependent noise scale).

    Attributes:
      gamma: 0.2, 0.5 and 1 in the paper's tables; 0.5, 1 and 2 in its text (errata O17).
    """

    kind: Literal["noisy"] = "noisy"
    gamma: Positive


Method = Annotated[Rotation | NoisyRotation | Original | AdditionalLayers | Noisy, Field(discriminator="kind")]
