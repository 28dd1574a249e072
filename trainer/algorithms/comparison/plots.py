r"""The plots of a comparison, as one SVG file: the metric against the epsilon it costs, time, and memory."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from zetadp.mechanisms import RandomOrigin
from zetadp.mechanisms.numerics.rounding import text_up
from zetadp.trainer.algorithms.comparison.results import ComparisonResult, Group, groups
from zetadp.trainer.specs.report import MetricName

HEADLINE: tuple[MetricName, ...] = ("accuracy", "score", "ssim", "nmse")
"""The metric plotted: the first of these that was measured."""


def plots(result: ComparisonResult) -> bytes:
    """An SVG of three panels; the same result gives the same bytes."""
    found = groups(result)
    measured: list[MetricName] = [name for name in HEADLINE if any(name in group.metrics for group in found)]
    headline: MetricName | None = measured[0] if measured else None
    # Text stays text, for search and for screen readers.
    with rc_context({"svg.hashsalt": "zetadp", "svg.fonttype": "none", "font.size": 9.0}):
        figure = Figure(figsize=(12.0, 4.3), layout="constrained")
        figure.suptitle(_together(result))
        reached, time, memory = figure.subplots(1, 3, width_ratios=(2, 1, 1))
        if headline is None:
            reached.text(0.5, 0.5, "nothing was measured on held-out records", ha="center", va="center", transform=reached.transAxes)
            reached.set_axis_off()
        else:
            _against_epsilon(reached, found, headline, result.delta)
        _bars(time, found, [group.seconds for group in found], "training time [s]")
        _bars(memory, found, [group.peak_mebibytes for group in found], "peak memory [MiB]")
        target = io.BytesIO()
        FigureCanvasSVG(figure).print_svg(target, metadata={"Date": None, "Title": "Comparison of trainings"})
    return target.getvalue()


def _together(result: ComparisonResult) -> str:
    """The cost of all runs together, in words."""
    if result.random_origin is RandomOrigin.USER_SEED:
        return "from a user's seed: no epsilon here holds against someone who knows the seed"
    if math.isinf(result.epsilon):
        return "all runs combined: no guarantee"
    return f"all runs combined: epsilon {text_up(result.epsilon, 4)} at delta {result.delta:g} for one {result.unit}"


def _against_epsilon(axes: Axes, found: Sequence[Group], headline: MetricName, delta: float) -> None:
    for part in dict.fromkeys(group.part for group in found):
        mine = [group for group in found if group.part == part and headline in group.metrics]
        finite = sorted((group for group in mine if math.isfinite(group.epsilon)), key=lambda group: group.epsilon)
        if finite:
            spreads = [group.metrics[headline] for group in finite]
            means, deviations = [mean for mean, _ in spreads], [deviation for _, deviation in spreads]
            axes.errorbar([group.epsilon for group in finite], means, yerr=deviations, marker="o", capsize=3.0, label=part)
        for group in mine:
            if not math.isfinite(group.epsilon):
                axes.axhline(group.metrics[headline][0], linestyle="--", color="0.4", label=f"{part} (no guarantee)")
    axes.set_xlabel(f"epsilon of a single run at delta {delta:g}")
    axes.set_ylabel(headline)
    axes.set_title(f"{headline} on held-out records")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()


def _bars(axes: Axes, found: Sequence[Group], spreads: Sequence[tuple[float, float]], title: str) -> None:
    labels = [group.part if math.isinf(group.epsilon) else f"{group.part}, epsilon {text_up(group.epsilon, 3)}" for group in found]
    axes.barh(range(len(found)), [mean for mean, _ in spreads], xerr=[deviation for _, deviation in spreads], color="0.6")
    axes.set_yticks(range(len(found)), labels)
    axes.invert_yaxis()
    axes.set_title(title)
