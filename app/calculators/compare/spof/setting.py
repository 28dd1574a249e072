r"""The request of a comparison with the SPOF paper: its dimension, expansion point, constant, epsilon and releases."""

from __future__ import annotations

from typing import Annotated, final

from pydantic import BeforeValidator, Field, Strict, WithJsonSchema

from zetadp.app.calculators.compare.finding import Paper
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Adjacency, Laplace, Sensitivity, Step
from zetadp.mechanisms.analysis.cross_entropy import LARGEST_POINT, sigmoid, sigmoid_slope
from zetadp.mechanisms.base import Count, Number, Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.local import Dimension, quotient_up
from zetadp.mechanisms.published import spof as published
from zetadp.mechanisms.spof_coefficients import ExpansionPoint

PAPER: Paper = "spof"
EXPANSION_PROOF = "proofs/cross_entropy.md"
NOT_AT_A = "The paper's noise is for a = 0: expanded elsewhere, its (22) to (33) say nothing."
NOT_FOR_NEGATIVE = "Proposition 3 takes c >= 0: (32) drops absolute values that a negative c needs."


def _a_public_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidParameter(
            "stabilisation",
            "a number that is fixed before the data is seen (one that depends on a record isn't private, errata S13)",
            value,
        )
    return value


PublicConstant = Annotated[
    float,
    Strict(),
    Field(allow_inf_nan=False, ge=-LARGEST_POINT, le=LARGEST_POINT),
    BeforeValidator(_a_public_number),
    WithJsonSchema({"type": "number", "minimum": -LARGEST_POINT, "maximum": LARGEST_POINT}),
]
"""A number that doesn't depend on the data; nothing else can be sent."""

EpsilonParameter = Annotated[Number, Field(ge=1e-20, le=1e20)]
"""The epsilon that a noise scale is computed from."""


@final
class SpofComparison(Value):
    r"""The numbers of one use of Algorithm 1.

    Attributes:
      dimension: n, features in a record, each in [0, 1].
      expansion_point: a; |a| <= 1e6. The paper's noise is for a = 0.
      stabilisation: c, a public constant; |c| <= 1e6. What the paper's c_j = sum_r c h_r(x) does instead is among the findings.
      epsilon: the epsilon given to Algorithm 1.
      hidden_units: l, entries of the code h(x) (and of the paper's vector c_j).
      releases: T, the number of times that Algorithm 1 draws noise for the same row: its passes over the data.
      rows_per_user: k, rows of the table that belong to one user.
      users: m.
    """

    model_config = example(
        {
            "dimension": 14,
            "expansion_point": 0.0,
            "stabilisation": 2.5,
            "epsilon": 1.0,
            "hidden_units": 7,
            "releases": 100,
            "rows_per_user": 1,
            "users": 2,
        }
    )

    dimension: Dimension
    expansion_point: ExpansionPoint
    stabilisation: PublicConstant
    epsilon: EpsilonParameter
    hidden_units: Count = 1
    releases: Count = 1
    rows_per_user: Count = 1
    users: Count = 1


def laplace_for(l1: float, epsilon: float) -> Laplace:
    """Laplace noise for this pure epsilon when a record is replaced, rounded toward more noise."""
    return Laplace(scale=quotient_up(l1, epsilon), sensitivity=Sensitivity(l1=l1, adjacency=Adjacency.REPLACE_ONE, unit="record"))


def at_point(a: float) -> tuple[Step, Step]:
    """The two numbers of an expansion point."""
    return (
        Step(symbol="s", value=sigmoid(a), formula="1 / (1 + e^-a)", source=f"a = {a!r}"),
        Step(symbol="v", value=sigmoid_slope(a), formula="s (1 - s)", source="second derivative of log(1 + e^z) at a"),
    )


def printed_pair(x: float, a: float) -> tuple[float, float]:
    """alpha_2 and alpha_3 of (11) and (12)."""
    return published.linear_coefficient(x, a), published.quadratic_coefficient(x, a)
