r"""Correlated noise on a sequence of sums: matrix mechanisms with a Toeplitz strategy: banded matrices, their inverses and BLTs."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import LARGEST_SCALE, SMALLEST_SCALE, Adjacency, Assumption, Facts, Number, Positive, Step, Value, is_absent
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.loss import GaussianLoss

LARGEST_STEPS = 10**6

Column: TypeAlias = NDArray[np.float64]

_ROUNDING = 1e-12
"""Relative allowance for positive sums of 20 buffers, of at most 40 windows and, by NumPy in pairs of pairs, of 10^6 squares: a few hundred
units of 1.1e-16."""

_BAND_ROUNDING = 1e-15
"""The same for bands, whose squares are added up without rounding: the roundings of squares, of a root and of a quotient."""

Share = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=0.0, le=1.0)]
Whole = Annotated[int, Strict(), Field(ge=1, le=LARGEST_STEPS)]


@final
class Buffer(Value):
    """One buffer of a BLT: it adds weight decay^{t - 1} to the coefficient of every lag t >= 1.

    Attributes:
      weight, decay: in [0, 1].
    """

    weight: Share
    decay: Share


@final
class CorrelatedNoise(Declared):
    r"""n noisy sums C x + z: z independent normal noise, C lower triangular and the same along its diagonals. Adaptive, as in training.

    One unit takes part in at most ``max_participations`` steps, any two of them at least ``min_separation`` apart, and its presence moves
    nobody else to another step. What is released, such as sums with noise that the inverse of C correlates, is a function of C x + z.

    With a band of at most ``min_separation`` coefficients these steps may be turns, which are public: in a sampling of this release the
    unit takes part in each of them by a coin of its own (``poisson_sampled``), or in those that were drawn (``randomly_allocated``).

    Attributes:
      std: of z, in units of a step's sum; > 0.
      l2: how far one unit moves one step's sum at most; under replace_one by two units' contributions.
      steps: n, 1 to 10^6.
      coefficients: c_0, c_1, ... down the first column of C; what is beyond them is 0, or the buffers'. At most 10000.
      buffers: of a BLT, at most 20: then coefficients is c_0 alone.
      inverse_coefficients: w_1, w_2, ... of a banded inverse, in [0, 1], at most 256: C is c_0 times the inverse of the matrix with 1 on
        its diagonal and -w_j on the j-th one below. Then coefficients is c_0 alone.
      min_separation: b >= 1; 1 allows every step.
      max_participations: k >= 1.
    Raises:
      ValidationError: neither is the band at most b long, nor do the coefficients fall from c_0 to 0 without rising: for others the exact
        sensitivity isn't known here.
    Sources: Denisov, McMahan, Rush, Smith and Thakurta 2022; Choquette-Choo, Dvijotham, Pillutla, Ganesh, Steinke and Thakurta 2023;
    Kalinin and Lampert 2024; Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024; Kalinin, McKenna, Upadhyay and Lampert 2025. Proof:
    proofs/declared.md; of its samples accountants/proofs/correlated.md.

    >>> who = {"adjacency": "zero_out", "unit": "record"}
    >>> banded = CorrelatedNoise(std=2.0, l2=1.0, steps=8, coefficients=(1.0, 0.5), min_separation=2, max_participations=4, **who)
    >>> round(banded.matrix_sensitivity, 6)
    2.236068
    """

    FACTS: ClassVar[Facts] = Facts(
        summary=(
            "Noise correlated along a sequence of sums: banded Toeplitz matrices, amplified by samples of a unit's turns, their inverses "
            "and BLTs, without amplification."
        ),
        assumptions=(Assumption.AS_DECLARED, Assumption.INDEPENDENT_NOISE),
        sources=(
            "Denisov et al. 2022, arXiv:2202.08312, Theorem 2.1",
            "Choquette-Choo et al. 2023, arXiv:2306.08153",
            "Kalinin and Lampert 2024, arXiv:2405.13763",
            "Dvijotham et al. 2024, arXiv:2404.16706",
            "Kalinin et al. 2025, arXiv:2505.12128",
        ),
        errata=(),
        proof="declared.md",
    )

    CAN_BE_SAMPLED: ClassVar[bool] = True

    kind: Literal["correlated_noise"] = "correlated_noise"
    std: Positive
    l2: Positive
    steps: Whole
    coefficients: Annotated[tuple[Number, ...], Field(min_length=1, max_length=10_000)]
    buffers: Annotated[tuple[Buffer, ...], Field(max_length=20)] = Field(default=(), exclude_if=is_absent)
    inverse_coefficients: Annotated[tuple[Share, ...], Field(max_length=256)] = Field(default=(), exclude_if=is_absent)
    min_separation: Whole
    max_participations: Whole

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.buffers and self.inverse_coefficients:
            raise InvalidParameter("inverse_coefficients", "absent where buffers are given", len(self.inverse_coefficients))
        if (self.buffers or self.inverse_coefficients) and len(self.coefficients) > 1:
            name = "buffers" if self.buffers else "inverse_coefficients"
            raise InvalidParameter("coefficients", f"c_0 alone where {name} are given", len(self.coefficients))
        first = next(iter(self.coefficients))
        if not SMALLEST_SCALE <= abs(first) <= LARGEST_SCALE:
            raise InvalidParameter("coefficients", "with c_0 other than 0: every step needs noise", first)
        if not (self.is_banded or self._falls):
            raise self._rising()
        return self

    def _rising(self) -> InvalidParameter:
        """Names what was given."""
        if self.inverse_coefficients:
            expected = f"such that no entry of C's first column, of {self.steps}, is above an earlier one, with c_0 > 0"
            return InvalidParameter("inverse_coefficients", expected, list(self.inverse_coefficients))
        if self.buffers:
            given = [one.weight for one in self.buffers]
            return InvalidParameter(
                "buffers", f"of weights that add up to at most c_0 = {next(iter(self.coefficients))}, and that > 0", given
            )
        expected = f"at most min_separation = {self.min_separation} of them, or from c_0 > 0 on never rising and never below 0"
        return InvalidParameter("coefficients", expected, f"{len(self.coefficients)} of them")

    @classmethod
    def example(cls) -> Self:
        return cls(
            std=4.0,
            l2=1.0,
            steps=100,
            coefficients=(1.0, 0.5, 0.375),
            min_separation=10,
            max_participations=10,
            adjacency=Adjacency.ZERO_OUT,
            unit="record",
        )

    @property
    def is_banded(self) -> bool:
        """Whether columns of C that are ``min_separation`` apart have no row in common."""
        return not self.buffers and not self.inverse_coefficients and len(self.coefficients) <= self.min_separation

    @property
    def _falls(self) -> bool:
        column = self._column
        return bool(column[-1] >= 0.0) and bool(np.all(np.diff(column) <= 0.0))

    @property
    def _column(self) -> Column:
        """The first column of C, of shape (steps,); of a banded inverse an upper bound on the computed one, which never rises."""
        if self.inverse_coefficients:
            return next(iter(self.coefficients)) * _falling_bound(inverse_column(self.inverse_coefficients, self.steps))
        column = np.zeros(self.steps)
        given = self.coefficients[: self.steps]
        column[: len(given)] = given
        lags = np.arange(self.steps - 1, dtype=np.float64)
        for buffer in self.buffers:
            column[1:] += buffer.weight * np.power(buffer.decay, lags)
        return column

    @property
    def most_turns(self) -> int:
        """The most steps of one unit that there is room for."""
        return min(self.max_participations, -(-self.steps // self.min_separation))

    @property
    def turns(self) -> tuple[tuple[Self, int], ...]:
        """Of a band: (one turn as a release by itself, how many there are), of a unit with the most turns, in order.

        Only the last one's column may end before its band does, where it has as many rows as there are after the others.
        """
        rows = self.steps - (self.most_turns - 1) * self.min_separation
        whole, last = self._with(max_participations=1), self._with(max_participations=1, coefficients=self.coefficients[:rows])
        if whole == last:
            return ((whole, self.most_turns),)
        return tuple((turn, count) for turn, count in ((whole, self.most_turns - 1), (last, 1)) if count)

    def starting(self, step: int) -> Self | None:
        """The same for a unit whose first possible step is this one, counted from 0; None where there is none such."""
        return self._with(steps=self.steps - step) if step < self.steps else None

    @cached_property
    def matrix_sensitivity(self) -> float:
        """The largest l2 norm of C u over participation patterns u with entries of at most 1, rounded up."""
        if self.is_banded:
            # Columns that are b apart have nothing in common; the last one has the rows that are left.
            rows = self.steps - (self.most_turns - 1) * self.min_separation
            squares = [float(c) ** 2 for c in self.coefficients]
            return math.sqrt((self.most_turns - 1) * math.fsum(squares) + math.fsum(squares[:rows])) * (1.0 + _BAND_ROUNDING)
        square = float(np.sum(_added(self._column, self.min_separation, self.most_turns) ** 2))
        return math.sqrt(square) * (1.0 + _ROUNDING) * (1.0 + self._column_rounding)

    @property
    def _column_rounding(self) -> float:
        """How much of the sensitivity the rounding of a banded inverse's column may be: proofs/declared.md, by Young's inequality."""
        if not self.inverse_coefficients:
            return 0.0
        total = float(np.sum(self._column)) / next(iter(self.coefficients))
        return (len(self.inverse_coefficients) + 2) * total * 2.0**-52

    @property
    def noise_scale(self) -> float:
        return self.std

    def privacy_loss(self) -> GaussianLoss:
        rounding = _BAND_ROUNDING if self.is_banded else _ROUNDING
        return GaussianLoss(self.l2 * self.matrix_sensitivity / self.std * (1.0 + rounding))

    def scaled(self, factor: float) -> Self:
        return self._with_scales(factor, "std")

    def _with(self, **changed: int | tuple[float, ...]) -> Self:
        """The same but for these fields."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate(fields | changed)

    def derivation(self) -> tuple[Step, ...]:
        band, falling = "l2 norm of k columns, which have nothing in common", "l2 norm of C's columns 0, b, 2 b, ..., added"
        rule = band if self.is_banded else falling
        return (
            Step(symbol="l2", value=self.l2, formula="given", source="how far one unit moves one step's sum"),
            Step(symbol="std", value=self.std, formula="given", source="of the noise before it is correlated"),
            Step(
                symbol="k",
                value=float(self.max_participations),
                formula="steps of a unit counted together, at most",
                source="max_participations",
            ),
            Step(symbol="b", value=float(self.min_separation), formula="given", source="min_separation"),
            Step(symbol="sens(C)", value=self.matrix_sensitivity, formula=rule, source="proofs/declared.md"),
            Step(symbol="mu", value=self.privacy_loss().mu, formula="l2 sens(C) / std", source="Denisov et al. 2022, Theorem 2.1"),
        )


def inverse_column(coefficients: tuple[float, ...], steps: int) -> Column:
    r"""The first column of the inverse of a banded matrix, (steps,): u_0 = 1, u_t = w_1 u_{t-1} + w_2 u_{t-2} + ...

    >>> inverse_column((0.5, 0.125), 4).tolist()
    [1.0, 0.5, 0.375, 0.25]
    """
    from scipy.signal import lfilter  # takes a while to load, and most questions don't need it

    pulse = np.zeros(steps)
    pulse[0] = 1.0
    return np.asarray(lfilter([1.0], [1.0, *(-one for one in coefficients)], pulse), dtype=np.float64)


def never_rises(column: Column) -> bool:
    """Whether no entry is above an earlier one by more than rounding."""
    return bool(np.all(_highest_from(column) <= column * (1.0 + 1e-9) + 1e-300))


def _falling_bound(column: Column) -> Column:
    """The least column above this one that never rises, if they are alike but for rounding; otherwise the column itself."""
    return _highest_from(column) if never_rises(column) else column


def _highest_from(column: Column) -> Column:
    return np.maximum.accumulate(column[::-1])[::-1]


def _added(column: Column, separation: int, number: int) -> Column:
    """The sum of ``number`` copies of the column, each moved down by ``separation`` more than the one before; by windows of 1, 2, 4, ..."""
    total, window, length, done = np.zeros_like(column), column, 1, 0
    while number:
        if number & 1:
            total = total + _moved(window, done * separation)
            done += length
        number >>= 1
        if number:
            window = window + _moved(window, length * separation)
            length *= 2
    return total


def _moved(column: Column, by: int) -> Column:
    moved = np.zeros_like(column)
    if by < len(column):
        moved[by:] = column[: len(column) - by]
    return moved
