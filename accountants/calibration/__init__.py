r"""Calibration: the least safe parameter of an event that still meets a target, checked on the safe side of it."""

from __future__ import annotations

from zetadp.accountants.calibration.parameters import ClippingBound, NoiseScale, Parameter, SampleSize, SamplingProbability, Steps
from zetadp.accountants.calibration.solution import Failure, Solution, calibrate, calibrate_scale, solve, solve_many
from zetadp.accountants.calibration.targets import RdpPoint, Target, TradeOffPoint

__all__ = [
    "ClippingBound",
    "Failure",
    "NoiseScale",
    "Parameter",
    "RdpPoint",
    "SampleSize",
    "SamplingProbability",
    "Solution",
    "Steps",
    "Target",
    "TradeOffPoint",
    "calibrate",
    "calibrate_scale",
    "solve",
    "solve_many",
]
