r"""zeta-DP: Tables 1, 2, 3 and 5; rates, multipliers and epochs are those of appendix A.6, steps are epochs over rate."""

from __future__ import annotations

from zetadp.app.papers.schemas import Experiment, Method, Printed


def _printed(gdp: float, gdp_table: str, rdp: float, rdp_table: str) -> tuple[Printed, ...]:
    values: tuple[tuple[float, Method, str], ...] = ((gdp, "gdp", gdp_table), (rdp, "rdp", rdp_table))
    return tuple(Printed(epsilon=epsilon, method=method, where=where) for epsilon, method, where in values)


CIFAR_10 = Experiment(
    task="CIFAR-10",
    unit="image",
    sample_size=5,
    population_size=1000,
    noise_multiplier=0.61,
    steps=4000,
    delta=1e-5,
    printed=_printed(7.54, "Table 1", 7.63, "Table 3"),
    note="20 epochs at rate 0.005. Complex weights, real weights and two real channels are printed with one epsilon.",
)
ECG = Experiment(
    task="ECG",
    unit="recording",
    sample_size=63,
    population_size=1000,
    noise_multiplier=5.0,
    steps=1587,
    delta=5e-4,
    printed=_printed(1.62, "Table 1", 1.76, "Table 3"),
    note="100 epochs at rate 0.063 (64 of 1012 recordings).",
)
SPEECH_COMMANDS = Experiment(
    task="SpeechCommands",
    unit="utterance",
    sample_size=9,
    population_size=1000,
    noise_multiplier=1.0,
    steps=556,
    delta=1e-5,
    printed=_printed(1.39, "Table 1", 1.47, "Table 3"),
    note="5 epochs at rate 0.009. The counts of examples contradict each other (errata Z23).",
)
FAST_MRI = Experiment(
    task="FastMRI",
    unit="slice",
    sample_size=3,
    population_size=100_000,
    noise_multiplier=1.0,
    steps=1_000_000,
    delta=1e-5,
    printed=_printed(0.16, "Table 2", 0.67, "Table 3"),
    note="30 epochs at rate 3e-5, one of 34742 slices. Nothing is said per patient (errata Z20).",
)
PHASE_MNIST = Experiment(
    task="PhaseMNIST",
    unit="composed_example",
    sample_size=1,
    population_size=1000,
    noise_multiplier=1.1,
    steps=10_000,
    delta=1e-5,
    printed=_printed(0.51, "Tables 3 and 5", 0.53, "Tables 3 and 5"),
    note="10 epochs at rate 0.001. One image may sit in several composed examples (errata Z19).",
)
EXPERIMENTS = (CIFAR_10, ECG, SPEECH_COMMANDS, FAST_MRI, PHASE_MNIST)
