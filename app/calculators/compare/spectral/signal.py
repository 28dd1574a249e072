r"""Findings on Spectral-DP's signals: gradients as products of spectra (P17, P21), cropping (P18), and clipping before the filter (P19)."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from zetadp.app.calculators.compare.finding import Counterexample, Finding, finding
from zetadp.app.calculators.compare.point_comparisons import given
from zetadp.app.calculators.compare.spectral.lines import PAPER, step
from zetadp.app.calculators.compare.spectral.request import SpectralComparison
from zetadp.mechanisms.analysis.signal_energy import SignalNorms, norm_inside
from zetadp.mechanisms.numerics.spectrum import LowPass
from zetadp.mechanisms.published import spectral_dp


def findings(request: SpectralComparison, low_pass: LowPass, norms: SignalNorms | None) -> tuple[Finding, ...]:
    """The findings about the request's signal, with these norms, and about the paper's products of spectra."""
    return (
        *(() if norms is None else (_order(request, norms),)),
        *(() if norms is None or request.support is None else (_crop(request, norms),)),
        _gradient(low_pass),
        _circulant(low_pass),
    )


def _order(request: SpectralComparison, norms: SignalNorms) -> Finding:
    clip = request.clip
    return finding(
        "l2 norm of the signal that is left after clipping to S and filtering",
        PAPER,
        "Algorithm 4, lines 7 and 13",
        printed=norms.clipped_then_projected(clip),
        printed_formula="min(1, S / ||G||) ||PG||: clip, then filter",
        proven=norms.projected_then_clipped(clip),
        proven_formula="min(S, ||PG||): filter, then clip",
        stronger="larger",
        erratum="P19",
        note="Both have sensitivity S and the same mu. Clipping first spends the bound on energy that the filter then throws away.",
        derivation=(
            given("S", clip),
            step("||G||", norms.whole, "l2 norm of the signal"),
            step("||PG||", norms.kept, "l2 norm of what the filter keeps"),
            step("kept", norms.projected_then_clipped(clip), "min(S, ||PG||)"),
        ),
        counterexample=_clipped_first(),
    )


@cache
def _clipped_first() -> Counterexample:
    norms = SignalNorms.of_signal(LowPass((4,), (1,)), [2.0, 0.0, 0.0, 0.0])
    return Counterexample(
        description="N = 4, K = 1, S = 1; the signal is (2, 0, 0, 0), and the filter keeps its mean.",
        steps=(
            step("clip, then filter", norms.clipped_then_projected(1.0), "min(1, 1 / 2) * 1"),
            step("filter, then clip", norms.projected_then_clipped(1.0), "min(1, 1)"),
        ),
    )


def _crop(request: SpectralComparison, norms: SignalNorms) -> Finding:
    assert request.support is not None  # the caller checked
    assert request.signal is not None  # checked at construction
    inside = norm_inside(request.shape, request.signal, request.support)
    inside, clip = min(inside, norms.whole), request.clip
    cropped = SignalNorms(norms.whole, inside)
    return finding(
        "l2 norm of the kernel's gradient that is left after clipping to S and cropping the padding away",
        PAPER,
        "section 3.2.2 and Algorithm 2 (padded to one size)",
        printed=cropped.clipped_then_projected(clip),
        printed_formula="min(1, S / ||G||) ||G inside||: clip the padded gradient, then crop",
        proven=cropped.projected_then_clipped(clip),
        proven_formula="min(S, ||G inside||): crop, then clip",
        stronger="larger",
        erratum="P18",
        note="A crop is an orthogonal projection, like the filter: as private before clipping as after it, and less is lost.",
        derivation=(
            given("S", clip),
            step("||G||", norms.whole, "norm with the padding"),
            step("||G inside||", inside, f"norm of the leading {list(request.support)} entries"),
        ),
    )


def _gradient(low_pass: LowPass) -> Finding:
    factor = math.sqrt(low_pass.dimensions)
    return finding(
        "factor between equation (5) with unitary transforms and the gradient, once X's spectrum is conjugated",
        PAPER,
        "equation (5)",
        printed=1.0,
        printed_formula="dJ/dW = F^-1[F(dJ/dA) F(X)]",
        proven=factor,
        proven_formula="dJ/dW = sqrt(prod N) F^-1[F(dJ/dA) conj F(X)]",
        stronger="neither",
        erratum="P17",
        note="The gradient of a convolution is a correlation: X's spectrum is conjugated, and a unitary transform costs sqrt(N) an axis.",
        derivation=(
            step("prod N", float(low_pass.dimensions), "positions"),
            step("factor", factor, "sqrt(prod N): unitary F of a convolution is sqrt(prod N) times the product of both F"),
        ),
        counterexample=_three_points(),
    )


@cache
def _three_points() -> Counterexample:
    upstream, signal = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    printed = spectral_dp.equation_5_gradient(upstream, signal)
    # J = <upstream, X * W>, so dJ / dW_m = sum_n upstream_n X_{n - m}.
    true = [float(upstream @ np.roll(signal, m)) for m in range(3)]
    return Counterexample(
        description="N = 3, A = X * W circular, X = (0, 1, 0), dJ/dA = (1, 0, 0).",
        steps=tuple(
            step(f"dJ/dW_{m}", true[m], f"sum_n dJ/dA_n X_(n - {m}); equation (5) gives {float(printed[m]):.6f}", "chain rule")
            for m in range(3)
        ),
    )


def _circulant(low_pass: LowPass) -> Finding:
    length = low_pass.shape[-1]
    return finding(
        f"largest entry of |W X - w * X| over unit w and X, W the circulant block of size {length} whose first row is w",
        PAPER,
        "section 3.3.1",
        printed=0.0,
        printed_formula="W X = w * X",
        proven=2.0 if length >= 3 else 0.0,
        proven_formula="2 where N >= 3, else 0",
        stronger="neither",
        erratum="P21",
        note="With w as the first row, W X is a correlation. It is the convolution w * X if w is the first column.",
        derivation=(
            step("(W X)_i - (w * X)_i", "sum_j (w_(j-i) - w_(i-j)) X_j", "twice the odd part of w, shifted, times X"),
            step("largest", 2.0 if length >= 3 else 0.0, "w odd of norm 1 and X = w; for N <= 2 every w is even"),
        ),
        counterexample=_odd_row(),
    )


@cache
def _odd_row() -> Counterexample:
    row = np.array([0.0, 1.0, -1.0]) / math.sqrt(2.0)
    matrix = np.stack([np.roll(row, shift) for shift in range(3)])
    return Counterexample(
        description="N = 3, w = X = (0, 1, -1) / sqrt(2).",
        steps=(
            step("(W X)_0", float((matrix @ row)[0]), "first row times X"),
            step("(w * X)_0", float(spectral_dp.circulant_output(row, row)[0]), "sum_j w_(-j) X_j"),
        ),
    )
