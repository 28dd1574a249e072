r"""The spec of zeta-DP-SGD in its sound form (errata section 1: std sigma B on each real component, expected batch, Poisson)."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from zetadp.mechanisms.base import Adjacency
from zetadp.trainer.data import DigitsPhasePairs
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import Adam, AnyOptimizer, GradientOptimizer, Sgd
from zetadp.trainer.specs.models.model_spec import ComplexMlp
from zetadp.trainer.specs.network_training import BoundedTraining, PublicHeldOut

__all__ = ["Adam", "ComplexMlp", "Sgd", "ZetaDpSgd"]


@final
class ZetaDpSgd(BoundedTraining):
    r"""Train a complex-valued or real network with clipping per unit of privacy and Gaussian noise on each real component.

    Attributes:
      optimizer: how the released gradient updates the weights; post-processing.
      (others): as in ``BoundedTraining``; ``expected_batch_size`` is q N, at most the training records or users.
    Raises:
      InvalidParameter: from ``plan``, where the spec doesn't fit the data set.
    """

    SUMMARY: ClassVar[str] = "Zeta-DP-SGD: differentially private gradient descent for complex-valued networks."
    SOURCES: ClassVar[tuple[str, ...]] = (
        "zeta-DP: complex-valued differential privacy and its applications to neural network training (anonymous, under review), "
        "Algorithm 1",
        "Riess, Ziller, Kolek, Rueckert, Schnabel and Kaissis 2024, Algorithm 1",
        "Abadi et al. 2016, arXiv:1607.00133",
        "Andrew, Thakkar, McMahan and Ramaswamy 2021, arXiv:1905.03871 (adaptive clipping)",
        "Tang, Shpilevskiy and Lécuyer 2023, arXiv:2312.14334 (corrected_adam)",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("Z2", "Z10", "Z11", "Z12", "Z13", "Z15", "Z22")
    TRUST: ClassVar[str] = "The party that runs the training is trusted with the data; everyone else sees only what is released."
    PLANS: ClassVar[tuple[str, ...]] = ("noisy_sums",)

    algorithm: Literal["zeta_dp_sgd"] = "zeta_dp_sgd"
    optimizer: GradientOptimizer

    @classmethod
    def example(cls) -> Self:
        """Digits as phase pairs. Its hyper-parameters were tuned on this same public data set, which no guarantee counts."""
        return cls(
            data=DigitsPhasePairs(split_seed=0, test_fraction=0.2),
            model=ComplexMlp(hidden=(64,), activation="cardioid", head="real_part"),
            optimizer=Adam(learning_rate=0.005),
            privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="record", delta=1e-5, epsilon=4.0),
            clipping_bound=1.0,
            expected_batch_size=200,
            steps=400,
            evaluation=PublicHeldOut(),
        )

    @property
    def descent(self) -> AnyOptimizer:
        return self.optimizer
