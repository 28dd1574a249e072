r"""The demonstration: small, on data that a library brings, not from a paper."""

from __future__ import annotations

from zetadp.trainer.recipes.recipe import DeclaredData, MeasuredResult, Recipe
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd

# Its hyper-parameters were tuned on this public data set: the search itself has no guarantee, and needs none, as nobody's data are in it.
DIGITS_DEMO = ZetaDpSgd.example()

DIGITS = Recipe(
    name="digits",
    title="Handwritten digits as phase pairs (the demonstration)",
    paper=None,
    reference="none: a small form of PhaseMNIST that trains in about a minute",
    spec=DIGITS_DEMO,
    hyper_parameters="ours: one hidden complex layer of 64, cardioid, Adam at 0.005, 400 steps on expected lots of 200",
    declared=DeclaredData(training_records=710, test_records=181, shape=(64,), is_complex=True, classes=10, unit="record"),
    measured=tuple(
        MeasuredResult(epsilon=epsilon, metric="accuracy", mean=mean, deviation=deviation, runs=3)
        for epsilon, mean, deviation in (
            (0.5, 0.658, 0.020),
            (1.0, 0.810, 0.070),
            (2.0, 0.906, 0.015),
            (4.0, 0.978, 0.006),
            (8.0, 0.980, 0.007),
        )
    ),
    differences=("not of a paper: 8x8 digits in disjoint pairs, instead of PhaseMNIST's 28x28 images in overlapping ones",),
    errata=("Z19",),
    original_data="scikit-learn's bundled digits (UCI optical recognition of handwritten digits); nothing to download",
)
