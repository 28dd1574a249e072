r"""THE REGISTRY of data sets, free of torch. To add one: a module with a ``DataRecipe``, and one name here."""

from __future__ import annotations

from functools import lru_cache

from trainer.data.base import DataRecipe, DataSet, DataSetFacts, array_digest
from trainer.data.digits_phase_pairs import DigitsPhasePairs

# With a second data set this becomes a union discriminated by ``kind``.
DataSpec = DigitsPhasePairs
READERS: tuple[type[DataRecipe], ...] = (DigitsPhasePairs,)


def data_set_facts(spec: DataSpec) -> DataSetFacts:
    """Reads the data set and states what a plan and a certificate need of it.

    >>> data_set_facts(DigitsPhasePairs(split_seed=0, test_fraction=0.2)).training_records
    713
    """
    return _facts(spec.model_dump_json())


@lru_cache(maxsize=8)
def _facts(spec_text: str) -> DataSetFacts:
    spec = DataSpec.model_validate_json(spec_text)
    data = spec.read()
    return DataSetFacts(
        training_records=len(data.training_labels),
        test_records=len(data.test_labels),
        features=data.training_features.shape[1],
        classes=data.classes,
        unit=spec.UNIT,
        sha256=array_digest(data.training_features, data.training_labels),
        description=spec.DESCRIPTION,
    )


__all__ = ["READERS", "DataRecipe", "DataSet", "DataSetFacts", "DataSpec", "DigitsPhasePairs", "array_digest", "data_set_facts"]
