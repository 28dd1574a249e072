r"""scikit-learn's digits as real images to classify: a small public data set that needs no file."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import numpy as np

from zetadp.trainer.data.base import DataSet, SplitRecipe
from zetadp.trainer.data.digits_phase_pairs import BRIGHTEST
from zetadp.trainer.data.pairing import CLASSES
from zetadp.trainer.data.splits import record_keys


@final
class Digits(SplitRecipe):
    """Handwritten digits as images (1, 8, 8) of grey values in [0, 1], with their digit as label.

    Attributes: as in ``SplitRecipe``.

    >>> Digits(split_seed=0, test_fraction=0.25).read().training_features.shape
    (1368, 1, 8, 8)
    """

    UNIT: ClassVar[str] = "image"
    DESCRIPTION: ClassVar[str] = (
        "scikit-learn's bundled 8x8 handwritten digits, grey values divided by 16, the largest of the file format. One record is one image"
    )

    kind: Literal["digits"] = "digits"

    def arrays(self) -> DataSet:
        from sklearn.datasets import load_digits  # seconds to import, and not needed by whoever only reads a spec

        images, digits = load_digits(return_X_y=True)
        rows = (np.asarray(images) / BRIGHTEST).astype(np.float32).reshape(-1, 1, 8, 8)
        labels = np.asarray(digits, dtype=np.int64)
        training, test = self.sides(record_keys(rows, labels))
        return DataSet(rows[training], labels[training], rows[test], labels[test], CLASSES)
