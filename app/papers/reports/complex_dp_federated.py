r"""Federated learning: the least noise that reaches each printed epsilon under one reading, and its epsilon under others."""

from __future__ import annotations

from fractions import Fraction

from zetadp.accountants import Grouped, Release, calibrate_scale
from zetadp.app.calculators.compare.conventions import sum_sensitivity, training_event
from zetadp.app.papers.recompute import reading
from zetadp.app.papers.schemas import Experiment, ExperimentReport, PaperReport, PaperSummary, Reading
from zetadp.app.papers.tables import complex_dp_federated as tables
from zetadp.mechanisms import ComplexGaussian
from zetadp.mechanisms.base import Adjacency

IMAGES_OF_A_PATIENT = tables.IMAGES // tables.RECORDS


SUMMARY = PaperSummary(
    paper="complex_dp_federated",
    title="Complex-valued federated learning with differential privacy and MRI applications",
    authors="Anneliese Riess, Alexander Ziller, Stefan Kolek, Daniel Rueckert, Julia Schnabel, Georgios Kaissis",
    proposes="the complex Gaussian mechanism with correlated components, DP-SGD for complex-valued networks, and layers that suit it",
    holds="Theorem 1 is a valid bound, not the tightest (C3); Algorithm 1 is right under adding or removing a unit (C18). The epsilons "
    "hold per patient only if patients are what is clipped and sampled (C10), and not for replacing one (C9).",
)
"""What the paper is, without its experiments."""


def report() -> PaperReport:
    """The paper's table, recomputed."""
    return SUMMARY.with_experiments(tuple(ExperimentReport(experiment=each, readings=_readings(each)) for each in tables.EXPERIMENTS))


def _readings(experiment: Experiment) -> tuple[Reading, ...]:
    return (
        *_by_training(experiment, "patient", tables.RECORDS),
        *_by_training(experiment, "image", tables.IMAGES),
        _one_release(experiment),
    )


def _by_training(experiment: Experiment, unit: str, count: int) -> tuple[Reading, ...]:
    """Noise calibrated for this unit under add or remove; then the same noise for what else the paper's words can mean."""
    epsilon, delta = experiment.printed[0].epsilon, experiment.delta
    assert delta is not None
    rate = Fraction(tables.BATCH * tables.NODES, count)
    steps = round(tables.EPOCHS / rate)
    noise = calibrate_scale(training_event(rate, 1.0, steps, "poisson", unit=unit), epsilon=epsilon, delta=delta)
    event = training_event(rate, noise, steps, "poisson", unit=unit)
    replacing = training_event(rate, noise, steps, "poisson", unit=unit, adjacency=Adjacency.REPLACE_ONE)
    how = f"{unit}s clipped and Poisson-sampled, {tables.BATCH} of a node's {count // tables.NODES}, {steps} steps; least noise for epsilon"
    found = [
        reading(experiment, f"{unit}_add_remove", f"{how}, one {unit} more or less", event, errata=("C18",), noise_multiplier=noise),
        reading(
            experiment,
            f"{unit}_replace_one",
            f"the same noise, one {unit} replaced: the sum of clipped gradients moves by 2 B",
            replacing,
            errata=("C9",),
            noise_multiplier=noise,
        ),
    ]
    if unit == "image":
        found.append(
            reading(
                experiment,
                "patient_of_all_images",
                f"the same noise, for a patient with {IMAGES_OF_A_PATIENT} images",
                Grouped(size=IMAGES_OF_A_PATIENT, unit="patient", event=event),
                errata=("C10", "C11"),
                noise_multiplier=noise,
            )
        )
    return tuple(found)


def _one_release(experiment: Experiment) -> Reading:
    """What the paper's own calculus gives: image-level epsilon as mu-GDP, and 80 mu for the patient."""
    epsilon, delta = experiment.printed[0].epsilon, experiment.delta
    assert delta is not None
    sensitivity = sum_sensitivity(Adjacency.ADD_REMOVE, "image")
    noise = calibrate_scale(Release(mechanism=ComplexGaussian(std=1.0, sensitivity=sensitivity)), epsilon=epsilon, delta=delta)
    release = Release(mechanism=ComplexGaussian(std=noise, sensitivity=sensitivity))
    return reading(
        experiment,
        "patient_by_gdp_group",
        f"image-level epsilon taken as mu-GDP, {IMAGES_OF_A_PATIENT} mu for a patient with {IMAGES_OF_A_PATIENT} images",
        Grouped(size=IMAGES_OF_A_PATIENT, unit="patient", event=release),
        errata=("C10",),
        noise_multiplier=noise,
    )
