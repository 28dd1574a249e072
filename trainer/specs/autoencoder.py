r"""The settings that all trainings of a distributed autoencoder share: m encoders of rows in [0, 1]^n and one decoder. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Adjacency, Count, Positive, PrivacyUnit, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.specs.base import PositiveInt, TrainingSpec
from zetadp.trainer.specs.descent import Optimizer
from zetadp.trainer.specs.network_training import HELD_OUT, NoEvaluation, PublicHeldOut
from zetadp.trainer.specs.report import HeldOut
from zetadp.trainer.specs.units import check_split_rule, check_unit, protects_users, units_of

MOST_ENCODERS = 1024
"""A row goes through all encoders at once and keeps the part of its own encoder: more would cost memory for nothing."""
LARGEST_LAYER = 2**24
"""The most weights of all encoders together."""

LossName = Literal["cross_entropy", "taylor"]
r"""The loss of a feature x at its logit z: softplus(z) - x z, or that loss's second order Taylor polynomial, ln 2 + (1/2 - x) z + z^2 / 8.

The polynomial is the correct one: x enters linearly only, and 1/8 depends on no record. The SPOF paper prints (x/2 - 1/4) z^2 instead
(errata S1 to S3).
"""

Constant = Annotated[float, Strict(), Field(ge=-1e6, le=1e6, allow_inf_nan=False)]


@final
class AutoencoderShape(Value):
    r"""Sizes of a distributed autoencoder without biases: row x at encoder j gives z = What_j^T sigmoid(W_j^T x), output sigmoid(z).

    Attributes:
      encoders: m; each has its own block of the decoder.
      features: n.
      hidden: l.
    """

    encoders: Count
    features: Count
    hidden: Count

    @property
    def weights(self) -> int:
        """The number of weights of the encoders (m, n, l); the decoder (m, l, n) has as many."""
        return self.encoders * self.features * self.hidden

    @property
    def coordinates(self) -> int:
        """The number of weights of the whole network, as one vector."""
        return 2 * self.weights


@final
class RandomWeights(Value):
    r"""Independent normal numbers, from a public stream.

    Attributes:
      spread: standard deviation times sqrt(n) in the encoders, times sqrt(l) in the decoder.
    """

    kind: Literal["random"] = "random"
    spread: Positive = 1.0


class AutoencoderSpec(TrainingSpec, ABC):
    r"""A distributed autoencoder and a table of rows in [0, 1]^n.

    A public hash of its user's name decides which encoder a row goes to; if users aren't known, it is a hash of the row itself, or of its
    place where neighbours replace a row: one unit more or less leaves the others where they are. Held-out rows are dealt in turn.

    Attributes:
      encoders: m; at most the number of users, or of rows if users aren't known.
      hidden: l; at most n.
      records_per_user: required for a guarantee for users, and only there: how many of a user's first rows, in the data set's order, are
        used.
      evaluation: how the held-out rows are used.
      (others): as in ``TrainingSpec``.
    """

    UNIT_FIELD: ClassVar[str] = "unit"
    """The path of the unit in a request."""

    encoders: Annotated[int, Strict(), Field(ge=1, le=MOST_ENCODERS)]
    hidden: PositiveInt
    records_per_user: PositiveInt | None = None
    evaluation: Annotated[NoEvaluation | PublicHeldOut, Field(discriminator="kind")] = NoEvaluation()

    @property
    @abstractmethod
    def unit(self) -> PrivacyUnit:
        """What a guarantee protects, if there is one: a row, or the user whose rows they are."""

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency | None:
        """Which data sets are neighbours for the guarantee; None if there is no guarantee."""

    @property
    def held_out(self) -> HeldOut:
        return HELD_OUT[self.evaluation.kind]

    @property
    def records_per_unit(self) -> int | None:
        return self.records_per_user

    @property
    def runs_alone(self) -> str:
        return "an autoencoder, which is too small to share among processes"

    @property
    def runs_in_float32(self) -> str:
        return "an autoencoder"

    def check_request(self) -> None:
        super().check_request()
        check_unit(self.unit, self.records_per_user, self.data, self.UNIT_FIELD)
        if self.adjacency is not None:
            check_split_rule(self.data.split_rule(), self.adjacency)

    def shape(self, facts: DataSetFacts) -> AutoencoderShape:
        r"""The network's sizes for this data set.

        Raises:
          InvalidParameter: the data aren't rows of real numbers to be reconstructed, or don't fit the encoders or hidden units.
        """
        if facts.task != "reconstruction" or facts.is_complex or len(facts.shape) != 1:
            raise InvalidParameter("data", "rows of real numbers to be reconstructed (fitbit or table, for example)", self.data.kind)
        owners, whose = (facts.training_records, "training rows") if facts.users is None else (facts.users, "users")
        if self.encoders > owners:
            raise InvalidParameter("encoders", f"<= the {owners} {whose} (an encoder without any would learn nothing)", self.encoders)
        if self.hidden > facts.shape[0]:
            raise InvalidParameter("hidden", f"<= the {facts.shape[0]} features", self.hidden)
        shape = AutoencoderShape(encoders=self.encoders, features=facts.shape[0], hidden=self.hidden)
        if shape.weights > LARGEST_LAYER:
            raise InvalidParameter("encoders * features * hidden", f"at most {LARGEST_LAYER}", shape.weights)
        return shape

    def protects_users(self, facts: DataSetFacts) -> bool:
        """Whether the unit is the user, not the row. Raises InvalidParameter if it is neither or ``records_per_user`` doesn't fit it."""
        return protects_users(self.unit, self.records_per_user, facts, self.UNIT_FIELD)

    def units(self, facts: DataSetFacts) -> int:
        """The number of units of privacy in the training data. Raises as ``protects_users`` does."""
        return units_of(self.unit, self.records_per_user, facts, self.UNIT_FIELD)


class AutoencoderDescent(AutoencoderSpec, ABC):
    r"""An autoencoder trained by gradient descent.

    Attributes:
      initial: weights before the first step: public, a function of no data.
      stabilisation: the constant c added to every initial weight of the decoder, public and fixed (SPOF paper, section V).
      optimizer: how each gradient updates the weights.
      (others): as in ``AutoencoderSpec``.
    """

    initial: RandomWeights = RandomWeights()
    stabilisation: Constant = 0.0
    optimizer: Optimizer


class AutoencoderTraining(AutoencoderDescent, ABC):
    r"""An autoencoder trained on a loss of its outputs.

    Attributes:
      loss: the loss to minimise.
      (others): as in ``AutoencoderDescent``.
    """

    loss: LossName = "cross_entropy"
