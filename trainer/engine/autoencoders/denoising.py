r"""Denoises rows that were released with noise of known variance: post-processing of released rows and public constants."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zetadp.mechanisms.local import LocalRelease
from zetadp.trainer.specs.denoising import AnyDenoising, AsReleased, Clamped


def denoised(rows: Tensor, mechanism: LocalRelease, denoising: AnyDenoising) -> Tensor:
    r"""The rows that training uses as inputs and targets, (rows, n).

    Args:
      rows: as ``mechanism`` released them, (rows, n), and nothing else of the data.
    """
    match denoising:
        case AsReleased():
            return rows
        case Clamped():
            return rows.clamp(mechanism.lower, mechanism.upper)
        case _:
            return _shrunk(rows, mechanism, denoising.spread)


def _shrunk(rows: Tensor, mechanism: LocalRelease, spread: float) -> Tensor:
    means = column_means(rows, mechanism)
    factor = min(1.0, spread * mechanism.width / math.sqrt(mechanism.worst_variance))
    return torch.addcmul(means, rows - means, torch.full((), factor, dtype=rows.dtype, device=rows.device)).clamp(
        mechanism.lower, mechanism.upper
    )


def column_means(rows: Tensor, mechanism: LocalRelease) -> Tensor:
    r"""Estimates of the records' column means from released rows, (n,), within the box.

    The positive-part James-Stein estimator: the means y of the released columns have noise of variance v = (a coordinate's) / rows each, so
    they are shrunk towards one number g, to g + tau (y - g) / (tau + v), with tau = max(0, variance of y over columns - v). That number is
    the mean of y, itself shrunk to the box's centre as under a uniform prior (variance width^2 / 12): noise alone must not choose it.
    """
    found, columns = rows.mean(dim=0), rows.shape[1]
    noise = mechanism.worst_variance / len(rows)
    middle, prior = 0.5 * mechanism.lower + 0.5 * mechanism.upper, mechanism.width**2 / 12.0
    centre = middle + prior / (prior + noise / columns) * (found.mean() - middle)
    spread = max(0.0, found.var(correction=1).item() - noise) if columns > 1 else 0.0
    return (centre + spread / (spread + noise) * (found - centre)).clamp(mechanism.lower, mechanism.upper)
