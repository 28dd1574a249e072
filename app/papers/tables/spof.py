r"""SPOF: Figure 3, accuracy over epsilon on Fitbit records; section VIII has the settings. No epsilon is printed as a number."""

from __future__ import annotations

from zetadp.app.papers.schemas import Experiment, Printed

FEATURES, HIDDEN, STABILISATION = 14, 7, 2.5
USERS, ROWS = 2, 36_480
EPSILONS = (0.1, 1.0, 5.0, 10.0, 20.0)
"""Chosen here, since the paper's only epsilons are on the axis of a figure: what holds is proportional to them."""

EXPERIMENTS = tuple(
    Experiment(
        task="distributed autoencoder on Fitbit activity records (Algorithm 1)",
        unit="user",
        printed=(
            Printed(
                epsilon=epsilon, method="pure", where="no number in the text; Figure 3 is drawn over epsilon, this point is chosen here"
            ),
        ),
        note=f"{FEATURES} features divided by their private column maxima, {ROWS} rows of {USERS} users, stabilisation constants "
        f"{STABILISATION}, chosen by a sweep on the same data. Neither epochs nor releases are printed.",
    )
    for epsilon in EPSILONS
)
