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
        MeasuredResult(epsilon=epsilon, metric="accuracy", mean=mean, deviation=deviation, runs=runs)
        for epsilon, mean, deviation, runs in (
            (0.5, 0.622, 0.029, 5),
            (1.0, 0.828, 0.051, 5),
            (2.0, 0.929, 0.013, 5),
            (4.0, 0.971, 0.005, 10),
            (8.0, 0.983, 0.010, 5),
        )
    ),
    differences=("not of a paper: 8x8 digits in disjoint pairs, instead of PhaseMNIST's 28x28 images in overlapping ones",),
    errata=("Z19",),
    original_data="scikit-learn's bundled digits (UCI optical recognition of handwritten digits); nothing to download",
)
