r"""The demonstration, and a network on sequences: small, on data that a library brings, not from a paper."""

from __future__ import annotations

from zetadp.mechanisms.base import Adjacency
from zetadp.trainer.data import Digits
from zetadp.trainer.recipes.recipe import DeclaredData, MeasuredResult, Recipe
from zetadp.trainer.specs.algorithms.zeta_dp_sgd import ZetaDpSgd
from zetadp.trainer.specs.base import PrivacyTarget
from zetadp.trainer.specs.descent import Adam
from zetadp.trainer.specs.findings.runs import MarkAudit
from zetadp.trainer.specs.models.transformers import transformer
from zetadp.trainer.specs.network_training import PublicHeldOut

# Its hyper-parameters were tuned on this public data set: the search itself has no guarantee, and needs none, as nobody's data are in it.
# The demonstration is audited: marks leave the model's distribution as it is, but for what a longer release is contracted by.
DIGITS_DEMO = ZetaDpSgd.model_validate(dict(ZetaDpSgd.example()) | {"audit": MarkAudit(canaries=30_000)})

DIGITS = Recipe(
    name="digits",
    title="Handwritten digits as phase pairs (the demonstration)",
    paper=None,
    reference="none: a small form of PhaseMNIST that trains in a few seconds",
    spec=ZetaDpSgd.example(),
    hyper_parameters="ours: one hidden complex layer of 64, cardioid, Adam at 0.005, 400 steps on expected lots of 200",
    declared=DeclaredData(training_records=710, test_records=181, shape=(64,), is_complex=True, classes=10, unit="record"),
    measured=tuple(
        MeasuredResult(epsilon=epsilon, metric="accuracy", mean=mean, deviation=deviation, runs=runs)
        for epsilon, mean, deviation, runs in (
            (0.5, 0.622, 0.029, 5),
            (1.0, 0.828, 0.051, 5),
            (2.0, 0.929, 0.013, 5),
            (4.0, 0.968, 0.005, 5),
            (8.0, 0.983, 0.010, 5),
        )
    ),
    differences=("not of a paper: 8x8 digits in disjoint pairs, instead of PhaseMNIST's 28x28 images in overlapping ones",),
    errata=("Z19",),
    original_data="scikit-learn's bundled digits (UCI optical recognition of handwritten digits); nothing to download",
)

DIGITS_TRANSFORMER = Recipe(
    name="digits_transformer",
    title="Handwritten digits, read column by column by a transformer",
    paper=None,
    reference="none: a network on sequences that trains in about ten seconds",
    spec=ZetaDpSgd(
        data=Digits(split_seed=0, test_fraction=0.2),
        model=transformer(10, "real", layers=1, channels=32, heads=4, entries=None, dropout=0.0, columns=True),
        optimizer=Adam(learning_rate=0.005),
        privacy=PrivacyTarget(adjacency=Adjacency.ADD_REMOVE, unit="image", delta=1e-5, epsilon=4.0),
        clipping_bound=1.0,
        expected_batch_size=300,
        steps=300,
        evaluation=PublicHeldOut(),
    ),
    hyper_parameters="ours: one layer of 4 heads on 32 channels, Adam at 0.005, 300 steps on expected lots of 300; nothing else was tried",
    declared=DeclaredData(training_records=1465, test_records=332, shape=(1, 8, 8), is_complex=False, classes=10, unit="image"),
    measured=(MeasuredResult(epsilon=4.0, metric="accuracy", mean=0.826, deviation=0.021, runs=3),),
    differences=("not of a paper",),
    original_data="scikit-learn's bundled digits (UCI optical recognition of handwritten digits); nothing to download",
)
