r"""The spec of complex-feature obfuscation: train encoder, processing module and decoder, attack what is sent, and report the findings."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import Field, model_validator

from zetadp.accountants.calibration import calibrate_scale
from zetadp.mechanisms import Gaussian, Sensitivity
from zetadp.mechanisms.base import Positive
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts
from zetadp.trainer.data.digits import Digits
from zetadp.trainer.specs.base import PositiveInt, TrainingSpec
from zetadp.trainer.specs.descent import Adam, Cosine, Optimizer
from zetadp.trainer.specs.findings.attacks import AttackEffort
from zetadp.trainer.specs.network_training import HELD_OUT, NoEvaluation, PublicHeldOut
from zetadp.trainer.specs.obfuscation.architectures import Architecture, Classes, LeNet
from zetadp.trainer.specs.obfuscation.methods import Method, NoisyRotation, Rotation
from zetadp.trainer.specs.obfuscation.reasons import REASONS
from zetadp.trainer.specs.obfuscation.shapes import divided
from zetadp.trainer.specs.plan_base import Plan
from zetadp.trainer.specs.plans import AnyPlan, FeatureReleasePlan, UnprotectedPlan
from zetadp.trainer.specs.report import HeldOut
from zetadp.trainer.specs.units import check_split

REPORTED_DELTA = 1e-5
"""Used where nothing is guaranteed: epsilon is infinite at every delta."""

Groups = Annotated[tuple[Annotated[tuple[Classes, ...], Field(min_length=1)], ...], Field(min_length=2, max_length=1024)]


@final
class Obfuscation(TrainingSpec):
    r"""A network in three parts whose features are sent to a cloud: its accuracy, and what attacks learn from the features sent.

    The training records train network and attackers and are assumed to be public. Under every method but ``noisy_rotation`` the held-out
    records are the victims, declared public by the submitter. Under ``noisy_rotation`` the held-out records are protected: each is encoded
    ``queries`` times and nothing else about them leaves the run; the victims are ``evaluation_records`` of the training records,
    which aren't trained on.

    Attributes:
      network: encoder, processing module, decoder.
      method: how a feature is hidden.
      task_groups: the task's classes as groups of the data set's labels, each label in one group; the label itself is then the property
        that the task doesn't ask for (the paper's 20 superclasses of 100 classes). None: the label is the task, and the property.
      optimizer: the network's optimizer; the critic has its own.
      batch_size, steps: of the network's training.
      evaluation: public_held_out where the held-out records are the victims; none under ``noisy_rotation``.
      evaluation_records: how many training records are set apart, for ``noisy_rotation`` with attacks; else absent.
      attacks: how hard the attackers try; None for no attacks.
      curve: ascending noise multipliers at which network and attacks are also measured; for ``noisy_rotation`` with attacks.
    """

    SUMMARY: ClassVar[str] = "Complex-feature obfuscation: features rotated by a secret angle, and attacks on what is sent."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Attributes obfuscation with complex-valued features (anonymous, under double-blind review), sections 4 and 5",
        "Arjovsky, Chintala and Bottou 2017, arXiv:1701.07875 (the critic)",
        "Gulrajani et al. 2017, arXiv:1704.00028 (its gradient penalty)",
    )
    ERRATA: ClassVar[tuple[str, ...]] = tuple(f"O{number}" for number in range(1, 20))
    TRUST: ClassVar[str] = (
        "The training records are public to anyone who sees the model, a checkpoint or a metric; nothing protects them. The party that "
        "runs the encoder is trusted with the records that are encoded."
    )
    PLANS: ClassVar[tuple[str, ...]] = ("feature_release", "unprotected")

    algorithm: Literal["obfuscation"] = "obfuscation"
    network: Architecture
    method: Method
    task_groups: Groups | None = None
    optimizer: Optimizer
    batch_size: PositiveInt
    steps: PositiveInt
    evaluation: Annotated[NoEvaluation | PublicHeldOut, Field(discriminator="kind")] = NoEvaluation()
    evaluation_records: PositiveInt | None = None
    attacks: AttackEffort | None = None
    curve: Annotated[tuple[Positive, ...], Field(max_length=16)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        sound, attacked = isinstance(self.method, NoisyRotation), self.attacks is not None
        if sound and self.held_out_is_public:
            raise InvalidParameter("evaluation", "none under noisy_rotation, which protects the held-out records", self.evaluation.kind)
        if not sound and attacked and not self.held_out_is_public:
            raise InvalidParameter("evaluation", "public_held_out where attacks are measured on the held-out records", self.evaluation.kind)
        if (self.evaluation_records is not None) != (sound and attacked):
            raise InvalidParameter(
                "evaluation_records", "given if and only if attacks are run under noisy_rotation", self.evaluation_records
            )
        if self.curve and not (sound and attacked):
            raise InvalidParameter("curve", "empty unless attacks are measured under noisy_rotation", self.curve)
        if any(later <= earlier for earlier, later in pairwise(self.curve)):
            raise InvalidParameter("curve", "ascending noise multipliers", self.curve)
        labels = [label for group in self.task_groups or () for label in group]
        if len(set(labels)) != len(labels):
            raise InvalidParameter("task_groups", "groups in which each label occurs once", self.task_groups)
        return self

    @classmethod
    def example(cls) -> Self:
        """Handwritten digits, the paper's method, and the attacks it should have been tested with."""
        return cls(
            data=Digits(split_seed=0, test_fraction=0.332, split_by="position"),
            network=LeNet(),
            method=Rotation(),
            optimizer=Adam(learning_rate=5e-3, schedule=Cosine()),
            batch_size=64,
            steps=300,
            evaluation=PublicHeldOut(),
            attacks=AttackEffort(steps=300, inversion_steps=300, property_steps=200),
        )

    @property
    def held_out_is_public(self) -> bool:
        """Whether the submitter declares the held-out records public."""
        return isinstance(self.evaluation, PublicHeldOut)

    @property
    def held_out(self) -> HeldOut:
        return "encoded" if isinstance(self.method, NoisyRotation) else HELD_OUT[self.evaluation.kind]

    @property
    def records_per_unit(self) -> int | None:
        return None

    @property
    def runs_attacks(self) -> bool:
        return self.attacks is not None

    @property
    def runs_alone(self) -> str:
        return "complex-feature obfuscation"

    @property
    def runs_in_float32(self) -> str:
        return "complex-feature obfuscation"

    def check_fits(self, facts: DataSetFacts) -> None:
        if facts.task != "classification" or facts.is_complex or len(facts.shape) != 3 or facts.classes is None:
            raise InvalidParameter("data", "real images (channels, height, width) with classes", self.data.kind)
        if isinstance(self.method, NoisyRotation) and self.method.privacy.unit != facts.unit:
            raise InvalidParameter("method.privacy.unit", f"{facts.unit!r} (one row of this data set)", self.method.privacy.unit)
        classes = facts.classes if self.task_groups is None else len(self.task_groups)
        _ = divided(self.network, self.method, facts.shape, classes)
        if self.batch_size < 2:
            raise InvalidParameter(
                "batch_size", ">= 2 (a record's counterpart and the norms' statistics come from its batch)", self.batch_size
            )
        kept = self.public_training_records(facts)
        if kept < max(2, self.batch_size):
            expected = f"such that at least batch_size = {self.batch_size} (and 2) training records remain for training"
            raise InvalidParameter("batch_size and evaluation_records", expected, kept)
        labels = sorted(label for group in self.task_groups or () for label in group)
        if self.task_groups is not None and labels != list(range(facts.classes)):
            raise InvalidParameter("task_groups", f"groups that contain every label in 0 .. {facts.classes - 1} once", self.task_groups)
        if isinstance(self.method, NoisyRotation):
            check_split(facts, self.method.privacy.adjacency)

    def plan_for(self, facts: DataSetFacts) -> AnyPlan:
        method = self.method
        self.check_fits(facts)
        if not isinstance(method, NoisyRotation):
            return UnprotectedPlan(
                reason=REASONS[method.kind], unit=facts.unit, units=facts.training_records, steps=self.steps, delta=REPORTED_DELTA
            )
        privacy = method.privacy
        if privacy.noise_multiplier is not None:
            return self._release(method, facts, privacy.noise_multiplier * 2.0 * method.clipping_norm)
        assert privacy.epsilon is not None  # checked at construction: exactly one of the two
        draft = self._release(method, facts, 2.0 * method.clipping_norm)
        factor = calibrate_scale(draft.event, epsilon=privacy.epsilon, delta=privacy.delta)
        return self._release(method, facts, factor * 2.0 * method.clipping_norm)

    def replanned(self, facts: DataSetFacts, plan: Plan) -> AnyPlan:
        method = self.method
        if isinstance(method, NoisyRotation) and method.privacy.noise_multiplier is None and isinstance(plan, FeatureReleasePlan):
            self.check_fits(facts)
            return self._release(method, facts, plan.noise_std)
        return self.plan_for(facts)

    def public_training_records(self, facts: DataSetFacts) -> int:
        """Training records that network and attackers are trained on."""
        return facts.training_records - (self.evaluation_records or 0)

    def _release(self, method: NoisyRotation, facts: DataSetFacts, std: float) -> FeatureReleasePlan:
        sensitivity = Sensitivity(l2=2.0 * method.clipping_norm, adjacency=method.privacy.adjacency, unit=method.privacy.unit)
        return FeatureReleasePlan(
            mechanism=Gaussian(std=std, sensitivity=sensitivity),
            clipping_norm=method.clipping_norm,
            records=facts.test_records,
            queries=method.queries,
            steps=self.steps,
            delta=method.privacy.delta,
        )
