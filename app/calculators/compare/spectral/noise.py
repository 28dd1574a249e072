r"""Findings on Spectral-DP's noise: what each reading of it protects (P1, P2), and how much of it the filter leaves (P3 to P6)."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import Points, consequences, given
from zetadp.app.calculators.compare.spectral.lines import PAPER, step
from zetadp.app.calculators.compare.spectral.request import SpectralComparison
from zetadp.mechanisms import NumpySource
from zetadp.mechanisms.analysis.spectral_noise import NoiseReading, reading_gdp_mu, real_noise_variance
from zetadp.mechanisms.numerics.spectrum import LowPass, filtering_ratio
from zetadp.mechanisms.published import spectral_dp

_FORMULAS = {
    NoiseReading.REAL_ON_COMPLEX_BINS: "infinity where a kept bin isn't its own conjugate (an axis with N >= 3 and K >= 2), else 1 / sigma",
    NoiseReading.COMPLEX_TOTAL_VARIANCE: "sqrt(2) / sigma",
    NoiseReading.COMPLEX_PER_COMPONENT: "1 / sigma",
    NoiseReading.HERMITIAN: "1 / sigma",
    NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN: "sqrt(2) / sigma",
}

_NOTES = {
    NoiseReading.REAL_ON_COMPLEX_BINS: "As printed: real V_i on complex coefficients. Imaginary parts come out exactly, and the real "
    "part of the inverse transform doesn't hide them: real V makes noise that is even in time, so the odd part of the signal is "
    "released as it is.",
    NoiseReading.COMPLEX_TOTAL_VARIANCE: "E|V|^2 = sigma^2 S^2 gives each real component half of it. A constant signal has its whole "
    "length in one real coefficient, and meets noise of deviation sigma S / sqrt(2) there.",
    NoiseReading.COMPLEX_PER_COMPONENT: "Sound, and wasteful: bins k and N - k carry the same number, so half of the noise buys nothing.",
    NoiseReading.HERMITIAN: "The sound reading: the transform of real white noise of deviation sigma S, what mechanism 'spectral' adds.",
    NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN: "randn of a complex type has variance 1/2 per real component: bin 0 (and N/2) of a real "
    "signal is real, and meets noise of deviation sigma S / sqrt(2) only. A sine alone would have 1 / sigma.",
}


def findings(request: SpectralComparison, low_pass: LowPass) -> tuple[Finding, ...]:
    """Readings of the noise, its variances after the filter, and the filtering ratio."""
    return (
        *(_reading(reading, request, low_pass) for reading in NoiseReading),
        *(_real_noise(low_pass, position) for position in request.chosen_positions),
        _kept_variance(low_pass),
        _literal_mask(low_pass),
        _amplitude(low_pass),
        *(_ratio(axis, *pair) for axis, pair in enumerate(zip(low_pass.shape, low_pass.kept, strict=True))),
    )


def _reading(reading: NoiseReading, request: SpectralComparison, low_pass: LowPass) -> Finding:
    printed, proven = spectral_dp.algorithm_1_gdp_mu(request.sigma), reading_gdp_mu(reading, low_pass, request.sigma)
    delta, epsilon = consequences(printed, proven, Points(request.epsilons, request.deltas))
    real = reading is NoiseReading.REAL_ON_COMPLEX_BINS
    return finding(
        f"mu of one filtered release at l2 sensitivity S, noise read as {reading.value}",
        PAPER,
        "Algorithm 1, Theorem 1",
        printed=printed,
        printed_formula="1 / sigma",
        proven=proven,
        proven_formula=_FORMULAS[reading],
        stronger="smaller",
        erratum="P1" if real else "P2",
        note=_NOTES[reading],
        derivation=(given("sigma", request.sigma), step("mu", proven, _FORMULAS[reading])),
        counterexample=_counterexample(reading),
        delta=delta,
        epsilon=epsilon,
    )


@cache
def _counterexample(reading: NoiseReading) -> Counterexample | None:
    match reading:
        case NoiseReading.REAL_ON_COMPLEX_BINS:
            return _odd_part_survives()
        case NoiseReading.COMPLEX_TOTAL_VARIANCE | NoiseReading.HALF_SPECTRUM_COMPLEX_RANDN:
            return _constant_signal()
        case NoiseReading.COMPLEX_PER_COMPONENT | NoiseReading.HERMITIAN:
            return None


def _odd_part_survives() -> Counterexample:
    noise = NumpySource.from_seed(1).standard_normal((4,))
    sine = np.array([0.0, 1.0, 0.0, -1.0]) / math.sqrt(2.0)
    released = [np.fft.ifft(np.fft.fft(query, norm="ortho") + noise, norm="ortho").real for query in (sine, np.zeros(4))]
    difference = [float(out[1] - out[3]) for out in released]
    return Counterexample(
        description="N = K = 4, S = sigma = 1; the query is the sine (0, 1, 0, -1) / sqrt(2) or, on the neighbour, zero. Noise of any size "
        "leaves the released difference v_1 - v_3 what it was.",
        steps=(
            step("V_1", float(noise[1]), "one draw of N(0, 1), the same in both runs"),
            step("v_1 - v_3 with the sine", difference[0], "Re F^-1(F Q + V) at 1 less that at 3; exactly sqrt(2)"),
            step("v_1 - v_3 without", difference[1], "the same for Q = 0; exactly 0"),
        ),
    )


def _constant_signal() -> Counterexample:
    coefficient = float(np.fft.fft(np.full(4, 0.5), norm="ortho")[0].real)
    deviation = math.sqrt(0.5)
    return Counterexample(
        description="N = 4, S = sigma = 1; the query is (1, 1, 1, 1) / 2 or, on the neighbour, zero.",
        steps=(
            step("F_0", coefficient, "sum of Q / sqrt(N); the query's whole length, and real"),
            step("deviation of Re V_0", deviation, "E|V_0|^2 = 1 is split over two components"),
            step("mu", coefficient / deviation, "F_0 / deviation"),
        ),
    )


def _real_noise(low_pass: LowPass, position: tuple[int, ...]) -> Finding:
    proven = real_noise_variance(low_pass, position)
    dimensions = "N" if len(low_pass.shape) == 1 else "N1 N2"
    return finding(
        f"variance of Re v at position {list(position)}, over (sigma S)^2, real noise on the bins index < K",
        PAPER,
        "Proposition 3 and appendix A.2" if len(low_pass.shape) == 1 else "Corollary 1 and appendix A.3",
        printed=spectral_dp.corollary_1_variance_ratio(low_pass.shape, low_pass.kept),
        printed_formula="prod K / prod N",
        proven=proven,
        proven_formula=f"(1 / {dimensions}) sum over kept bins of cos^2(2 pi (k . n / N)) = (prod K + Re G) / (2 {dimensions})",
        stronger="neither",
        erratum="P3",
        note="The noise is complex and correlated, and its real part's variance depends on the position; only E|v|^2 is prod K / prod N.",
        derivation=(
            step("prod K", float(low_pass.one_sided_bins), "bins with index < K on every axis"),
            step("prod N", float(low_pass.dimensions), "positions"),
            step("Re G", 2 * low_pass.dimensions * proven - low_pass.one_sided_bins, "G = product of sum_{k<K} e^{4 pi i k n / N}"),
            step("Var Re v / (sigma S)^2", proven, "(prod K + Re G) / (2 prod N)"),
        ),
    )


def _kept_variance(low_pass: LowPass) -> Finding:
    one = len(low_pass.shape) == 1
    kept = zip(low_pass.shape, low_pass.kept, low_pass.kept_per_axis, strict=True)
    return finding(
        "noise variance at each position after the filter, over (sigma S)^2",
        PAPER,
        "Proposition 3" if one else "Corollary 1",
        printed=spectral_dp.corollary_1_variance_ratio(low_pass.shape, low_pass.kept),
        printed_formula="K / N" if one else "K1 K2 / (N1 N2)",
        proven=low_pass.variance_ratio,
        proven_formula="min(2 K - 1, N) / N" if one else "min(2 K1 - 1, N1) min(2 K2 - 1, N2) / (N1 N2)",
        stronger="smaller",
        erratum="P4" if one else "P5",
        note="A real signal's frequencies come in pairs k, N - k: keeping K of them and a real output keeps min(2 K - 1, N) dimensions. "
        "What is promised too much is the noise reduction; privacy is the same for every K.",
        derivation=(
            *(step(f"kept bins of axis {i}", float(bins), f"min(2 * {k} - 1, {n})") for i, (n, k, bins) in enumerate(kept)),
            step("kept dimensions", float(low_pass.kept_dimensions), "their product: the trace of the projection"),
            step("variance ratio", low_pass.variance_ratio, "kept dimensions / prod N"),
        ),
        counterexample=_counted(),
    )


@cache
def _counted() -> Counterexample:
    noiseless = LowPass((8,), (4,)).project(np.eye(8))
    return Counterexample(
        description="N = 8, K = 4: filter the eight unit signals. The variance at a position is a diagonal entry of the projection.",
        steps=(
            step("P_00", float(noiseless[0, 0]), "first entry of the filtered (1, 0, ..., 0)"),
            step("trace of P", float(np.trace(noiseless)), "dimensions kept: 2 * 4 - 1"),
            step("printed", spectral_dp.proposition_3_variance_ratio(8, 4), "K / N", "Proposition 3"),
        ),
    )


def _literal_mask(low_pass: LowPass) -> Finding:
    proven = low_pass.one_sided_variance_ratio
    return finding(
        "noise variance at each position, over (sigma S)^2, for the literal mask index < K on Hermitian noise and the real part",
        PAPER,
        "Algorithm 1, line 4" if len(low_pass.shape) == 1 else "Corollary 1 and Algorithm 2, line 6",
        printed=spectral_dp.corollary_1_variance_ratio(low_pass.shape, low_pass.kept),
        printed_formula="prod K / prod N",
        proven=proven,
        proven_formula="(A + B) / (2 prod N), A = prod K, B = prod (1 + max(0, 2 K - N - 1)); for one axis and K <= N / 2 "
        "that is (1 + (K - 1) / 2) / N",
        stronger="smaller",
        erratum="P4",
        note="The mask drops the negative frequencies, so every bin without its conjugate counts half: less noise, but less signal too.",
        derivation=(
            step("A", float(low_pass.one_sided_bins), "bins with index < K on every axis"),
            step("B", float(low_pass.paired_one_sided_bins), "those of them whose conjugate bin is kept too"),
            step("variance ratio", proven, "(A + B) / (2 prod N)"),
        ),
    )


def _amplitude(low_pass: LowPass) -> Finding:
    return finding(
        "smallest part of its amplitude that a kept frequency has after the literal mask and the real part",
        PAPER,
        "Algorithm 1, lines 4 and 5" if len(low_pass.shape) == 1 else "Algorithm 2, lines 6 and 7",
        printed=1.0,
        printed_formula="kept bins pass unchanged",
        proven=low_pass.smallest_one_sided_amplitude,
        proven_formula="1/2 where the mask loses a kept bin's conjugate, else 1",
        stronger="larger",
        erratum="P4",
        note="The real part of e^{2 pi i k n / N} alone is half of the real wave that k and N - k make together.",
        derivation=(
            step("A", float(low_pass.one_sided_bins), "bins of the mask"),
            step("B", float(low_pass.paired_one_sided_bins), "bins of the mask with their conjugates; fewer than A where one is lost"),
            step("amplitude", low_pass.smallest_one_sided_amplitude, "1/2 where a kept bin's conjugate is dropped, else 1"),
        ),
    )


def _ratio(axis: int, length: int, kept: int) -> Finding:
    return finding(
        f"filtering ratio rho of axis {axis}",
        PAPER,
        "section 3.1.2",
        printed=spectral_dp.filtering_ratio(length, kept),
        printed_formula="(K - N) / N",
        proven=filtering_ratio(length, kept),
        proven_formula="1 - K / N",
        stronger="neither",
        erratum="P6",
        note="The paper's algorithms and tables use ratios in (0, 1). K = (1 - rho) N, rounded as the request names.",
        derivation=(
            step("N", float(length), "axis length"),
            step("K", float(kept), "frequencies kept"),
            step("rho", filtering_ratio(length, kept), "1 - K / N"),
        ),
    )
