r"""zeta-DP: five trainings under the four conventions, and the limit theorem that the printed values come from."""

from __future__ import annotations

from zetadp.accountants import Grouped
from zetadp.app.papers.recompute import four_readings, limit_approximations, reading
from zetadp.app.papers.schemas import Experiment, ExperimentReport, PaperReport, PaperSummary, Reading
from zetadp.app.papers.tables import zeta_dp as tables

SUMMARY = PaperSummary(
    paper="zeta_dp",
    title="zeta-DP: Complex-valued differential privacy and its applications to neural network training",
    authors="anonymous, under double-blind review",
    proposes="the complex Gaussian mechanism with its (epsilon, delta), Renyi and Gaussian DP, and DP-SGD for complex-valued networks",
    holds="The mechanism is as private as a real Gaussian of deviation sigma / sqrt(2) per component, sqrt(2) less than printed (Z2). "
    "Its printed epsilons are upper bounds only under Poisson sampling with deviation sigma B on each component (Z14).",
)
"""What the paper is, without its experiments."""


def report() -> PaperReport:
    """The paper's tables, recomputed."""
    return SUMMARY.with_experiments(tuple(_read(experiment) for experiment in tables.EXPERIMENTS))


def _read(experiment: Experiment) -> ExperimentReport:
    readings = four_readings(experiment)
    if experiment is tables.PHASE_MNIST:
        readings = (*readings, _image_used_once(experiment, readings[0]))
    return ExperimentReport(experiment=experiment, readings=readings, approximations=limit_approximations(experiment))


def _image_used_once(experiment: Experiment, per_example: Reading) -> Reading:
    """Imaginary parts are drawn once per example out of as many images, so an image serves once on average; many serve more often."""
    return reading(
        experiment,
        "A_per_image",
        "A, for one image that is the imaginary part of one other example: two composed examples hold it",
        Grouped(size=2, unit="image", event=per_example.event),
        errata=("Z14", "Z19"),
        noise_multiplier=per_example.noise_multiplier,
    )
