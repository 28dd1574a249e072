r"""scikit-learn's digits as rows of real numbers to reconstruct: a small public data set that needs no file."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import numpy as np

from zetadp.trainer.data.base import DataSet, SplitRecipe
from zetadp.trainer.data.digits_phase_pairs import BRIGHTEST
from zetadp.trainer.data.splits import record_keys


@final
class DigitsImages(SplitRecipe):
    """Handwritten digits of 8 x 8 pixels as 64 numbers in [0, 1].

    Attributes: as in ``SplitRecipe``.
    """

    UNIT: ClassVar[str] = "record"
    DESCRIPTION: ClassVar[str] = (
        "scikit-learn's bundled 8x8 handwritten digits, grey values divided by 16, the largest of the file format. One record is one image"
    )

    kind: Literal["digits_images"] = "digits_images"

    def arrays(self) -> DataSet:
        from sklearn.datasets import load_digits  # seconds to import, and not needed by whoever only reads a spec

        images, _ = load_digits(return_X_y=True)
        rows = (np.asarray(images) / BRIGHTEST).astype(np.float32)
        training, test = self.sides(record_keys(rows))
        return DataSet(rows[training], rows[training], rows[test], rows[test], None)
