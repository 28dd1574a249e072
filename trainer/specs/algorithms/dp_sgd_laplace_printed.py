r"""The spec of the SPOF paper's Algorithm 2 as printed, which it calls DP-SGD. ``dp_sgd_laplace`` is the sound form."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from zetadp.mechanisms.base import Positive
from zetadp.trainer.data import DigitsImages
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.printed import PrintedTraining


@final
class DpSgdLaplacePrinted(PrintedTraining):
    r"""Clip and perturb each row's loss derivative with respect to the outputs, taken at 0, and propagate it through the raw row.

    Attributes:
      clipping_bound: C, on the l2 norm of the derivative; the paper's is 4, which no row in [0, 1]^n with n <= 64 reaches.
      stabilisation: added to the decoder's initial weights, as in ``SpofPrinted``; the paper's Algorithm 2 has none.
      (others): as in ``PrintedTraining``.
    """

    SUMMARY: ClassVar[str] = (
        "The SPOF paper's Algorithm 2 as printed: noise on the loss's derivative by the outputs, which then multiplies the raw row. Not "
        "private."
    )
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Habib, Chou and Kim: Stabilization of Perturbed Loss Function: Differential Privacy without Gradient Noise, Algorithm 2, "
        "section VII",
    )
    ERRATA: ClassVar[tuple[str, ...]] = ("S9", "S15", "S16", "S18", "S27", "S28", "S29", "S30", "S31")
    TRUST: ClassVar[str] = "Anyone who sees the model, a checkpoint, an update or a metric is trusted with the data."
    REASON: ClassVar[str] = (
        "it ran Algorithm 2 of the SPOF paper as printed, which isn't private at any epsilon. It perturbs the derivative with respect to "
        "the outputs and propagates it through the raw row: each update is an outer product with the row, whose direction no noise hides "
        "(errata S31). The codes that the decoder receives are noiseless functions of the rows (S15). The noise's scale is chosen from the "
        "norm of the row's own derivative (S29), and with environmental noise it contains b_j, a function of the row that clipping leaves "
        "out (S30). Every step draws fresh noise, so the costs of steps and of a user's rows add up (S16)"
    )
    PLANS: ClassVar[tuple[str, ...]] = ("unprotected",)

    algorithm: Literal["dp_sgd_laplace_printed"] = "dp_sgd_laplace_printed"
    clipping_bound: Positive = 4.0

    @classmethod
    def example(cls) -> Self:
        """Digits' pixels."""
        return cls(
            data=DigitsImages(split_seed=0, test_fraction=0.2),
            encoders=2,
            hidden=8,
            optimizer=Sgd(learning_rate=1e-4),
            epsilon=10.0,
            steps=500,
            data_unit="record",
            recovery_demonstration=True,
            evaluation=PublicHeldOut(),
        )
