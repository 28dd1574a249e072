r"""``epsilon`` and ``noise``: the two commonest questions, in one line."""

from __future__ import annotations

from typing import Annotated

import typer

from zetadp import accounting
from zetadp.app.cli.console import AsJson, clear_errors, out, print_json

Delta = Annotated[float, typer.Option(help="In (0, 1).")]
SamplingProbability = Annotated[float, typer.Option(help="With which each record joins a sample, independently; in (0, 1].")]
Steps = Annotated[int, typer.Option(help="Noisy sums that are released.")]

NEIGHBOURS = "Neighbours differ by one record that one of them lacks."


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(epsilon)
    app.command()(noise)


def epsilon(
    noise_multiplier: Annotated[float, typer.Option(help="Standard deviation per real component, divided by the clipping bound.")],
    delta: Delta,
    sampling_probability: SamplingProbability = 1.0,
    steps: Steps = 1,
    as_json: AsJson = False,
) -> None:
    """What epsilon has DP-SGD, or one Gaussian release, with this noise?"""
    with clear_errors():
        found = accounting.epsilon(noise_multiplier=noise_multiplier, delta=delta, sampling_probability=sampling_probability, steps=steps)
        if as_json:
            print_json(found)
        else:
            out.print(f"epsilon <= {found.upper!r}   and >= {found.lower!r}   (route: {found.route})\n{NEIGHBOURS}", markup=False)


def noise(
    epsilon: Annotated[float, typer.Option(help="To stay at or below.")],
    delta: Delta,
    sampling_probability: SamplingProbability = 1.0,
    steps: Steps = 1,
    as_json: AsJson = False,
) -> None:
    """What noise multiplier does DP-SGD, or one Gaussian release, need for this epsilon?"""
    with clear_errors():
        found = accounting.noise_multiplier(epsilon=epsilon, delta=delta, sampling_probability=sampling_probability, steps=steps)
        if as_json:
            print_json(found)
        else:
            at = found.epsilon
            out.print(
                f"noise multiplier {found.value!r}: epsilon <= {at.upper!r}   and >= {at.lower!r}   (route: {at.route})\n{NEIGHBOURS}",
                markup=False,
            )
