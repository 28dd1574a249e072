r"""Spectral-DP: at which epoch the printed epsilons arise, and the epsilon of the same noise under each possible meaning of the paper."""

from __future__ import annotations

from zetadp.accountants import NonPrivate, RdpAccountant, calibrate_scale
from zetadp.accountants.calibration import Steps, Target, solve
from zetadp.app.calculators.compare.conventions import training_event
from zetadp.app.papers.recompute import rate_of, reading
from zetadp.app.papers.schemas import Experiment, ExperimentReport, PaperReport, PaperSummary, Reading
from zetadp.app.papers.tables import spectral_dp as tables
from zetadp.mechanisms.base import Adjacency

_AS_PRINTED = NonPrivate(reason="real noise on complex Fourier coefficients leaves their imaginary parts as they are (errata P1)")


SUMMARY = PaperSummary(
    paper="spectral_dp",
    title="Spectral-DP: Differentially private deep learning through spectral perturbation and filtering",
    authors="Ce Feng, Nuo Xu, Wujie Wen, Parv Venkatasubramaniam, Caiwen Ding",
    proposes="DP-SGD with noise on the gradient's Fourier coefficients, of which the last are then dropped",
    holds="As printed, with real noise on complex coefficients, nothing (P1). With Hermitian noise it is DP-SGD followed by a fixed "
    "low-pass filter (P20): the same epsilon per epoch as DP-SGD with the same sigma, for adding or removing an image (P8, P14).",
)
"""What the paper is, without its experiments."""


def report() -> PaperReport:
    """The paper's privacy settings, recomputed."""
    return SUMMARY.with_experiments(
        (
            *(ExperimentReport(experiment=each, readings=_stopped(each)) for each in tables.STOPPED),
            *(_after(epochs) for epochs in tables.PER_EPOCH),
            *(ExperimentReport(experiment=each, readings=_calibrated(each)) for each in tables.TARGETS),
        )
    )


def _stopped(experiment: Experiment) -> tuple[Reading, ...]:
    """The last step at which Renyi accounting stays within the printed epsilon, and the run as a whole."""
    assert experiment.noise_multiplier is not None
    assert experiment.delta is not None
    once = training_event(rate_of(experiment), experiment.noise_multiplier, 1, "poisson", unit=experiment.unit, is_complex=False)
    target = Target(epsilon=experiment.printed[0].epsilon, delta=experiment.delta)
    steps = int(solve(once, Steps(), target, RdpAccountant()).value)
    epochs = float(steps * rate_of(experiment))
    at = f"stopped after {steps} steps, {epochs:.1f} epochs, the last within the printed epsilon by Renyi accounting"
    whole = round(tables.TRANSFER_EPOCHS / rate_of(experiment))
    found = (
        *_of_noise(experiment, experiment.noise_multiplier, steps, at, "_stopped"),
        reading(
            experiment,
            "A_all_epochs",
            f"A, all {tables.TRANSFER_EPOCHS} epochs: every one was run and its test accuracy looked at",
            training_event(rate_of(experiment), experiment.noise_multiplier, whole, "poisson", unit=experiment.unit, is_complex=False),
            errata=("P14",),
            noise_multiplier=experiment.noise_multiplier,
            by_rdp=True,
        ),
    )
    return found if "DP-SGD" in experiment.task else (*found, _as_printed(experiment))


def _after(epochs: int) -> ExperimentReport:
    """The same noise after some epochs, whatever method uses it."""
    rate = rate_of(tables.STOPPED[0])
    experiment = Experiment(
        task=f"any method with the noise of Table 5, stopped after {epochs} epoch{'s' if epochs > 1 else ''}",
        unit="image",
        sample_size=tables.TRANSFER_BATCH,
        population_size=tables.CIFAR,
        noise_multiplier=tables.TRANSFER_SIGMA,
        steps=int(epochs / rate),
        delta=tables.DELTA,
    )
    assert experiment.steps is not None
    return ExperimentReport(experiment=experiment, readings=_of_noise(experiment, tables.TRANSFER_SIGMA, experiment.steps, "", ""))


def _calibrated(experiment: Experiment) -> tuple[Reading, ...]:
    assert experiment.steps is not None
    assert experiment.delta is not None
    unit_noise = training_event(rate_of(experiment), 1.0, experiment.steps, "poisson", unit=experiment.unit, is_complex=False)
    noise = calibrate_scale(unit_noise, epsilon=experiment.printed[0].epsilon, delta=experiment.delta)
    how = f"the least noise that reaches the printed epsilon, sigma = {noise:.4f}"
    return (*_of_noise(experiment, noise, experiment.steps, how, "_calibrated"), _as_printed(experiment))


def _of_noise(experiment: Experiment, noise: float, steps: int, how: str, suffix: str) -> tuple[Reading, ...]:
    """Hermitian noise of this multiplier for adding or removing, for replacing, and with samples of fixed size."""
    rate, detail = rate_of(experiment), f"; {how}" if how else ""

    def event_of(sampler, adjacency):
        return training_event(rate, noise, steps, sampler, unit=experiment.unit, adjacency=adjacency, is_complex=False)

    ways = (
        ("A", "Hermitian noise, Poisson samples, one image more or less", "poisson", Adjacency.ADD_REMOVE, ("P2", "P14")),
        ("replace_one", "Hermitian noise, Poisson samples, one image replaced", "poisson", Adjacency.REPLACE_ONE, ("P8",)),
        ("C", "Hermitian noise, samples of fixed size, one image more or less", "fixed_size", Adjacency.ADD_REMOVE, ("P8", "Z12")),
    )
    return tuple(
        reading(
            experiment,
            name + suffix,
            meaning + detail,
            event_of(sampler, adjacency),
            errata=rows,
            noise_multiplier=noise,
            by_rdp=name == "A",
        )
        for name, meaning, sampler, adjacency, rows in ways
    )


def _as_printed(experiment: Experiment) -> Reading:
    return reading(
        experiment, "as_printed", "real noise on the complex coefficients, as Algorithm 1 prints it", _AS_PRINTED, errata=("P1",)
    )
