r"""Findings on what Spectral-DP's noise is measured against: sensitivities (P7 to P9), transforms (P16), and the filter (P20)."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given
from zetadp.app.calculators.compare.spectral.lines import PAPER, step
from zetadp.app.calculators.compare.spectral.request import SpectralComparison
from zetadp.mechanisms.analysis.spectral_noise import NoiseReading, reading_gdp_mu, rfft_norm_undercount, unnormalised_gdp_mu
from zetadp.mechanisms.numerics.spectrum import LowPass
from zetadp.mechanisms.published import spectral_dp


def findings(request: SpectralComparison, low_pass: LowPass) -> tuple[Finding, ...]:
    """How far one unit can move the query, in the domain where noise is added."""
    return (
        _single_release(request),
        _replacement(request),
        _unclipped(request),
        _unnormalised(request, low_pass),
        _half_spectrum_norm(request, low_pass),
        _filter_and_privacy(request, low_pass),
    )


def _single_release(request: SpectralComparison) -> Finding:
    clip = request.clip
    return finding(
        "l2 sensitivity of one query clipped to S and released by itself",
        PAPER,
        "Algorithm 1, Theorem 1",
        printed=spectral_dp.algorithm_1_sensitivity(clip),
        printed_formula="S",
        proven=2.0 * clip,
        proven_formula="2 S",
        stronger="smaller",
        erratum="P7",
        note="Clipping bounds both neighbours' queries, and their difference by twice that: mu doubles. S is right for a sum of clipped "
        "terms, one a record, when a record is added or removed.",
        derivation=(
            given("S", clip),
            step("sensitivity", 2.0 * clip, "||F(d) - F(d')|| <= ||F(d)|| + ||F(d')||, attained by F(d') = -F(d)"),
        ),
        counterexample=_opposite(),
    )


@cache
def _opposite() -> Counterexample:
    queries = [np.array([3.0, 0.0]), np.array([-3.0, 0.0])]
    clipped = [query / max(1.0, float(np.linalg.norm(query))) for query in queries]
    return Counterexample(
        description="S = 1; the query is (3, 0) on one data set and (-3, 0) on its neighbour.",
        steps=(
            step("first entry, clipped", float(clipped[0][0]), "3 / max(1, 3 / S)"),
            step("distance", float(np.linalg.norm(clipped[0] - clipped[1])), "||(1, 0) - (-1, 0)||"),
        ),
    )


def _replacement(request: SpectralComparison) -> Finding:
    clip = request.clip
    return finding(
        "l2 sensitivity of a sum of record terms clipped to S, when one record is replaced by another",
        PAPER,
        "section 2.1 (data sets that differ in a single entry)",
        printed=spectral_dp.algorithm_1_sensitivity(clip),
        printed_formula="S",
        proven=2.0 * clip,
        proven_formula="2 S",
        stronger="smaller",
        erratum="P8",
        note="S is right for adding or removing a record, which accountants of Poisson samples assume. The adjacency must be named.",
        derivation=(given("S", clip), step("sensitivity", 2.0 * clip, "one term of length S leaves, one of length S comes")),
        counterexample=Counterexample(
            description="S = 1; the only record's term is (1, 0), and (-1, 0) after the replacement.",
            steps=(step("distance", float(np.linalg.norm(np.array([1.0, 0.0]) - np.array([-1.0, 0.0]))), "||(1, 0) - (-1, 0)||"),),
        ),
    )


def _unclipped(request: SpectralComparison) -> Finding:
    return finding(
        "l2 sensitivity of what line 3 adds noise to",
        PAPER,
        "Algorithm 1, line 3 and Algorithm 2, line 3",
        printed=spectral_dp.algorithm_1_sensitivity(request.clip),
        printed_formula="S",
        proven=math.inf,
        proven_formula="infinity: the line names F, not the clipped one of line 2",
        stronger="smaller",
        erratum="P9",
        note="Noise must stand on the clipped tensor, as Algorithm 3 has it. Algorithm 2 also inverts the tensor from before its filter.",
        derivation=(given("S", request.clip), step("sup ||F||", math.inf, "a query as long as one likes, never clipped")),
        counterexample=_longer_queries(),
    )


@cache
def _longer_queries() -> Counterexample:
    lengths = [float(np.linalg.norm(np.fft.fft(np.array([size, 0.0]), norm="ortho"))) for size in (10.0, 1e6)]
    return Counterexample(
        description="S = 1, read literally; the query is (t, 0) on one data set and 0 on its neighbour.",
        steps=tuple(step(f"distance at t = {t:g}", length, "||F (t, 0)||") for t, length in zip((10.0, 1e6), lengths, strict=True)),
    )


def _unnormalised(request: SpectralComparison, low_pass: LowPass) -> Finding:
    printed, proven = spectral_dp.algorithm_1_gdp_mu(request.sigma), unnormalised_gdp_mu(low_pass, request.sigma)
    delta, epsilon = consequences(printed, proven, Points(request.epsilons, request.deltas))
    return finding(
        "mu where signals are clipped to S in time, but transformed without 1 / sqrt(N)",
        PAPER,
        "section 3.1.1 (unitary transform), in a library whose default isn't",
        printed=printed,
        printed_formula="1 / sigma",
        proven=proven,
        proven_formula="sqrt(N) / sigma" if len(low_pass.shape) == 1 else "sqrt(N1 N2) / sigma",
        stronger="smaller",
        erratum="P16",
        note="Clipping and noise must live in the same or unitarily related domains. Clipping the coefficients would be right too.",
        derivation=(
            given("sigma", request.sigma),
            step("stretch", math.sqrt(low_pass.dimensions), "sqrt(prod N): ||unnormalised F Q|| / ||Q||, Parseval"),
            step("mu", proven, "stretch * S / (sigma S)"),
        ),
        counterexample=_impulse(),
        delta=delta,
        epsilon=epsilon,
    )


@cache
def _impulse() -> Counterexample:
    impulse = np.zeros(1024)
    impulse[0] = 1.0
    return Counterexample(
        description="N = 1024, S = sigma = 1; the query is (1, 0, ..., 0).",
        steps=(
            step("norm in time", float(np.linalg.norm(impulse)), "||Q||"),
            step("norm of the default transform", float(np.linalg.norm(np.fft.fft(impulse))), "||F Q|| without 1 / sqrt(N)"),
        ),
    )


def _half_spectrum_norm(request: SpectralComparison, low_pass: LowPass) -> Finding:
    factor = rfft_norm_undercount(low_pass)
    return finding(
        "largest l2 norm of a real signal whose half spectrum (rfft) is clipped to S",
        PAPER,
        "section 3.1.1 (clipping the coefficients), on half spectra",
        printed=spectral_dp.algorithm_1_sensitivity(request.clip),
        printed_formula="S",
        proven=factor * request.clip,
        proven_formula="sqrt(2) S where the last axis has N >= 3, else S",
        stronger="smaller",
        erratum="P16",
        note="rfft leaves out each pair's second bin and so counts a pair once. Weights 1, sqrt(2), ..., sqrt(2), 1 restore the norm.",
        derivation=(
            given("S", request.clip),
            step("undercount", factor, "||Q|| / ||rfft Q|| of a sine at frequency 1; 1 where every bin is its own conjugate"),
            step("norm", factor * request.clip, "undercount * S"),
        ),
        counterexample=_sine_norm(),
    )


@cache
def _sine_norm() -> Counterexample:
    sine = np.sin(2.0 * np.pi * np.arange(1024) / 1024) / math.sqrt(512.0)
    return Counterexample(
        description="N = 1024, unitary transform; the signal is a sine of norm 1 at frequency 1.",
        steps=(
            step("norm in time", float(np.linalg.norm(sine)), "||Q||"),
            step("norm of the half spectrum", float(np.linalg.norm(np.fft.rfft(sine, norm="ortho"))), "||rfft Q||"),
        ),
    )


def _filter_and_privacy(request: SpectralComparison, low_pass: LowPass) -> Finding:
    sigma = request.sigma
    return finding(
        "mu of white noise sigma S followed by the filter",
        PAPER,
        "abstract and section 3.1.2 (a lower noise scale for the same guarantee)",
        printed=spectral_dp.algorithm_1_gdp_mu(sigma),
        printed_formula="1 / sigma, for every K",
        proven=reading_gdp_mu(NoiseReading.HERMITIAN, low_pass, sigma),
        proven_formula="1 / sigma, for every K",
        stronger="smaller",
        erratum="P20",
        note="With a unitary transform this is DP-SGD followed by a fixed low-pass filter: post-processing. The filter earns no privacy "
        "and asks for no less noise; it is a guess about where the signal is.",
        derivation=(
            given("sigma", sigma),
            step("F(g + w)", "F g + F w", "linear: the noise's transform is white noise again"),
            step("mu", 1.0 / sigma, "a constant signal passes the filter at full length, so no smaller mu holds"),
        ),
    )
