r"""Complex-valued federated learning: Table 1, with the settings of section 5. Neither the noise nor the unit of a batch is printed."""

from __future__ import annotations

from zetadp.app.papers.schemas import Experiment, Printed

NODES = 11
RECORDS = 484
IMAGES = 38_720
BATCH = 24
EPOCHS = 500
DELTA = 1e-3

EXPERIMENTS = tuple(
    Experiment(
        task="MRI pulse sequence classification, federated and central",
        unit="patient",
        delta=DELTA,
        printed=(Printed(epsilon=epsilon, method="target", where="Table 1"),),
        note=f"{RECORDS} patients with {IMAGES} images on {NODES} nodes, expected batch {BATCH}, {EPOCHS} epochs. The guarantee is called "
        "per patient; whether clipping and sampling are per patient or per image isn't said (errata C10).",
    )
    for epsilon in (1.0, 3.0, 5.0, 8.0, 10.0)
)
