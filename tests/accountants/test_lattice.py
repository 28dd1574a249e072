"""Compositions of Laplace releases against reference values and exact sums."""

from __future__ import annotations

import math

import mpmath
import pytest

from tests.accountants.events import gaussian, laplace
from zetadp.accountants import Composed, PoissonSampled, Repeated
from zetadp.accountants.routes.lattice.lattice import LatticeAccountant, shared_divisor

LATTICE = LatticeAccountant()


def width(bound):
    return (bound.upper - bound.lower) / bound.upper


def test_reference_value_of_a_thousand_releases():
    bound = LATTICE.profile(Repeated(count=1000, event=laplace(100.0))).epsilon(1e-6)
    assert bound.lower <= 1.3629247
    assert bound.upper >= 1.3629245
    assert width(bound) <= 1e-6


@pytest.mark.digits(30)
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 1.7, 1.99])
def test_two_releases_against_an_exact_integral(epsilon):
    """E[(1 - e^{eps - L_1 - L_2})_+] with the inner expectation in closed form and the outer one by quadrature."""

    def one(left):
        if left >= 1:
            return mpmath.mpf(0)
        return 1 - mpmath.exp((left - 1) / 2) if left >= -1 else 1 - mpmath.exp(left)

    e = mpmath.mpf(epsilon)
    atoms = one(e - 1) / 2 + mpmath.exp(-1) / 2 * one(e + 1)
    inner = mpmath.quad(lambda loss: mpmath.exp((loss - 1) / 2) / 4 * one(e - loss), [-1, max(e - 1, -1), 1])
    exact = atoms + inner
    bound = LATTICE.profile(Repeated(count=2, event=laplace(1.0))).delta(epsilon)
    assert bound.log_lower <= mpmath.log(exact) <= bound.log_upper
    assert bound.log_upper - bound.log_lower <= 1e-3


@pytest.mark.parametrize("count", [1, 3, 12])
def test_largest_loss_is_all_atoms(count):
    """Just below T times the loss, delta is 2^-T (1 - e^{eps - T}) and what the last stretch of the density adds."""
    gap = 1e-6
    bound = LATTICE.profile(Repeated(count=count, event=laplace(1.0))).delta(count - gap)
    exact = -count * math.log(2.0) + math.log(-math.expm1(-gap))
    assert bound.log_upper >= exact
    assert bound.log_lower <= exact + count * gap


def test_delta_beyond_the_largest_loss_has_no_lower_bound_and_a_tiny_upper_one():
    bound = LATTICE.profile(Repeated(count=3, event=laplace(1.0))).delta(3.5)
    assert bound.log_lower == -math.inf


def test_distinct_losses_with_a_common_divisor_share_a_lattice():
    event = Composed(events=(Repeated(count=50, event=laplace(10.0)), Repeated(count=20, event=laplace(5.0))))
    bound = LATTICE.profile(event).epsilon(1e-6)
    assert width(bound) <= 1e-6


def test_splitting_a_repetition_changes_nothing():
    whole = LATTICE.profile(Repeated(count=40, event=laplace(4.0))).epsilon(1e-8)
    parts = LATTICE.profile(Composed(events=(Repeated(count=15, event=laplace(4.0)), Repeated(count=25, event=laplace(4.0))))).epsilon(1e-8)
    assert whole == parts


def test_divisor_of_incommensurable_losses_is_none():
    assert shared_divisor((1.0, 2.0**0.5)) is None
    assert shared_divisor((0.3, 0.2, 0.1)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (gaussian(1.0), "only whole Laplace"),
        (PoissonSampled(probability=0.1, event=laplace(1.0)), "only whole Laplace"),
        (Composed(events=(laplace(1.0), laplace(2.0**0.5))), "no common divisor"),
    ],
)
def test_refusal_says_why(event, reason):
    assert reason in (LATTICE.unsupported(event) or "")
