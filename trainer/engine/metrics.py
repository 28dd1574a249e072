r"""How well a model does on held-out records: the figures that the papers print.

They are computed from test records, so publishing them releases information on those: only for records that are declared public.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from zetadp.mechanisms.errors import InvalidParameter

Floats = NDArray[np.floating[Any]]

SSIM_WINDOW = 7
"""Pixels along each side of a window, all equally weighted: Wang et al. 2004 in the form that fastMRI uses."""
SSIM_K1 = 0.01
SSIM_K2 = 0.03
HIGHEST_PSNR = 200.0
"""The PSNR of an exact reconstruction is infinite, which neither a mean nor JSON can hold."""


def classification_metrics(scores: Floats, labels: NDArray[np.integer[Any]]) -> dict[str, float]:
    r"""Accuracy, and means over classes of ROC-AUC (one against the rest, by the scores' softmax), F1 and recall.

    The means are over the classes that the test labels contain: recall and ROC curve aren't defined for the others. A class that is
    present but never predicted has F1 0. With a single class present the ROC-AUC is left out. Ties go to the lowest class.

    Args:
      scores: real, finite, (records, classes); larger means likelier.
      labels: int, (records,), in 0 .. classes - 1.
    Returns:
      ``accuracy``, ``roc_auc``, ``f1`` and ``recall``, each in [0, 1].
    Raises:
      InvalidParameter: shapes or labels don't fit, no records, or a score isn't finite.
    """
    if scores.ndim != 2 or labels.shape != scores.shape[:1] or scores.size == 0:
        raise InvalidParameter("scores and labels", "(records, classes) and (records,), not empty", (scores.shape, labels.shape))
    if labels.min() < 0 or labels.max() >= scores.shape[1]:
        raise InvalidParameter("labels", f"in 0 .. {scores.shape[1] - 1}", (int(labels.min()), int(labels.max())))
    if not np.isfinite(scores).all():
        raise InvalidParameter("scores", "finite", "NaN or infinity")
    predicted = scores.argmax(axis=1)
    # As the loss interprets the scores: records are compared by a class's probability, not by scores that have no common zero.
    probabilities = scipy.special.softmax(scores.astype(np.float64), axis=1)
    areas, f1s, recalls = [], [], []
    for present in np.unique(labels):
        is_one, said_one = labels == present, predicted == present
        hits = int((is_one & said_one).sum())
        recalls.append(hits / int(is_one.sum()))
        # 2 hits / (2 hits + false ones + missed ones): the denominator is at least the class's own records.
        f1s.append(2 * hits / int(is_one.sum() + said_one.sum()))
        if not is_one.all():
            areas.append(roc_auc(probabilities[:, present], is_one))
    found = {"accuracy": float((predicted == labels).mean()), "f1": float(np.mean(f1s)), "recall": float(np.mean(recalls))}
    return found | ({"roc_auc": float(np.mean(areas))} if areas else {})


def roc_auc(scores: Floats, is_positive: NDArray[np.bool_]) -> float:
    r"""Area under the ROC curve: the share of pairs of a positive and a negative record in which the positive one scores higher.

    A tie counts half. The pairs are counted in whole numbers, by ranks, so the only rounding is that of the last division.

    Args:
      scores: without NaN, (records,).
      is_positive: (records,), some true and some false.
    Source: Hanley and McNeil 1982 (the area is the Wilcoxon statistic).

    >>> roc_auc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, True, False, True]))
    0.875
    """
    _, position, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # Twice the middle rank (from 1) of the records that share a score: a whole number even if an even number of records share it.
    twice_rank = (2 * np.cumsum(counts) - counts + 1)[position]
    positives = int(is_positive.sum())
    pairs = positives * (len(is_positive) - positives)
    return (int(twice_rank[is_positive].sum()) - positives * (positives + 1)) / (2 * pairs)


def reconstruction_metrics(images: NDArray[Any], references: NDArray[Any]) -> dict[str, float]:
    r"""NMSE, PSNR and SSIM of magnitude images, each the mean over records.

    With reference r and image x, both magnitudes of one record: NMSE = ||r - x||^2 / ||r||^2, PSNR = 10 log10(max(r)^2 / mean (r - x)^2)
    in dB, and SSIM over 7 x 7 windows of equal weights with k1 = .01, k2 = .03, sample covariances and data range max(r). fastMRI takes
    the maximum over a volume of slices; a record here is one image, so it is the image's own.

    Args:
      images: the model's outputs, (records, channels, height, width), complex or real; height and width >= 7.
      references: the truth, of the same shape; no image is zero everywhere.
    Returns:
      ``nmse`` (>= 0, lower is better), ``psnr`` in dB (at most ``HIGHEST_PSNR``) and ``ssim`` (at most 1).
    Raises:
      InvalidParameter: shapes differ, are too small or empty, a number isn't finite, or a reference is zero.
    Source: Zbontar et al. 2018, arXiv:1811.08839, section 5.2, and fastmri/evaluate.py; Wang et al. 2004.
    """
    return mean_metrics(reconstruction_rows(images, references))


def reconstruction_rows(images: NDArray[Any], references: NDArray[Any]) -> list[dict[str, float]]:
    """The same of each record, before the mean over them; raises as ``reconstruction_metrics``."""
    if images.shape != references.shape or images.ndim != 4 or images.size == 0 or min(images.shape[2:]) < SSIM_WINDOW:
        expected = f"both (records, channels, height, width), height and width >= {SSIM_WINDOW}"
        raise InvalidParameter("images and references", expected, (images.shape, references.shape))
    if not (np.isfinite(images).all() and np.isfinite(references).all()):
        raise InvalidParameter("images and references", "finite", "NaN or infinity")
    return [_image_metrics(np.abs(image), np.abs(truth)) for image, truth in zip(images, references, strict=True)]


def mean_metrics(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean over records of each metric; at least one record."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def row_metrics(outputs: Floats, rows: Floats) -> dict[str, float]:
    r"""1 - mean squared error of reconstructed rows, next to baselines that need no network.

    The column means are the held-out rows' own: the best of all outputs that don't depend on the row. A network that stays below has
    learned nothing useful.

    Args:
      outputs: the model's outputs, real, (records, features).
      rows: the truth, of the same shape.
    Returns:
      ``score``, and for comparison ``score_all_zero`` and ``score_column_means`` of such outputs; each at most 1.
    Raises:
      InvalidParameter: shapes differ or are empty, or a number isn't finite.
    """
    if outputs.shape != rows.shape or outputs.ndim != 2 or outputs.size == 0:
        raise InvalidParameter("outputs and rows", "both (records, features), not empty", (outputs.shape, rows.shape))
    if not (np.isfinite(outputs).all() and np.isfinite(rows).all()):
        raise InvalidParameter("outputs and rows", "finite", "NaN or infinity")
    truth = rows.astype(np.float64)
    candidates = {"score": outputs.astype(np.float64), "score_all_zero": np.zeros_like(truth), "score_column_means": truth.mean(axis=0)}
    return {name: 1.0 - float(np.square(given - truth).mean()) for name, given in candidates.items()}


def _image_metrics(image: Floats, reference: Floats) -> dict[str, float]:
    x, truth = image.astype(np.float64), reference.astype(np.float64)
    peak, error = float(truth.max()), float(np.square(truth - x).sum())
    if peak == 0.0:
        raise InvalidParameter("references", "images that aren't zero everywhere", 0.0)
    mean_error = error / truth.size
    psnr = 10.0 * float(np.log10(peak**2 / mean_error)) if mean_error > 0.0 else HIGHEST_PSNR
    similarity = float(np.mean([ssim(one, other, peak) for one, other in zip(x, truth, strict=True)]))
    return {"nmse": error / float(np.square(truth).sum()), "psnr": min(psnr, HIGHEST_PSNR), "ssim": similarity}


def ssim(x: Floats, y: Floats, data_range: float) -> float:
    r"""Structural similarity of two images (height, width) of real numbers: its mean over all windows inside the image.

    Args:
      x: an image.
      y: another of the same shape.
      data_range: largest minus smallest possible value; > 0.
    Source: Wang et al. 2004, eq. (13), with sample variances (divided by 48 of 49), as in scikit-image's ``structural_similarity``.
    """
    count = SSIM_WINDOW**2

    def mean(image: Floats) -> Floats:
        # Only windows inside the image: the filter's own border is cut off.
        edge = SSIM_WINDOW // 2
        return scipy.ndimage.uniform_filter(image, SSIM_WINDOW)[edge:-edge, edge:-edge]

    mean_x, mean_y = mean(x), mean(y)
    unbiased = count / (count - 1)
    variance_x = unbiased * (mean(x * x) - mean_x**2)
    variance_y = unbiased * (mean(y * y) - mean_y**2)
    covariance = unbiased * (mean(x * y) - mean_x * mean_y)
    c1, c2 = (SSIM_K1 * data_range) ** 2, (SSIM_K2 * data_range) ** 2
    numerator = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    return float((numerator / ((mean_x**2 + mean_y**2 + c1) * (variance_x + variance_y + c2))).mean())
