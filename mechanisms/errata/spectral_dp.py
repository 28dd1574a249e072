r"""Rows on Spectral-DP, which adds noise to Fourier coefficients and then drops the last of them."""

from __future__ import annotations

from functools import partial

from zetadp.mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="spectral_dp")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="P1",
        where="section 3.1.1, Algorithm 1",
        severity="O",
        printed="real noise N(0, sigma^2 S^2) on complex coefficients is private",
        proven="it isn't, for any sigma: the imaginary parts are released as they are",
        why="Taking the real part of the inverse transform doesn't help: real noise on the coefficients is even in time, so the odd part "
        "of the signal is released exactly.",
        here=(
            "Real noise on complex coefficients leaves their imaginary parts without noise; here the noise is white in the real "
            "coordinates that are kept."
        ),
    ),
    _row(
        row="P2",
        where="section 3.1.1: which complex noise",
        severity="O",
        printed="sigma, whatever the distribution of the noise",
        proven="Hermitian noise (real white noise sigma S in time) has mu = 1 / sigma; CN(0, sigma^2 S^2) on each coefficient has sqrt(2) "
        "/ sigma, and so does a half spectrum of unit complex normals, for a constant signal",
        why="mu is the length of the transformed signal in units of the noise, with each pair of conjugate coefficients counted once.",
        here="It is easy to give complex noise half its variance per component; here std always refers to one real component.",
    ),
    _row(
        row="P3",
        where="Proposition 3, appendix A.2",
        severity="W",
        printed="the noise in time is N(0, (K/N) sigma^2 S^2)",
        proven="it is complex and correlated, and its real part has variance (1/N) sum over i < K of cos^2(2 pi i n / N), times sigma^2 "
        "S^2",
        why="Transforming real noise gives variance K/N at n = 0 and N/2 and about half of that elsewhere; only E|v|^2 is K/N.",
        here=(
            "The distribution that Spectral-DP gives for the noise in time is that of a different noise; the variance ratios stated here "
            "are those of real white noise after the filter."
        ),
    ),
    _row(
        row="P4",
        where="the filter i < K",
        severity="W",
        printed="a low-pass filter that keeps K of N",
        proven="it drops all negative frequencies; with conjugate partners, min(2 K - 1, N) coefficients are kept, and that number over N "
        "of the variance",
        why="The coefficients of a real signal come in conjugate pairs (k, N - k). Without the partners, amplitudes are halved.",
        here=(
            "The first K frequencies of a real signal are min(2 K - 1, N) real numbers, not K; the noise is counted accordingly and isn't "
            "part of mu."
        ),
    ),
    _row(
        row="P5",
        where="Corollary 1, two dimensions",
        severity="W",
        printed="K^2 / N^2",
        proven="min(2 K1 - 1, N1) min(2 K2 - 1, N2) / (N1 N2)",
        why="The mask is a product, and P4 applies in each direction.",
        here="In two dimensions that count is the product over both axes, not K^2; it isn't part of mu either.",
    ),
    _row(
        row="P6",
        where="section 3.1, filtering ratio",
        severity="N",
        printed="rho = (K - N) / N",
        proven="rho = 1 - K / N",
        why="The printed ratio is negative, but the algorithms use rho in (0, 1).",
        here="Spectral-DP prints its filtering ratio with the wrong sign; here the kept frequencies are stated as numbers.",
    ),
    _row(
        row="P7",
        where="Algorithm 1, Theorem 1",
        severity="O",
        printed="a query clipped to norm S has sensitivity S",
        proven="it has sensitivity 2 S; S is right for a sum of clipped terms if a record is added or removed",
        why="Two vectors of norm S can be opposite.",
        here="Clipping a query to S gives it sensitivity 2S, not S; here only sums of clipped per-record terms have sensitivity S.",
    ),
    _row(
        row="P8",
        where="section 2.1, data sets that differ in one entry",
        severity="O",
        printed="sensitivity S",
        proven="substitution changes a sum of clipped terms by 2 S, and sampling must be accounted for that pair",
        why="The old term is removed, and a new one, possibly opposite, is added.",
        here="Noise for adding or removing a record is too small for replacing one; the adjacency is stated above.",
    ),
    _row(
        row="P9",
        where="Algorithm 1, line 3; Algorithm 2, lines 3 and 7",
        severity="O",
        printed="noise is added to the tensor before clipping; the inverse is taken before filtering",
        proven="the clipped tensor must be used, as in Algorithm 3",
        why="An unclipped gradient has no finite sensitivity.",
        here="Spectral-DP's algorithms add noise to the tensor before clipping; here only clipped terms are summed and get noise.",
    ),
    _row(
        row="P10",
        where="Algorithm 4, line 7",
        severity="O",
        printed="(G / max(1, |G| / C_l)) / |G|",
        proven="G / max(1, |G| / C_l)",
        why="The second division gives every short gradient norm 1, whatever C_l is.",
        here="A stray division gives every short gradient norm 1, whatever its layer's bound; here a layer's part has "
        "at most the stated bound.",
    ),
    _row(
        row="P11",
        where="Theorem 1, with epsilon of 2 to 8 in the experiments",
        severity="o",
        printed="sigma = sqrt(2 log(1.25 / delta)) / epsilon gives (epsilon, delta)-DP for any epsilon",
        proven="the theorem that it cites is for epsilon < 1; an exact computation shows that the formula holds up to a limit that depends "
        "on delta and fails beyond it",
        why="Substitute mu = epsilon / sqrt(2 log(1.25 / delta)) into the exact delta of mu-GDP.",
        evidence="the limit is 8.42 at delta 1e-5 and 5.74 at delta 0.1.",
        here=(
            "The classic formula sqrt(2 ln(1.25/delta)) / epsilon fails for large epsilon; it is never used here, only the exact formula "
            "is."
        ),
    ),
    _row(
        row="P12",
        where="Corollary 2, appendix A.4",
        severity="O",
        printed="(epsilon', delta)-DP is equivalent to (alpha, epsilon)-RDP with epsilon' = epsilon + log(1/delta) / (alpha - 1)",
        proven="RDP implies DP, but not conversely; the true divergence of the Gaussian is alpha epsilon'^2 / (4 log(1.25 / delta))",
        why="Proposition 1 is an implication. Where the true divergence is larger than the claimed epsilon, the claimed total is too "
        "small.",
        evidence="alpha = 2, delta 1e-5: 0.01 is claimed, and the true value is 5.66.",
        here=(
            "Spectral-DP's conversion between Renyi and (epsilon, delta) goes in the wrong direction; here each figure is computed from "
            "the event."
        ),
    ),
    _row(
        row="P13",
        where="Corollary 2",
        severity="L",
        printed="no gain from sampling",
        proven="Poisson sampling at rate B / N with noise multiplier sigma costs far less",
        why="Sampling amplifies privacy, and the algorithm does sample this way.",
        here="Spectral-DP leaves out the gain from sampling; here sampling is part of the accounting.",
    ),
    _row(
        row="P14",
        where="Table 5",
        severity="o",
        printed="epsilon 2.11 to 2.15 for Spectral-DP, 2.89 to 3.88 for DP-SGD, both with sigma = 0.9",
        proven="the same noise costs the same per epoch: the figures belong to different stopping epochs of the same accounting",
        why="Neither filtering nor the basis affects epsilon. The epoch is chosen by test accuracy, which isn't accounted for.",
        here=(
            "Spectral-DP's smaller epsilon comes from stopping earlier, and the epoch was chosen by accuracy; here all released steps are "
            "counted."
        ),
    ),
    _row(
        row="P15",
        where="Algorithm 4, clipping by layer",
        severity="OK",
        printed="C = sqrt(sum of C_l^2) with noise sigma C everywhere",
        proven="right, and tight: mu = 1 / sigma; noise sigma C_l in layer l would give sqrt(L) / sigma",
        why="Layers clipped to C_l form a product of balls whose corners have norm C.",
        here=(
            "Bounds per layer, with noise for the root of the sum of their squares, are right and tight: mu is one over the noise "
            "multiplier."
        ),
    ),
    _row(
        row="P16",
        where="section 3.1, normalisation of the transform",
        severity="O",
        printed="clipping in one domain and noise in another, with any transform",
        proven="both must be in the same domain, or in two domains related by a unitary map",
        why="The unnormalised transform multiplies lengths by sqrt(N): with clipping to S in time and noise sigma S in frequency, mu = "
        "sqrt(N) / sigma. The norm of a half spectrum is too small by up to sqrt(2); weights sqrt(2) on paired coefficients restore it.",
        here="Noise that fits a clipped signal is too small for its unnormalised transform; here every transform is unitary.",
    ),
    _row(
        row="P17",
        where="equation (5)",
        severity="W",
        printed="the gradient is the inverse transform of F(dJ/dA) F(X)",
        proven="it is the inverse transform of F(dJ/dA) conj(F(X)), times sqrt(N) per dimension for unitary transforms",
        why="The gradient of a convolution with respect to its kernel is a correlation.",
        here="A gradient formula of Spectral-DP lacks a complex conjugate; here gradients are those of the network.",
    ),
    _row(
        row="P18",
        where="section 3.2, padding",
        severity="L",
        printed="the padded spectral gradient is clipped",
        proven="cropping to the kernel first is equally private and less biased",
        why="Cropping is linear and shortens vectors, so a clipped crop stays in the same ball.",
        here="Padding before clipping is as private as cropping first but more biased; both lengths are stated here.",
    ),
    _row(
        row="P19",
        where="order of clipping, noise and filtering",
        severity="L",
        printed="clip, add noise, filter",
        proven="filter, clip, add noise: this has the same guarantee and keeps at least as much signal",
        why="Filtering shortens a gradient, so less of it is clipped away.",
        here=(
            "Filtering before clipping is equally private and keeps at least as much signal; here the sensitivity may be stated for "
            "the filtered query."
        ),
    ),
    _row(
        row="P20",
        where="abstract and section 3: Spectral-DP reduces the noise of DP",
        severity="U",
        printed="less noise for the same privacy",
        proven="with a unitary transform it is DP-SGD followed by a fixed low-pass filter",
        why="The transform is linear and keeps white noise white; filtering is post-processing and removes signal along with the noise.",
        here=(
            "Filtering doesn't reduce the noise needed for privacy: the method is DP-SGD with a low-pass filter; here filtering earns no "
            "privacy."
        ),
    ),
    _row(
        row="P21",
        where="section 3.3, circulant blocks",
        severity="W",
        printed="a circulant matrix with first row w convolves with w",
        proven="it correlates with w; it convolves if w is its first column",
        why="Write out the product for N = 3.",
        here=(
            "Spectral-DP's circulant matrix gives a correlation where a convolution is meant; this is a matter of the network, not of "
            "privacy."
        ),
    ),
    _row(
        row="P22",
        where="Algorithm 4, 1/B",
        severity="o",
        printed="divide by B, loop over b = 1..B",
        proven="right with the constant B = q N and a loop over the drawn records; not with the realised size (Z11)",
        why="Under Poisson sampling the number of records is random, and noise divided by it would reveal it.",
        here="Dividing by a constant batch size is right; this run divides by the expected batch size, not by the realised one.",
    ),
    _row(
        row="P23",
        where="Definitions 1 and 2, sensitivity",
        severity="N",
        printed="(epsilon, delta)-RDP, exp^epsilon, f composed with g, |f(d) - f(d')|",
        proven="(alpha, epsilon)-RDP, e^epsilon, the joint release of both, the l2 norm",
        why="These are slips that the surrounding formulas correct.",
        here="Spectral-DP misprints some definitions; here the field's definitions are used.",
    ),
    _row(
        row="P24",
        where="biases, batch normalisation, ScatterNet's statistics, grid search",
        severity="o",
        printed="not mentioned",
        proven="every trained parameter must be in the clipped vector; statistics and choices made from the data need privacy budget",
        why="Whatever the data influenced and no noise covers is outside the guarantee.",
        here="Spectral-DP leaves out biases, statistics of the data and searches; here every trained parameter is in the clipped vector.",
    ),
)
