r"""The spec of SPOF's Algorithm 1 as printed, which isn't private at any epsilon. ``spof`` is the sound form."""

from __future__ import annotations

from typing import ClassVar, Literal, Self, final

from zetadp.trainer.data import DigitsImages
from zetadp.trainer.specs.descent import Sgd
from zetadp.trainer.specs.network_training import PublicHeldOut
from zetadp.trainer.specs.printed import PrintedTraining


@final
class SpofPrinted(PrintedTraining):
    r"""Perturb each row's loss coefficients anew in every step, and propagate the perturbed loss's gradient through the raw row.

    Attributes:
      stabilisation: c of section V, every entry of the vector c_j. It is added to the decoder's weights in every step, which doesn't change
        the gradient: descent from weights that include it from the start is the same descent. The noise's scale includes
        c_j = c . h_j(x_j), as printed.
      (others): as in ``PrintedTraining``.
    """

    SUMMARY: ClassVar[str] = (
        "SPOF's Algorithm 1 as printed: noise on each row's loss coefficients, gradients through the raw row. Not private."
    )
    SOURCES: ClassVar[tuple[str, ...]] = (
        "Habib, Chou and Kim: Stabilization of Perturbed Loss Function: Differential Privacy without Gradient Noise, Algorithm 1, "
        "sections IV to VI",
    )
    ERRATA: ClassVar[tuple[str, ...]] = (
        *("S1", "S2", "S3", "S5", "S7", "S8", "S9", "S10", "S11", "S13"),
        *("S14", "S15", "S16", "S18", "S19", "S20", "S21", "S24", "S33"),
    )
    TRUST: ClassVar[str] = "Anyone who sees the model, a checkpoint, an update or a metric is trusted with the data."
    REASON: ClassVar[str] = (
        "it ran Algorithm 1 of the SPOF paper as printed, which isn't private at any epsilon. Each update is an outer product with the raw "
        "row: its direction is the row, whatever noise its coefficients have, so one update reveals the row (errata S14). The codes that "
        "the decoder receives are noiseless functions of the rows (S15). The noise's scale contains c_j, a function of the row, and with "
        "environmental noise b_j, another one (S13, S21). Its two coefficients together cost sqrt(2) times the stated epsilon (S7), and "
        "twice that epsilon by the text's own reading (S8). Every step draws fresh noise, so the costs of steps and of a user's rows add "
        "up (S16)"
    )
    PLANS: ClassVar[tuple[str, ...]] = ("unprotected",)

    algorithm: Literal["spof_printed"] = "spof_printed"

    @classmethod
    def example(cls) -> Self:
        """Digits' pixels, with little noise: as printed, more makes it diverge."""
        return cls(
            data=DigitsImages(split_seed=0, test_fraction=0.2),
            encoders=2,
            hidden=8,
            stabilisation=0.1,
            optimizer=Sgd(learning_rate=1e-5),
            epsilon=20.0,
            steps=500,
            data_unit="record",
            recovery_demonstration=True,
            evaluation=PublicHeldOut(),
        )
