r"""The request of a comparison with Spectral-DP: a filter, a noise, and optionally a signal."""

from __future__ import annotations

from typing import Annotated, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.app.calculators.schemas import example
from zetadp.mechanisms.analysis.signal_energy import SignalNorms
from zetadp.mechanisms.base import NonNegative, Number, OpenProbability, Positive, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.spectrum import LONGEST_AXIS, MOST_AXES, LowPass, Rounding, kept_for_ratio
from zetadp.mechanisms.spectral import AxisNumbers

LONGEST_SIGNAL = 4096
MOST_POSITIONS = 8
MOST_POINTS = 4

Coordinate = Annotated[Number, Field(ge=-1e50, le=1e50)]
Power = Annotated[Number, Field(ge=0.0, le=1e50)]
Index = Annotated[int, Strict(), Field(ge=0, lt=LONGEST_AXIS)]
Position = Annotated[tuple[Index, ...], Field(min_length=1, max_length=MOST_AXES)]
Ratios = Annotated[tuple[Number, ...], Field(min_length=1, max_length=MOST_AXES)]


@final
class SpectralComparison(Value):
    r"""Spectral-DP's statements for this filter and noise.

    Attributes:
      shape: [N] or [N1, N2]: length of each axis of the real signal.
      kept: K on each axis, in [1, N]. Or else filtering_ratio.
      filtering_ratio: rho = 1 - K / N on each axis, in [0, 1); the paper prints it with the other sign.
      rounding: how (1 - rho) N becomes a whole number; given with filtering_ratio, and only then.
      clip: S, the l2 norm that one query (or one record's term) is clipped to.
      noise_multiplier: sigma; the noise is N(0, sigma^2 S^2). Or else std.
      std: sigma S itself.
      positions: where to give the variance of the real-noise version; index of each axis. By default the first two on the diagonal.
      signal: a real signal, row by row, whose kept part to give; prod N numbers, at most 4096.
      power_spectrum: instead of a signal, |rfftn|^2 of it under the unitary transform: prod N[:-1] * (N[-1] // 2 + 1) numbers, row by row.
      support: with signal: how many leading entries of each axis the kernel really has (the rest is padding that is cropped away).
      epsilons, deltas: the points at which to give the consequences of each mu.
    """

    model_config = example({"shape": [16], "kept": [4], "clip": 1.0, "noise_multiplier": 1.0, "epsilons": [1.0], "deltas": [1e-5]})

    shape: AxisNumbers
    kept: AxisNumbers | None = None
    filtering_ratio: Ratios | None = None
    rounding: Rounding | None = None
    clip: Positive
    noise_multiplier: Positive | None = None
    std: Positive | None = None
    positions: Annotated[tuple[Position, ...], Field(max_length=MOST_POSITIONS)] = ()
    signal: Annotated[tuple[Coordinate, ...], Field(min_length=1, max_length=LONGEST_SIGNAL)] | None = None
    power_spectrum: Annotated[tuple[Power, ...], Field(min_length=1, max_length=LONGEST_SIGNAL)] | None = None
    support: AxisNumbers | None = None
    epsilons: Annotated[tuple[NonNegative, ...], Field(max_length=MOST_POINTS)] = ()
    deltas: Annotated[tuple[OpenProbability, ...], Field(max_length=MOST_POINTS)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.kept is None) == (self.filtering_ratio is None):
            raise InvalidParameter("kept", "given, or filtering_ratio instead", "neither" if self.kept is None else "both")
        if (self.rounding is None) != (self.filtering_ratio is None):
            raise InvalidParameter("rounding", "given with filtering_ratio, and only then", self.rounding)
        if (self.noise_multiplier is None) == (self.std is None):
            got = "neither" if self.std is None else "both"
            raise InvalidParameter("noise_multiplier", "given, or std instead", got)
        low_pass = self.low_pass  # refuses K above N and axes that don't match
        for position in self.positions:
            if len(position) != len(self.shape) or any(i >= n for i, n in zip(position, self.shape, strict=True)):
                raise InvalidParameter("positions", f"inside shape {list(self.shape)}", list(position))
        self._check_signal(low_pass)
        return self

    def _check_signal(self, low_pass: LowPass) -> None:
        if self.signal is not None and self.power_spectrum is not None:
            raise InvalidParameter("power_spectrum", "absent where signal is given", "both")
        if self.signal is not None and len(self.signal) != low_pass.dimensions:
            raise InvalidParameter("signal", f"{low_pass.dimensions} numbers, one for each position", len(self.signal))
        if self.power_spectrum is not None and len(self.power_spectrum) != low_pass.half_spectrum_bins:
            expected = f"{low_pass.half_spectrum_bins} numbers, one for each bin of the half spectrum"
            raise InvalidParameter("power_spectrum", expected, len(self.power_spectrum))
        if self.support is None:
            return
        if self.signal is None:
            raise InvalidParameter("support", "given with signal only", list(self.support))
        if len(self.support) != len(self.shape) or any(i > n for i, n in zip(self.support, self.shape, strict=True)):
            raise InvalidParameter("support", f"inside shape {list(self.shape)}", list(self.support))

    @property
    def low_pass(self) -> LowPass:
        """The filter; K is computed if a ratio was given."""
        if self.kept is not None:
            return LowPass(self.shape, self.kept)
        assert self.filtering_ratio is not None  # checked at construction
        assert self.rounding is not None
        if len(self.filtering_ratio) != len(self.shape):
            raise InvalidParameter("filtering_ratio", f"one number for each axis of shape {list(self.shape)}", list(self.filtering_ratio))
        pairs = zip(self.shape, self.filtering_ratio, strict=True)
        return LowPass(self.shape, tuple(kept_for_ratio(length, ratio, self.rounding) for length, ratio in pairs))

    def norms_under(self, low_pass: LowPass) -> SignalNorms | None:
        """Norms of the request's signal, if any; this needs a transform, so call it once."""
        if self.signal is not None:
            return SignalNorms.of_signal(low_pass, self.signal)
        return None if self.power_spectrum is None else SignalNorms.of_power(low_pass, self.power_spectrum)

    @property
    def sigma(self) -> float:
        """The noise multiplier."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.std is not None  # checked at construction
        return self.std / self.clip

    @property
    def noise_std(self) -> float:
        """sigma S."""
        return self.std if self.std is not None else self.sigma * self.clip

    @property
    def chosen_positions(self) -> tuple[tuple[int, ...], ...]:
        """The requested positions, or else the first one or two on the diagonal."""
        if self.positions:
            return self.positions
        zero = tuple(0 for _ in self.shape)
        one = tuple(1 % length for length in self.shape)
        return (zero,) if one == zero else (zero, one)
