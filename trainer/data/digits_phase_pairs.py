r"""Handwritten digits made complex as phase pairs, without one image in two records."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from zetadp.trainer.data.base import DataSet, SplitRecipe
from zetadp.trainer.data.pairing import CLASSES, disjoint_pairs
from zetadp.trainer.data.splits import record_keys

BRIGHTEST = 16.0
"""The file format's largest grey value: a public constant, never the maximum of the data, which would be an unaccounted release."""


@final
class DigitsPhasePairs(SplitRecipe):
    r"""scikit-learn's bundled 8x8 digits as phase pairs: real part an image of digit L, imaginary part one of digit 9 - L, label L.

    The zeta-DP paper (A.4, A.6.5) draws the imaginary image with replacement, which puts one image into several records and breaks the
    guarantee per image (errata Z19). Here pairs are disjoint: each source image lies in exactly one record or in none. From classes k
    and 9 - k come as many pairs as the smaller has images, half of them with k real. The privacy unit ``record`` is one pair, both images.

    Attributes: as in ``SplitRecipe``; the split is one of pairs, so that no image is on both sides.

    >>> DigitsPhasePairs(split_seed=0, test_fraction=0.2).read().training_features.shape
    (710, 64)
    """

    UNIT: ClassVar[str] = "record"
    DESCRIPTION: ClassVar[str] = (
        "scikit-learn's 8x8 digits, grey values divided by 16, in pairs: real part an image of digit L, imaginary part one of digit "
        "9 - L. No image is in two. One record is one pair"
    )

    kind: Literal["digits_phase_pairs"] = "digits_phase_pairs"

    def arrays(self) -> DataSet:
        images, digits = _source()
        real, imaginary, labels = disjoint_pairs(digits)
        features = (images[real] + 1j * images[imaginary]).astype(np.complex64)
        training, test = self.sides(record_keys(features, labels))
        return DataSet(features[training], labels[training], features[test], labels[test], CLASSES)


def _source() -> tuple[NDArray[Any], NDArray[Any]]:
    """Images (1797, 64) in [0, 1] and their digits (1797,)."""
    from sklearn.datasets import load_digits  # seconds to import, and not needed by whoever only reads a spec

    images, digits = load_digits(return_X_y=True)
    return np.asarray(images) / BRIGHTEST, np.asarray(digits, dtype=np.int64)
