r"""Spectral-DP: Table 5 (noise given, epsilon read off) and Tables 1, 10 and 15 (epsilon given, noise chosen for it)."""

from __future__ import annotations

from zetadp.app.papers.schemas import Experiment, Printed

DELTA = 1e-5
CIFAR = 50_000
MNIST = 60_000

TRANSFER_SIGMA, TRANSFER_BATCH, TRANSFER_EPOCHS = 0.9, 256, 100
TRANSFER = (
    ("Spectral-DP", "Transfer1", 2.11),
    ("Spectral-DP", "Transfer2", 2.11),
    ("Spectral-DP", "Transfer3", 2.15),
    ("DP-SGD", "Transfer1", 3.88),
    ("DP-SGD", "Transfer2", 3.24),
    ("DP-SGD", "Transfer3", 2.89),
)
"""Table 5: method, model and epsilon at the epoch of best test accuracy; 50000 images of CIFAR-10, at most 100 epochs."""

PER_EPOCH = (1, 10, 20, 50, 100)
"""Stopping epochs at which the same noise is accounted, whatever the method."""

_TARGETS = (
    # task, population, batch, epochs, epsilon, table
    ("MNIST from scratch (Model1, LeNet-5)", MNIST, 500, 30, 2.0, "Table 1"),
    ("CIFAR-10 from scratch (Model2, Model3)", CIFAR, 500, 30, 3.0, "Table 1"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 2048, 20, 1.0, "Table 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 1024, 20, 1.0, "Table 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 512, 20, 1.0, "Table 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 256, 20, 1.0, "Table 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 256, 20, 2.0, "Tables 8 and 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 256, 20, 4.0, "Tables 8 and 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 512, 20, 2.0, "Table 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 512, 20, 4.0, "Table 10"),
    ("CIFAR-100 transfer (WRN-28-10)", CIFAR, 2048, 20, 4.0, "Table 10"),
    ("CIFAR-10 transfer (ResNet-18)", CIFAR, 256, 10, 0.5, "Table 15"),
    ("CIFAR-10 transfer (ResNet-18)", CIFAR, 256, 20, 0.5, "Table 15"),
    ("CIFAR-10 transfer (ResNet-18)", CIFAR, 256, 40, 0.5, "Table 15"),
    ("CIFAR-10 transfer (ResNet-18)", CIFAR, 256, 10, 0.2, "Table 15"),
    ("CIFAR-10 transfer (ResNet-18)", CIFAR, 256, 10, 1.0, "Table 15"),
    ("CIFAR-10 transfer (ResNet-18)", CIFAR, 256, 10, 2.0, "Table 15"),
    ("CIFAR-10 transfer (ResNet-18)", CIFAR, 256, 20, 2.0, "Table 15"),
)

TARGETS = tuple(
    Experiment(
        task=task,
        unit="image",
        sample_size=batch,
        population_size=population,
        steps=epochs * population // batch,
        delta=DELTA,
        printed=(Printed(epsilon=epsilon, method="target", where=where),),
        note=f"{epochs} epochs with batches of {batch}; the noise chosen isn't printed.",
    )
    for task, population, batch, epochs, epsilon, where in _TARGETS
)

STOPPED = tuple(
    Experiment(
        task=f"CIFAR-10 transfer (ResNet-18, {model}) by {method}",
        unit="image",
        sample_size=TRANSFER_BATCH,
        population_size=CIFAR,
        noise_multiplier=TRANSFER_SIGMA,
        delta=DELTA,
        printed=(Printed(epsilon=epsilon, method="rdp", where="Table 5"),),
        note=f"At most {TRANSFER_EPOCHS} epochs; epsilon is that of the epoch with the best test accuracy, which isn't named.",
    )
    for method, model, epsilon in TRANSFER
)
