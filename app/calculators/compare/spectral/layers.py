r"""Findings on clipping layer by layer: the joint bound (P15), noise per layer, replacement (P8), and line 7 of Algorithm 4 (P10)."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, final

import numpy as np
from fastapi import APIRouter
from pydantic import Field

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given
from zetadp.app.calculators.compare.spectral.lines import PAPER, step
from zetadp.app.calculators.compare.spectral.request import MOST_POINTS
from zetadp.app.calculators.schemas import example
from zetadp.mechanisms import Step
from zetadp.mechanisms.analysis.spectral_noise import layers_gdp_mu, layers_l2
from zetadp.mechanisms.base import NonNegative, OpenProbability, Positive, Value
from zetadp.mechanisms.published import spectral_dp

MOST_LAYERS = 1000


@final
class LayersComparison(Value):
    r"""Algorithm 4's clipping and noise.

    Attributes:
      clips: C_l, the l2 norm that each layer of one record's gradient is clipped to.
      noise_multiplier: sigma; the noise has deviation sigma C on every coordinate, C = sqrt(sum C_l^2).
      epsilons, deltas: the points at which to give the consequences of each mu.
    """

    model_config = example({"clips": [0.1, 0.5, 2.0], "noise_multiplier": 1.0, "deltas": [1e-5]})

    clips: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MOST_LAYERS)]
    noise_multiplier: Positive
    epsilons: Annotated[tuple[NonNegative, ...], Field(max_length=MOST_POINTS)] = ()
    deltas: Annotated[tuple[OpenProbability, ...], Field(max_length=MOST_POINTS)] = ()


@final
class LayersAnswer(Value):
    r"""What holds for these layers, and the paper's statements.

    Attributes:
      sensitivity: C, of a sum of clipped terms when a record is added or removed.
      noise_std: sigma C, the deviation on every coordinate.
      gdp_mu: with that noise: 1 / sigma.
      gdp_mu_with_noise_per_layer: if layer l had noise sigma C_l instead: sqrt(L) / sigma.
      noise_std_per_layer: what each layer would need for the same mu if the noise should follow C_l: sqrt(L) sigma C_l; at most 16 shown.
    """

    sensitivity: float
    noise_std: float
    gdp_mu: float
    gdp_mu_with_noise_per_layer: float
    noise_std_per_layer: tuple[float, ...]
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/layers", summary="Compare Spectral-DP's clipping per layer with what is proved")
def compare_layers(request: LayersComparison) -> LayersAnswer:
    """The joint sensitivity of layers that are clipped separately, and what their noise protects."""
    clips, sigma = request.clips, request.noise_multiplier
    sensitivity = layers_l2(clips)
    return LayersAnswer(
        sensitivity=sensitivity,
        noise_std=sigma * sensitivity,
        gdp_mu=1.0 / sigma,
        gdp_mu_with_noise_per_layer=math.sqrt(len(clips)) / sigma,
        noise_std_per_layer=tuple(math.sqrt(len(clips)) * sigma * clip for clip in clips[:16]),
        published=(_sensitivity(request), _joint(request), _per_layer(request), *_line_7(request), _replacement(request)),
    )


def _bounds(request: LayersComparison) -> tuple[Step, ...]:
    return (
        step("L", float(len(request.clips)), "layers", "request"),
        given("C_1", request.clips[0]),
        step("C", layers_l2(request.clips), "sqrt(sum C_l^2)"),
    )


def _sensitivity(request: LayersComparison) -> Finding:
    return finding(
        "l2 sensitivity of a sum of records clipped layer by layer, one record added or removed",
        PAPER,
        "Algorithm 4, line 11",
        printed=spectral_dp.algorithm_4_sensitivity(request.clips),
        printed_formula="C = sqrt(sum C_l^2)",
        proven=layers_l2(request.clips),
        proven_formula="C = sqrt(sum C_l^2), attained",
        stronger="smaller",
        erratum="P15",
        note="A record's term ranges over a product of balls; its longest vector has every layer at its bound.",
        derivation=_bounds(request),
    )


def _mu(
    request: LayersComparison,
    quantity: str,
    where: str,
    formula: str,
    proven: float,
    erratum: str,
    note: str,
    printed: float | None,
    counterexample: Counterexample | None = None,
) -> Finding:
    delta, epsilon = ((), ()) if printed is None else consequences(printed, proven, Points(request.epsilons, request.deltas))
    return finding(
        quantity,
        PAPER,
        where,
        printed=printed,
        printed_formula="1 / sigma",
        proven=proven,
        proven_formula=formula,
        stronger="smaller",
        erratum=erratum,
        note=note,
        derivation=(*_bounds(request), given("sigma", request.noise_multiplier), step("mu", proven, formula)),
        counterexample=counterexample,
        delta=delta,
        epsilon=epsilon,
    )


def _joint(request: LayersComparison) -> Finding:
    return _mu(
        request,
        "mu of one step, noise sigma C on every coordinate",
        "Algorithm 4, line 11",
        "C / (sigma C) = 1 / sigma",
        1.0 / request.noise_multiplier,
        "P15",
        "Right, and tight.",
        spectral_dp.algorithm_1_gdp_mu(request.noise_multiplier),
    )


def _per_layer(request: LayersComparison) -> Finding:
    sigma = request.noise_multiplier
    return _mu(
        request,
        "mu of one step, noise sigma C_l on layer l",
        "Algorithm 4, line 11, if each layer's own bound stood in place of C (the paper has C)",
        "sqrt(sum (C_l / (sigma C_l))^2) = sqrt(L) / sigma",
        math.sqrt(len(request.clips)) / sigma,
        "P15",
        "Every layer alone has mu = 1 / sigma, and all are released: squares add. The paper doesn't print this; implementations do it.",
        None,
        _two_layers(),
    )


@cache
def _two_layers() -> Counterexample:
    return Counterexample(
        description="Two layers of one coordinate, C_1 = 1, C_2 = 10, sigma = 1; the record's term is (1, 10).",
        steps=(
            step("mu of noise (1, 10)", layers_gdp_mu((1.0, 10.0), (1.0, 10.0)), "sqrt((1 / 1)^2 + (10 / 10)^2)"),
            step("mu of noise sqrt(101) on both", layers_gdp_mu((1.0, 10.0), (math.sqrt(101.0),) * 2), "sqrt((1 + 100) / 101)"),
        ),
    )


def _line_7(request: LayersComparison) -> tuple[Finding, ...]:
    smallest, layers = min(request.clips), math.sqrt(len(request.clips))
    where = "Algorithm 4, line 7, read literally"
    note = (
        "The outer division by ||G|| undoes the clipping: a layer with 0 < ||G|| <= C_l comes out with norm 1, a longer one with "
        "C_l / ||G||, and a zero gradient as 0 / 0. Without it the line is ordinary clipping."
    )
    one = finding(
        "l2 sensitivity of the layer with the smallest bound",
        PAPER,
        where,
        printed=smallest,
        printed_formula="C_l",
        proven=1.0,
        proven_formula="1, which is 1 / C_l times as much",
        stronger="smaller",
        erratum="P10",
        note=note,
        derivation=(step("smallest C_l", smallest, "request", "request"), step("sensitivity", 1.0, "||G / ||G|||| for 0 < ||G|| <= C_l")),
        counterexample=_short_gradient(),
    )
    whole = finding(
        "l2 sensitivity of all layers together",
        PAPER,
        where,
        printed=spectral_dp.algorithm_4_sensitivity(request.clips),
        printed_formula="C = sqrt(sum C_l^2)",
        proven=layers,
        proven_formula="sqrt(L)",
        stronger="smaller",
        erratum="P10",
        note=note,
        derivation=(*_bounds(request), step("sensitivity", layers, "sqrt(sum of 1 over the layers)")),
    )
    return one, whole


@cache
def _short_gradient() -> Counterexample:
    gradient = np.array([0.03, 0.04])
    return Counterexample(
        description="One layer, C_1 = 0.1, G = (0.03, 0.04), which is within the bound.",
        steps=(
            step("||G||", float(np.linalg.norm(gradient)), "norm before"),
            step("norm after line 7", float(np.linalg.norm(spectral_dp.algorithm_4_clipped(gradient, 0.1))), "(G / 1) / ||G||", "line 7"),
        ),
    )


def _replacement(request: LayersComparison) -> Finding:
    return _mu(
        request,
        "mu of one step when one record is replaced by another, noise sigma C",
        "section 2.1 and Algorithm 4",
        "2 C / (sigma C) = 2 / sigma",
        2.0 / request.noise_multiplier,
        "P8",
        "One term of length C leaves and one comes; under Poisson sampling replacement needs its own pair of mixtures.",
        spectral_dp.algorithm_1_gdp_mu(request.noise_multiplier),
    )
