r"""SPOF: what Algorithm 1's noise guarantees for the coefficients alone, and for everything it releases."""

from __future__ import annotations

from zetadp.accountants import Event, Grouped, NonPrivate, Release
from zetadp.app.papers.recompute import reading
from zetadp.app.papers.schemas import Experiment, ExperimentReport, PaperReport, PaperSummary, Reading
from zetadp.app.papers.tables import spof as tables
from zetadp.mechanisms import Laplace
from zetadp.mechanisms.base import Adjacency, Sensitivity
from zetadp.mechanisms.published import spof as published

ROWS_OF_A_USER = tables.ROWS // tables.USERS

_AS_PRINTED = NonPrivate(
    reason="hidden values are sent without noise and gradients are multiples of the raw record (errata S14, S15); the noise scale contains "
    "the private c_j (S13)"
)


SUMMARY = PaperSummary(
    paper="spof",
    title="Stabilization of perturbed loss function: Differential privacy without gradient noise",
    authors="Salman Habib, Remi A. Chou, Taejoon Kim",
    proposes="training on a Taylor polynomial of the loss whose coefficients carry Laplace noise, stabilised by a constant",
    holds="The coefficients of one record, released once with the printed noise, cost sqrt(2) epsilon (S7); each further release as "
    "much again (S16). The training as a whole has no guarantee at any epsilon (S13, S14, S15).",
)
"""What the paper is, without its experiments."""


def report() -> PaperReport:
    """The range of epsilon of the paper's figure, recomputed."""
    return SUMMARY.with_experiments(tuple(ExperimentReport(experiment=each, readings=_readings(each)) for each in tables.EXPERIMENTS))


def _coefficients(epsilon: float, c: float, l1: float) -> Event:
    """Both coefficients of every feature of one row, with the Laplace scale of step 5 for a fixed, public c."""
    sensitivity = Sensitivity(l1=l1, adjacency=Adjacency.REPLACE_ONE, unit="row")
    return Release(mechanism=Laplace(scale=published.algorithm_1_scale(tables.FEATURES, c, epsilon), sensitivity=sensitivity))


def _readings(experiment: Experiment) -> tuple[Reading, ...]:
    epsilon = experiment.printed[0].epsilon
    printed_pair = published.sensitivity(tables.FEATURES)
    once = _coefficients(epsilon, 0.0, printed_pair)
    noise = f"the noise of step 5 for a fixed, public c = {tables.STABILISATION}"
    return (
        reading(experiment, "coefficients_once", "one row's coefficients, released once, c = 0", once, errata=("S5", "S7")),
        reading(
            experiment,
            "coefficients_once_public_c",
            f"{noise}, on alpha_2 and alpha_3 themselves, as step 5 is printed",
            _coefficients(epsilon, tables.STABILISATION, printed_pair),
            errata=("S7", "S11", "S13"),
        ),
        reading(
            experiment,
            "coefficients_once_shifted",
            f"{noise}, on the coefficients of equation (31), which it was made for",
            _coefficients(epsilon, tables.STABILISATION, published.stabilised_sensitivity(tables.FEATURES, tables.STABILISATION)),
            errata=("S7", "S10", "S11"),
        ),
        reading(
            experiment,
            "user_one_pass",
            f"c = 0, each of a user's {ROWS_OF_A_USER} rows released once; every further epoch adds as much",
            Grouped(size=ROWS_OF_A_USER, unit="user", event=once),
            errata=("S7", "S16", "S18"),
        ),
        reading(experiment, "as_printed", "Algorithm 1 as a whole", _AS_PRINTED, errata=("S13", "S14", "S15", "S16")),
    )
