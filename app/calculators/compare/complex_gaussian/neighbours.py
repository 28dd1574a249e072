r"""Findings on whom a release protects: a record that is replaced instead of added (errata C9), a person of many records (C10)."""

from __future__ import annotations

import math
from functools import cache

from zetadp.accountants.routes.closed.gdp_inversion import epsilon_upper_at, largest_mu
from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given, raised, step
from zetadp.mechanisms import Adjacency, ComplexGaussian, Sensitivity
from zetadp.mechanisms.base import LARGEST_SCALE
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.published import complex_dp_federated


def replacing(stated: Sensitivity) -> Sensitivity:
    r"""The sensitivity under replacing a unit, of a query that moves by at most ``stated`` when one is added or removed.

    One unit is removed and another added: each bound doubles, and a unit that reverses its contribution attains all of them. Errata C9.

    Raises:
      InvalidParameter: stated for other neighbours, or doubled beyond the largest scale.
    """
    if stated.adjacency is not Adjacency.ADD_REMOVE or stated.l2 is None:
        raise InvalidParameter("sensitivity.adjacency", "add_remove where it is to be read as replace_one", stated.adjacency.value)
    if 2.0 * stated.l2 > LARGEST_SCALE:
        raise InvalidParameter("sensitivity.l2", f"at most {0.5 * LARGEST_SCALE!r}, to be doubled", stated.l2)
    return Sensitivity(
        l2=2.0 * stated.l2,
        l2_real=None if stated.l2_real is None else 2.0 * stated.l2_real,
        l2_imag=None if stated.l2_imag is None else 2.0 * stated.l2_imag,
        l2_contribution=stated.l2,
        adjacency=Adjacency.REPLACE_ONE,
        unit=stated.unit,
    )


def with_sensitivity(mechanism: ComplexGaussian, sensitivity: Sensitivity) -> ComplexGaussian:
    """The same noise on a query of another sensitivity."""
    if mechanism.std is not None:
        return ComplexGaussian(std=mechanism.std, correlation=mechanism.correlation, sensitivity=sensitivity)
    std_real, std_imag = mechanism.stds
    return ComplexGaussian(std_real=std_real, std_imag=std_imag, correlation=mechanism.correlation, sensitivity=sensitivity)


def findings(mechanism: ComplexGaussian, read: ComplexGaussian, group: int, points: Points) -> tuple[Finding, ...]:
    """What the paper's neighbours and patients get from noise for one added record.

    Args:
      mechanism: as stated.
      read: under the requested neighbours.
      group: how many units one person holds.
      points: where consequences are requested.
    """
    return _replaced(mechanism, points), _grouped(read, group, points)


def _replaced(mechanism: ComplexGaussian, points: Points) -> Finding:
    mu, stated = mechanism.privacy_loss().mu, mechanism.sensitivity
    covered = stated.adjacency is Adjacency.ADD_REMOVE
    printed = complex_dp_federated.replaced_mu(mu) if covered else None
    proven = raised(2.0 * mu) if covered else raised(mu)
    delta, epsilon = consequences(printed, proven, points)
    return finding(
        "mu of one release when a record is replaced",
        "complex_dp_federated",
        "Section 2 (neighbours by adding, removing or replacing) and Algorithm 1 (noise sigma B)",
        printed=printed,
        printed_formula="the mu of adding or removing a record",
        proven=proven,
        proven_formula="twice that: ||g - g'|| <= 2 B, attained at g' = -g" if covered else "the mu of the sensitivity as stated",
        stronger="smaller",
        erratum="C9",
        note="Noise calibrated to the clipping bound protects a record's presence; replacing it moves the sum twice as far."
        if covered
        else "The sensitivity isn't stated for adding or removing, so it isn't the paper's; the proved mu is for the neighbours it names.",
        derivation=(
            *mechanism.derivation(),
            step(
                "mu, replaced", proven, "2 mu, rounded up" if covered else "mu, rounded up", "triangle inequality; mu is linear in the move"
            ),
        ),
        counterexample=_replaced_example(),
        delta=delta,
        epsilon=epsilon,
    )


def _grouped(read: ComplexGaussian, group: int, points: Points) -> Finding:
    mu = read.privacy_loss().mu
    proven = raised(group * mu)
    printed = complex_dp_federated.per_patient_mu(mu)
    delta, epsilon = consequences(printed, proven, points)
    return finding(
        f"mu of one release for a person who holds {group} units",
        "complex_dp_federated",
        'Section 5: "all stated privacy guarantees are per-patient"',
        printed=printed,
        printed_formula="the mu of one unit",
        proven=proven,
        proven_formula="k mu",
        stronger="smaller",
        erratum="C10",
        note="Right only where the person is what is clipped and sampled (group 1). The paper makes 80 images of each patient.",
        derivation=(
            *read.derivation(),
            given("k", group, "group"),
            step("mu of the group", proven, "k mu, rounded up", "Dong, Roth and Su 2022, Theorem 2.14: k steps of mu each"),
        ),
        counterexample=_patient_example(),
        delta=delta,
        epsilon=epsilon,
    )


# Its figures need scipy, which isn't loaded when the service starts.
@cache
def _replaced_example() -> Counterexample:
    mu, delta = 0.5, 1e-3
    return Counterexample(
        description="One step, noise multiplier 2, delta = 0.001; a record with gradient B u is replaced by one with -B u.",
        steps=(
            step("mu, added", mu, "1 / sigma", "Algorithm 1"),
            step("epsilon, added", epsilon_upper_at(mu, math.log(delta)), "delta_G(mu, epsilon) = delta", "closed form"),
            step("mu, replaced", 2.0 * mu, "2 / sigma", "||B u - (-B u)|| = 2 B"),
            step("epsilon, replaced", epsilon_upper_at(2.0 * mu, math.log(delta)), "delta_G(2 mu, epsilon) = delta", "closed form"),
        ),
    )


@cache
def _patient_example() -> Counterexample:
    images, delta = 80, 1e-3
    mu = largest_mu(1.0, math.log(delta))
    return Counterexample(
        description="Images are clipped and sampled, (1, 0.001) each; 38720 images of 484 patients are 80 a patient.",
        steps=(
            step("mu, image", mu, "delta_G(mu, 1) = 0.001", "closed form"),
            step("mu, patient", images * mu, "80 mu", "groups"),
            step("epsilon, patient", epsilon_upper_at(images * mu, math.log(delta)), "delta_G(80 mu, epsilon) = 0.001", "closed form"),
        ),
    )
