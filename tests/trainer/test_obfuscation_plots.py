"""The plot of what noise does: every line that was measured, with its guess, and nothing that wasn't."""

from __future__ import annotations

from zetadp.trainer.algorithms.obfuscation.plots import curve_plot
from zetadp.trainer.specs.findings.attacks import AttackFigure, AttackName, CurvePoint, Measure


def figure(attack: AttackName, measure: Measure, value: float, chance: float) -> AttackFigure:
    return AttackFigure(attack=attack, measure=measure, value=value, lower=value - 0.01, upper=value + 0.01, chance=chance, trials=300)


def curve(*, with_pixels: bool) -> tuple[CurvePoint, ...]:
    pixels = (figure("inversion_by_angle", "mean_squared_error", 0.05, 0.07),) if with_pixels else ()
    return tuple(
        CurvePoint(
            noise_multiplier=multiplier,
            std=2.0 * multiplier,
            figures=(
                figure("label_with_key", "accuracy", 0.9 - multiplier / 4, 0.1),
                figure("angle_by_learned_quadratures", "mean_error_radians", 0.02 + multiplier, 1.5708),
                *pixels,
            ),
        )
        for multiplier in (0.1, 1.0)
    )


def test_what_was_measured_is_drawn_and_named() -> None:
    drawn = curve_plot(curve(with_pixels=True)).decode()
    for words in ("the owner's answer is right", "angle error of the learned attack", "with the estimated angle", "radians"):
        assert words in drawn
    assert "the attacker's answer is right" not in drawn


def test_a_panel_without_figures_is_left_out() -> None:
    assert "mean squared error of a pixel" not in curve_plot(curve(with_pixels=False)).decode()


def test_the_same_curve_gives_the_same_bytes() -> None:
    assert curve_plot(curve(with_pixels=True)) == curve_plot(curve(with_pixels=True))
