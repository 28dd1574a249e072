r"""SPOF, the stabilised perturbed loss function: every printed figure next to the proven one, and the sound release."""

from __future__ import annotations

from typing import final

from fastapi import APIRouter

from zetadp.app.calculators.compare.finding import Finding
from zetadp.app.calculators.compare.spof import attack as spof_attack
from zetadp.app.calculators.compare.spof import expansion_point as spof_expansion_point
from zetadp.app.calculators.compare.spof import loss as spof_loss
from zetadp.app.calculators.compare.spof import noise as spof_noise
from zetadp.app.calculators.compare.spof import stabilised as spof_stabilised
from zetadp.app.calculators.compare.spof.setting import SpofComparison
from zetadp.app.calculators.proofs import path_of
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.cross_entropy import (
    Expansion,
    coefficient_l1,
    coefficient_l1_with_constant,
    sigmoid,
    sigmoid_slope,
    taylor_l1_with_constant,
)
from zetadp.mechanisms.base import Extended, Value
from zetadp.mechanisms.local import multiple_up
from zetadp.mechanisms.spof_coefficients import SpofCoefficients


@final
class LossCoefficients(Value):
    """The correct second-order loss of one feature at z + c: (public_constant - c x) + (public_linear - x) z + quadratic z^2."""

    public_constant: float
    public_linear: float
    quadratic: float


@final
class CoefficientSensitivities(Value):
    """l1 sensitivities of the right loss's coefficients, replacing one record: each is attained by (0, ..., 0) and (1, ..., 1).

    Attributes:
      of_z: of all coefficients of z and z^2; all that a gradient sees.
      with_constant_in_powers_of_z: with the constants, n (1 + |c|).
      with_constant_in_taylor_powers: the same in powers of z + c - a, n (1 + |a|).
      with_constant_in_powers_of_shifted_z: the same in powers of z + c: n.
    """

    of_z: float
    with_constant_in_powers_of_z: float
    with_constant_in_taylor_powers: float
    with_constant_in_powers_of_shifted_z: float


@final
class SpofAnswer(Value):
    """What holds, then what the paper prints for the same numbers.

    Attributes:
      loss, l1: the correct expansion and its sensitivities.
      mechanism: the sound release for the requested epsilon, one release per row; ``POST /v1/profiles`` takes it.
      epsilon: its pure epsilon for a row, over any number of epochs.
      user_epsilon: the same for a user with rows_per_user rows.
      algorithm_epsilon: the paper's Algorithm 1 as a whole.
    """

    loss: LossCoefficients
    l1: CoefficientSensitivities
    mechanism: SpofCoefficients
    epsilon: Extended
    user_epsilon: Extended
    algorithm_epsilon: Extended
    derivation: tuple[Step, ...]
    proof: str
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/spof", summary="Compare SPOF's printed sensitivities and epsilons with what is proved")
def compare_spof(request: SpofComparison) -> SpofAnswer:
    """The correct expansion at any point, its sensitivities, the sound release, and every printed figure next to the proven one.

    Epsilons are pure ones. For one at a delta over many releases send a repeated release of ``mechanism`` to ``POST /v1/profiles``.
    """
    n, a, c = request.dimension, request.expansion_point, request.stabilisation
    mechanism = SpofCoefficients.for_epsilon(n, a, c, request.epsilon, "record")
    epsilon = mechanism.privacy_loss().epsilon
    expansion = Expansion(a, c)
    fatal = spof_attack.findings(request.epsilon, c)
    return SpofAnswer(
        loss=LossCoefficients(
            public_constant=expansion.public_constant, public_linear=expansion.public_linear, quadratic=expansion.quadratic
        ),
        l1=CoefficientSensitivities(
            of_z=coefficient_l1(n),
            with_constant_in_powers_of_z=coefficient_l1_with_constant(n, c),
            with_constant_in_taylor_powers=taylor_l1_with_constant(n, a),
            with_constant_in_powers_of_shifted_z=coefficient_l1(n),
        ),
        mechanism=mechanism,
        epsilon=epsilon,
        user_epsilon=multiple_up(request.rows_per_user, epsilon),
        algorithm_epsilon=spof_attack.ALGORITHM_EPSILON,
        derivation=(
            Step(symbol="s", value=sigmoid(a), formula="1 / (1 + e^-a)", source="expansion_point a"),
            Step(symbol="v", value=sigmoid_slope(a), formula="s (1 - s)", source="proofs/cross_entropy.md"),
            Step(symbol="public_linear", value=expansion.public_linear, formula="s + v (c - a)", source="proofs/cross_entropy.md"),
            Step(symbol="quadratic", value=expansion.quadratic, formula="v / 2", source="proofs/cross_entropy.md"),
            *mechanism.derivation(),
        ),
        proof=path_of(SpofCoefficients.FACTS.proof),
        published=(
            *fatal,
            *spof_loss.findings(request),
            *spof_stabilised.findings(request),
            *spof_expansion_point.findings(request),
            *spof_noise.findings(request),
        ),
    )
