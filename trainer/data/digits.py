r"""scikit-learn's digits as real images to be told apart: a small public data set that is there without any file."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import numpy as np

from mechanisms.base import OpenProbability
from trainer.data.base import DataRecipe, DataSet
from trainer.data.digits_phase_pairs import BRIGHTEST
from trainer.data.pairing import CLASSES
from trainer.data.splits import SplitSeed, by_record


@final
class Digits(DataRecipe):
    """Handwritten digits as images (1, 8, 8) of grey values in [0, 1], with their digit as label.

    Attributes:
      split_seed: of the public split.
      test_fraction: of the records, held out.

    >>> Digits(split_seed=0, test_fraction=0.25).read().training_features.shape
    (1348, 1, 8, 8)
    """

    UNIT: ClassVar[str] = "image"
    DESCRIPTION: ClassVar[str] = (
        "scikit-learn's bundled 8x8 handwritten digits, grey values divided by 16, the largest of the file format. One record is one image"
    )

    kind: Literal["digits"] = "digits"
    split_seed: SplitSeed
    test_fraction: OpenProbability

    def arrays(self) -> DataSet:
        from sklearn.datasets import load_digits  # seconds to import, and not needed by whoever only reads a spec

        images, digits = load_digits(return_X_y=True)
        rows = (np.asarray(images) / BRIGHTEST).astype(np.float32).reshape(-1, 1, 8, 8)
        labels = np.asarray(digits, dtype=np.int64)
        training, test = by_record(len(rows), self.split_seed, self.test_fraction)
        return DataSet(rows[training], labels[training], rows[test], labels[test], CLASSES)
