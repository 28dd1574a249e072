r"""Distributed autoencoders: their arithmetic in closed form, and the run that all their trainings share. Needs torch."""

from __future__ import annotations

from zetadp.trainer.engine.autoencoders.clipping import ClippedRows, layout_of
from zetadp.trainer.engine.autoencoders.denoising import column_means, denoised
from zetadp.trainer.engine.autoencoders.descent import RowDescent
from zetadp.trainer.engine.autoencoders.network import (
    DECODER,
    ENCODERS,
    SLOPES,
    Autoencoder,
    Pass,
    Slopes,
    cross_entropy_slopes,
    initial_parameters,
    taylor_slopes,
)
from zetadp.trainer.engine.autoencoders.preparation import AutoencoderAlgorithm, Descent, Prepared
from zetadp.trainer.engine.autoencoders.released import RELEASED, released_once
from zetadp.trainer.engine.autoencoders.rows import TrainingRows
from zetadp.trainer.engine.autoencoders.scores import HeldOutRows

__all__ = [
    "DECODER",
    "ENCODERS",
    "RELEASED",
    "SLOPES",
    "Autoencoder",
    "AutoencoderAlgorithm",
    "ClippedRows",
    "Descent",
    "HeldOutRows",
    "Pass",
    "Prepared",
    "RowDescent",
    "Slopes",
    "TrainingRows",
    "column_means",
    "cross_entropy_slopes",
    "denoised",
    "initial_parameters",
    "layout_of",
    "released_once",
    "taylor_slopes",
]
