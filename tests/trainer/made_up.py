r"""Facts of data sets that nobody has, for networks to be built for."""

from __future__ import annotations

from trainer.data.base import DataSetFacts


def facts_of(shape: tuple[int, ...], classes: int | None = 10, *, is_complex: bool = True) -> DataSetFacts:
    """Of a classification, or of a reconstruction where there are no classes."""
    return DataSetFacts(
        training_records=8,
        test_records=2,
        shape=shape,
        is_complex=is_complex,
        task="reconstruction" if classes is None else "classification",
        classes=classes,
        unit="record",
        sha256="0" * 64,
        description="made up",
    )
