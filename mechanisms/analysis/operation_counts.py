r"""How many arithmetic operations perturbing one record costs: polynomial coefficients against clipped gradients, term by term.

The terms are those of the SPOF paper's Appendix G (errata S32: the arithmetic is right). A count says nothing about privacy, and about
running time only as much as the costs of single operations do.
"""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field, Strict

from zetadp.mechanisms.base import Value

Cost = Annotated[int, Strict(), Field(ge=0, le=10**6)]


@final
class OperationCosts(Value):
    """Macro operations per operation; the defaults are the paper's, for an AMD K7 processor.

    Attributes:
      addition, subtraction, multiplication, division, exponential: the paper uses a table look-up for exp, at no cost.
      gate: a logic gate; a stored noise value is read with two additions and a 2:1 multiplexer of four gates.
      square_root_steps: Newton-Raphson steps of one square root; each is an addition, a multiplication and a division.
      multiplications_per_square: 2 in the paper; a square is one multiplication, which would be 1.
    """

    addition: Cost = 1
    subtraction: Cost = 1
    multiplication: Cost = 3
    division: Cost = 32
    exponential: Cost = 0
    gate: Cost = 1
    square_root_steps: Cost = 7
    multiplications_per_square: Cost = 2

    @property
    def noise(self) -> int:
        """Reading one noise value: two additions, and one NOT, two AND and one OR gate. Appendix G: C_N = 6."""
        return 2 * self.addition + 4 * self.gate

    @property
    def gradient(self) -> int:
        """One component e^a / (1 + e^a) - x of the gradient. Appendix G: C = 34."""
        return self.addition + self.subtraction + self.division + self.exponential


@final
class Term(Value):
    """One line of an operation count."""

    what: str
    formula: str
    operations: int


def coefficient_perturbation(features: int, hidden_units: int, costs: OperationCosts) -> tuple[Term, ...]:
    """Steps 3 and 5 of SPOF's Algorithm 1 for one record: (19 + l) n at the paper's costs.

    >>> sum(term.operations for term in coefficient_perturbation(14, 7, OperationCosts()))
    364
    """
    n, units = features, hidden_units
    return (
        Term(what="adding noise to two coefficients of each feature", formula="2 n ADD", operations=2 * n * costs.addition),
        Term(what="reading two noise values for each feature", formula="2 n C_N", operations=2 * n * costs.noise),
        Term(what="a subtraction in each of the two coefficients", formula="2 n SUB", operations=2 * n * costs.subtraction),
        Term(what="a multiplication in the second coefficient", formula="n MUL", operations=n * costs.multiplication),
        Term(what="adding the stabilisation constant to the decoder's weights", formula="n l ADD", operations=n * units * costs.addition),
    )


def gradient_perturbation(features: int, costs: OperationCosts) -> tuple[Term, ...]:
    """Steps 4 and 6 of the paper's Algorithm 2 (clipping and noise) for one record: 80 n + 283 at the paper's costs.

    >>> sum(term.operations for term in gradient_perturbation(14, OperationCosts()))
    1403
    """
    n, squares = features, costs.multiplications_per_square
    root = costs.addition + costs.multiplication + costs.division
    return (
        Term(what="adding noise to each component", formula="n ADD", operations=n * costs.addition),
        Term(what="reading a noise value for each component", formula="n C_N", operations=n * costs.noise),
        Term(what="dividing the norm by C, and each component by the result", formula="(n + 1) DIV", operations=(n + 1) * costs.division),
        Term(what="summing the squares", formula="(n - 1) ADD", operations=(n - 1) * costs.addition),
        Term(what="squaring each component", formula=f"{squares} n MUL", operations=squares * n * costs.multiplication),
        Term(
            what="the square root of the sum",
            formula=f"{costs.square_root_steps} (ADD + MUL + DIV)",
            operations=costs.square_root_steps * root,
        ),
        Term(what="computing the components", formula="n (ADD + SUB + DIV + EXP)", operations=n * costs.gradient),
    )


def total(terms: tuple[Term, ...]) -> int:
    """Macro operations of all terms."""
    return sum(term.operations for term in terms)
