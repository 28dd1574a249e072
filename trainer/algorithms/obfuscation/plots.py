r"""The plot of answers and attacks against noise, as one SVG file."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from zetadp.trainer.specs.findings.attacks import AttackFigure, AttackName, CurvePoint, Measure

CURVE_FILE = "noise-curve.svg"

Line = tuple[AttackName, Measure, str]

ANSWERS: tuple[Line, ...] = (
    ("label_with_key", "accuracy", "the owner's answer is right"),
    ("label_without_key", "accuracy", "the attacker's answer is right"),
    ("candidate_pair", "true_positive_rate", "a sent input is recognised"),
    ("candidate_pair", "false_positive_rate", "an input that wasn't sent is mistaken for one that was"),
)
ANGLES: tuple[Line, ...] = (
    ("angle_by_learned_quadratures", "mean_error_radians", "angle error of the learned attack"),
    ("angle_by_learned_quadratures", "mean_error_radians_mod_quarter_turn", "the same modulo a quarter turn"),
)
PIXELS: tuple[Line, ...] = (
    ("inversion_by_angle", "mean_squared_error", "with the estimated angle"),
    ("inversion_with_key", "mean_squared_error", "with the true angle"),
    ("inversion_direct", "mean_squared_error", "directly from what is sent"),
)


def curve_plot(curve: Sequence[CurvePoint]) -> bytes:
    """An SVG of the measurements at each noise, with intervals and, dashed, a guess's results; the same curve gives the same bytes."""
    panels = [
        (title, lines)
        for title, lines in (("share of victims", ANSWERS), ("radians", ANGLES), ("mean squared error of a pixel", PIXELS))
        if any(_found(point.figures, line) for point in curve for line in lines)
    ]
    with rc_context({"svg.hashsalt": "zetadp", "svg.fonttype": "none", "font.size": 9.0}):
        figure = Figure(figsize=(5.0 * len(panels), 4.3), layout="constrained")
        figure.suptitle("The effect of noise on the feature, on public records; an attack that fails here proves nothing")
        for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _panel(axes, curve, title, lines)
        target = io.BytesIO()
        FigureCanvasSVG(figure).print_svg(target, metadata={"Date": None, "Title": "Answers and attacks against noise"})
    return target.getvalue()


def _panel(axes: Axes, curve: Sequence[CurvePoint], title: str, lines: Sequence[Line]) -> None:
    for line in lines:
        points = [(1.0 / point.noise_multiplier, found) for point in curve if (found := _found(point.figures, line)) is not None]
        if not points:
            continue
        mus, figures = [mu for mu, _ in points], [found for _, found in points]
        below = [found.value - found.lower for found in figures]
        above = [found.upper - found.value for found in figures]
        drawn = axes.errorbar(mus, [found.value for found in figures], yerr=(below, above), marker="o", capsize=3.0, label=line[2])
        axes.plot(mus, [found.chance for found in figures], linestyle="--", linewidth=0.8, color=drawn[0].get_color())
    axes.set_xscale("log")
    axes.set_xlabel("mu of one query: 2 C over the noise's standard deviation")
    axes.set_ylabel(title)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()


def _found(figures: Sequence[AttackFigure], line: Line) -> AttackFigure | None:
    attack, measure, _ = line
    return next((one for one in figures if (one.attack, one.measure) == (attack, measure)), None)
