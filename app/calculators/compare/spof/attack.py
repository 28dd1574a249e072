r"""Recovering a record from one update of Algorithm 1 (S14, S15, S31): whatever the noise, the gradients carry the record itself.

``mechanisms.analysis.record_recovery`` explains how.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.spof.setting import PAPER
from zetadp.mechanisms import NumpySource, Step
from zetadp.mechanisms.analysis.cross_entropy import sigmoid
from zetadp.mechanisms.analysis.record_recovery import distance_from_rank_one, recovered
from zetadp.mechanisms.published import spof as published

Floats = NDArray[np.float64]

FEATURES, UNITS = 14, 7
"""The paper's sizes."""
SEED = 14

ALGORITHM_EPSILON = math.inf
"""The epsilon of Algorithms 1 and 2 as a whole: each update is a function of the record that no noise in g hides."""


@final
@dataclass(frozen=True)
class Recovery:
    """The attack's accuracy: largest errors of features and of code entries, and dL~/dW's relative distance from rank one."""

    features: float
    code: float
    rank_one: float


@functools.cache
def _setting() -> tuple[Floats, Floats, Floats]:
    """A synthetic record, an encoder and a decoder of the paper's sizes."""
    source = NumpySource.from_seed(SEED)
    x = _sigmoid(source.standard_normal((FEATURES,)))
    return x, source.standard_normal((FEATURES, UNITS)) / 4.0, source.standard_normal((UNITS, FEATURES))


def _sigmoid(z: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-z))


@functools.lru_cache(maxsize=64)
def attack(epsilon: float, c: float) -> Recovery:
    """Recovers the synthetic record from one update with Algorithm 1's noise for this epsilon and c >= 0."""
    x, encoder, decoder = _setting()
    scale = published.algorithm_1_scale(FEATURES, c, epsilon)
    source = NumpySource.from_seed(SEED + 1)
    noise = source.standard_laplace((FEATURES,)) * scale, source.standard_laplace((FEATURES,)) * scale
    return _judged(published.algorithm_1_gradients(x, encoder, decoder, c, noise), decoder + c)


@functools.lru_cache(maxsize=64)
def attack_on_dp_sgd(epsilon: float, a: float, bound: float) -> Recovery:
    """The same with Algorithm 2's noise."""
    x, encoder, decoder = _setting()
    norm = float(np.linalg.norm(sigmoid(a) - x))
    scale = published.gradient_sensitivity(FEATURES, a, bound, norm) / epsilon
    noise = NumpySource.from_seed(SEED + 1).standard_laplace((FEATURES,)) * scale
    return _judged(published.algorithm_2_gradients(x, encoder, decoder, a, bound, noise), decoder)


def _judged(gradients: tuple[Floats, Floats], decoder: Floats) -> Recovery:
    x, encoder, _ = _setting()
    found, code = recovered(*gradients, decoder)
    return Recovery(
        features=float(np.max(np.abs(found - x))),
        code=float(np.max(np.abs(code - _sigmoid(encoder.T @ x)))),
        rank_one=distance_from_rank_one(gradients[0]),
    )


def findings(epsilon: float, c: float) -> tuple[Finding, Finding]:
    """S14 and S15: what the whole algorithm guarantees, and what the decoder receives."""
    seen = attack(epsilon, max(c, 0.0))
    algorithm = finding(
        "pure epsilon of Algorithm 1 as a whole, from its updates",
        PAPER,
        "Algorithm 1, step 6, and Section V: learned solely by minimizing the perturbed loss",
        printed=epsilon,
        printed_formula="epsilon",
        proven=ALGORITHM_EPSILON,
        proven_formula="infinite: z is computed from the raw record, so each gradient is a multiple of it, and noise only scales it",
        stronger="smaller",
        erratum="S14",
        note="No noise in the coefficients helps. Feed the encoder the noisy record, or clip and noise the gradients of all parameters.",
        counterexample=counterexample(seen, epsilon),
    )
    code = finding(
        "pure epsilon against the decoder, which receives the codes",
        PAPER,
        "Section VIII and Fig. 1",
        printed=epsilon,
        printed_formula="epsilon",
        proven=math.inf,
        proven_formula="infinite: h_j = sigmoid(W_j^T x_j) is a function of the record without noise",
        stronger="smaller",
        erratum="S15",
        note="A deterministic function of the record protects nothing against its receiver.",
        counterexample=Counterexample(
            description="The same synthetic record and one with its first feature 0.01 larger: the codes differ, each with certainty.",
            steps=(
                Step(symbol="largest difference of codes", value=_code_difference(), formula="max |h(x) - h(x')|", source="Section III"),
                Step(symbol="delta at any epsilon", value=1.0, formula="P[h(x)] - e^epsilon P'[h(x)] = 1 - 0", source="two point masses"),
            ),
        ),
    )
    return algorithm, code


def counterexample(seen: Recovery, epsilon: float) -> Counterexample:
    """What the attack recovered from one update."""
    how = f"synthetic record, n = {FEATURES}, l = {UNITS}, noise for epsilon = {epsilon!r}"
    return Counterexample(
        description="One update and the public decoder weights, without knowing the noise: x and h(x) follow from the two gradients.",
        steps=(
            Step(
                symbol="second / first singular value",
                value=seen.rank_one,
                formula="of dL~/dW = x v^T: rank one, its column is x",
                source=how,
            ),
            Step(symbol="largest error of h", value=seen.code, formula="dL~/dW-hat = h g^T, and v = h (1 - h) (W-hat g)", source=how),
            Step(symbol="largest error of x", value=seen.features, formula="x = (dL~/dW) v / ||v||^2", source=how),
        ),
    )


@functools.cache
def _code_difference() -> float:
    x, encoder, _ = _setting()
    other = x + 0.01 * (np.arange(FEATURES) == 0)
    return float(np.max(np.abs(_sigmoid(encoder.T @ x) - _sigmoid(encoder.T @ other))))
