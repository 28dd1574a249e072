r"""Rows on the zeta-DP paper (complex-valued differential privacy, zeta-DP-SGD)."""

from __future__ import annotations

from functools import partial

from zetadp.mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="zeta_dp")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="Z1",
        where="Definition 7 and the paragraph after it",
        severity="O",
        printed="N_C(0, sigma^2) adds noise of scale sqrt(2) sigma to each component; the same in R^2n would need 2 sigma",
        proven="each real component has standard deviation sigma / sqrt(2), and noise with that standard deviation in R^2n gives exactly "
        "the same privacy",
        why="Splitting a complex vector into its real and imaginary parts preserves distances, and N_C(m, sigma^2 I) is the real Gaussian "
        "with covariance sigma^2/2 I of those parts: the two densities are the same function.",
        here=(
            "The zeta-DP paper states twice the true standard deviation for each component of its complex noise; here std is the standard "
            "deviation of one real component."
        ),
    ),
    _row(
        row="Z2",
        where="Theorem 1, equations (6) and (15)",
        severity="O",
        printed="delta(epsilon) is that of mu = Delta / sigma; the privacy loss is N(Delta^2 / (2 sigma^2), Delta^2 / sigma^2)",
        proven="mu = sqrt(2) Delta / sigma; the privacy loss is N(Delta^2 / sigma^2, 2 Delta^2 / sigma^2)",
        why="The log ratio of the two densities is linear in the output. Its variance is |d|^2 divided by the variance of one real "
        "component, which is sigma^2 / 2, so mu^2 = 2 |d|^2 / sigma^2.",
        evidence="sigma = Delta = 1: at epsilon 1 the printed delta is 0.1269 and the true one 0.2862; at epsilon 8 they are 3.7e-15 and "
        "7.8e-8.",
        here=(
            "The zeta-DP paper's (epsilon, delta) theorem uses mu = D/sigma, but its own noise has mu = sqrt(2) D/sigma; here mu is D/std, "
            "with std per real component."
        ),
    ),
    _row(
        row="Z3",
        where="proof sketch of Theorem 1, appendix A.1",
        severity="W",
        printed="the criterion for (epsilon, delta)-DP is |privacy loss| <= epsilon with probability 1 - delta",
        proven="that is sufficient but not necessary: exactly, delta = P[L > epsilon] - e^epsilon P[L' < -epsilon], where L' is the loss "
        "under D'",
        why="An attacker's best event is the one where the density ratio exceeds e^epsilon; its excess probability is the one-sided "
        "difference (Neyman and Pearson), which is less than the two-sided tail.",
        evidence="mu = epsilon = 1: the tail P[|L| > epsilon] is 0.3753, and the exact delta is 0.1269.",
    ),
    _row(
        row="Z4",
        where="Theorems 1 and 3",
        severity="N",
        printed="if and only if, for all epsilon > 0 and delta in [0, 1]",
        proven="for a given epsilon, delta(epsilon) is the smallest delta; 'only if' needs a pair of neighbours at distance Delta",
        why="Both statements are about the supremum over neighbours, and Delta describes it only where it is attained.",
    ),
    _row(
        row="Z5",
        where="Theorem 2, equations (7), (9) and (18)",
        severity="O",
        printed="(alpha, rho)-RDP holds if sigma^2 >= alpha Delta^2 / (2 rho)",
        proven="N_C(0, sigma^2) needs sigma^2 >= alpha Delta^2 / rho",
        why="A Gaussian shift has Renyi divergence alpha |d|^2 divided by twice the variance of a real component, and that variance is "
        "sigma^2 / 2.",
        evidence="sigma = Delta = 1: the divergence of order 2 is 2, and 1 is printed.",
        here=(
            "The zeta-DP paper's Renyi theorem asks for half the noise variance that is needed; here the divergence is order D^2 / (2 "
            "std^2)."
        ),
    ),
    _row(
        row="Z6",
        where="equations (8), (17) and (18)",
        severity="W",
        printed="D_alpha = alpha <mu_0, mu_1> / (2 sigma^2)",
        proven="the inner product must be replaced by the squared distance |mu_0 - mu_1|^2",
        why="The divergence depends only on the shift and is 0 for equal means; an inner product isn't 0 then, and it can even be "
        "negative.",
        evidence="alpha = 2: for means 3 and 3 the printed value is 9 and the true one 0; for means 3 and -3 the printed value is -9.",
    ),
    _row(
        row="Z7",
        where="Theorem 3, equations (10) to (12) and (21)",
        severity="O",
        printed="mu-GDP if and only if Delta / sigma <= mu",
        proven="mu-GDP if sqrt(2) Delta / sigma <= mu, that is, sigma^2 >= 2 (Delta / mu)^2",
        why="Each component has half the variance, as in Z2.",
        here="The zeta-DP paper's Gaussian-DP theorem is off by the same factor sqrt(2); here mu is D/std, with std per real component.",
    ),
    _row(
        row="Z8",
        where="Definitions 1 and 2",
        severity="O",
        printed="Delta = K_f = sup |grad f|",
        proven="Delta is a Lipschitz constant in the metric that counts records; a slope in a record's value must be multiplied by the "
        "diameter of the set of values that a record can take",
        why="Along the segment between two values of one record, the query changes by at most the slope times the length, and the length "
        "is the diameter of the record's domain, not 1.",
        evidence="f = sum of x with x in [0, 10]: slope 1, sensitivity 10.",
        here=(
            "A bound on a function's slope isn't its sensitivity to one record; here the sensitivity is the clipping bound of one record's "
            "term."
        ),
    ),
    _row(
        row="Z9",
        where="section 4.2",
        severity="N",
        printed="noise is calibrated to the sensitivity of the loss function",
        proven="noise must be calibrated to the sensitivity of what is released: the sum of clipped gradients",
        why="A privacy guarantee depends only on the released vector and on how far one record moves it.",
    ),
    _row(
        row="Z10",
        where="Algorithm 1",
        severity="O",
        printed="add N_C(0, sigma^2 B^2 I_L) and account for noise multiplier sigma",
        proven="the dimension is the number of parameters, each real component has standard deviation sigma B / sqrt(2), and the noise "
        "multiplier is sigma / sqrt(2)",
        why="This is Z2 with sensitivity B: the variance of N_C is shared by two components.",
        here=(
            "The zeta-DP paper's Algorithm 1, read literally, adds noise of std sigma B / sqrt(2) per component; this run adds noise of "
            "the std stated above."
        ),
    ),
    _row(
        row="Z11",
        where="Algorithm 1, the factor 1/L",
        severity="O",
        printed="divide by L, where L_t is the drawn lot",
        proven="divide by the expected lot size, a public constant",
        why="If the sum is divided by the realised size, the noise has standard deviation sigma B / |L_t|. Two such scales become easier "
        "to distinguish as the number of parameters grows, so the noise itself reveals whether a record was drawn.",
        evidence="lots of 64 and 65, all gradients zero, epsilon 1: delta is 6.0e-6 for 100 parameters and 1.000 for a million.",
        here="Dividing by a sample's realised size reveals that size; this run divides by the expected batch size, a public constant.",
    ),
    _row(
        row="Z12",
        where="Algorithm 1 ('Poisson or uniform sampling') and appendix A.7 (uniform without replacement)",
        severity="O",
        printed="both sampling methods are accounted for in the same way",
        proven="a sample of fixed size costs as much as Poisson sampling with noise multiplier sigma / 2, under add or remove too",
        why="In a sample of fixed size, a record takes the place of another. If the other record contributes -B and this one +B, the sum "
        "changes by 2B with probability q, so the pair is (1 - q) N(0, sigma^2) + q N(2, sigma^2) against N(0, sigma^2), and it is "
        "attained.",
        here=(
            "Samples of a fixed size cost far more than Poisson samples of the same rate; here every sample is accounted for as it was "
            "drawn, and the table of releases says how."
        ),
    ),
    _row(
        row="Z13",
        where="section 5 ('converted losslessly from GDP')",
        severity="O",
        printed="every epsilon is converted losslessly from Gaussian DP",
        proven="GDP converts losslessly, but this mu is the limit in a central limit theorem, which isn't an upper bound",
        why="After finitely many steps, the privacy loss of subsampled noise has a heavier tail than its Gaussian limit.",
        evidence="CIFAR-10's setting under Poisson sampling: the limit gives 5.26, and the true value is above 6.59.",
        here=(
            "An epsilon from a central limit theorem isn't an upper bound (it came out a fifth too small); here every figure is the safe "
            "end of a bracket, and the rounding of the bracket is proved or allowed for, as the floating-point caveat says for its route."
        ),
    ),
    _row(
        row="Z14",
        where="Tables 1, 2, 3 and 5",
        severity="O",
        printed="epsilon 7.54, 1.62, 1.39, 0.16 and 0.51 for CIFAR-10, ECG, SpeechCommands, FastMRI and PhaseMNIST",
        proven="these are upper bounds if sampling is Poisson and each component has standard deviation sigma B; they are too small with "
        "the noise that Algorithm 1 prints, and far too small for samples of fixed size",
        why="The figures come from the central limit theorem for uniform samples with multiplier sigma; GET /v1/papers/zeta_dp recomputes "
        "them with proved brackets under four conventions.",
    ),
    _row(
        row="Z15",
        where="appendix A.5, sections 1 and 5.1",
        severity="W",
        printed="Wirtinger gradients lower the sensitivity; R^2n needs superfluous noise",
        proven="half the gradient with the same bound B is the full gradient with bound 2B: noise, signal and privacy are unchanged",
        why="Clipping is homogeneous: clip(g/2; B) = clip(g; 2B) / 2. The only difference is which gradients are clipped, which is a "
        "matter of tuning B.",
        here="Wirtinger gradients don't reduce the noise needed for privacy; this run clips the full real gradient of each unit.",
    ),
    _row(
        row="Z16",
        where="appendix A.5, equations (32) and (33)",
        severity="W",
        printed="z conj(z) isn't equivalent to <a, a> for a in R^2",
        proven="it is exactly <a, a>, with a = (Re z, Im z)",
        why="Both are (Re z)^2 + (Im z)^2.",
    ),
    _row(
        row="Z17",
        where="equation (26) and the text after it",
        severity="N",
        printed="where (26) exists, f is differentiable in the real sense; d/dz and d/d(conj z) are conjugates of each other",
        proven="(26) is the complex derivative; the two derivatives are conjugates of each other only for real-valued f",
        why="The conjugate of d f/dz is d(conj f)/d(conj z), which equals d f/d(conj z) where f is real.",
    ),
    _row(
        row="Z18",
        where="appendix A.5, note to practitioners",
        severity="OK",
        printed="some frameworks scale the conjugate gradient by 2",
        proven="PyTorch does: the gradient it reports is 2 d/d(conj z), the full real gradient",
        why="Its gradient of |z|^2 at 3 + 4i is 6 + 8i, and d/d(conj z) |z|^2 = z.",
    ),
    _row(
        row="Z19",
        where="appendices A.4 and A.6.5, PhaseMNIST",
        severity="O",
        printed="epsilon and delta are given as for ordinary records",
        proven="they hold per composed example; an image that is the imaginary part of M others needs a group of 1 + M",
        why="Imaginary parts are drawn with replacement, so one image can be in several records, but adjacency changes only one record.",
        here=(
            "Pairing images with replacement puts one image into several records, and then a guarantee per record isn't a guarantee per "
            "image."
        ),
    ),
    _row(
        row="Z20",
        where="Table 2, FastMRI",
        severity="o",
        printed="epsilon = 0.16",
        proven="this is a figure per slice, of 34742 slices; nothing follows per patient without a bound on the number of slices per "
        "patient",
        why="Group privacy: k slices of one patient are k records.",
        here="A guarantee per slice says nothing about patients; this certificate holds for the unit that it names.",
    ),
    _row(
        row="Z21",
        where="section 4.1, item 3",
        severity="W",
        printed="noise for pure epsilon-DP isn't circular in the complex plane",
        proven="noise with density proportional to exp(-|z| / b) is circular and (Delta / b)-DP",
        why="||z - a| - |z - a'|| <= |a - a'|, so log densities differ by at most Delta / b. Elliptical Laplace distributions fail, but "
        "others don't.",
        here="complex_laplace adds independent Laplace noise to both parts, which isn't circular, and is calibrated in the l1 norm of the "
        "parts; the circular law's variance is compared in its proof, and it isn't drawn.",
    ),
    _row(
        row="Z22",
        where="Algorithm 1, clipping",
        severity="O",
        printed="g / max(1, |g| / B)",
        proven="a non-finite per-example gradient must be set to zero before its norm is computed",
        why="Infinity divided by itself is NaN, and NaN survives every norm: the sum then shows that the record was present.",
        here=(
            "A non-finite gradient passes through the printed clipping and reveals its record's presence; it must be set to zero before "
            "clipping."
        ),
    ),
    _row(
        row="Z23",
        where="section 5.3 and appendix A.6.3, SpeechCommands",
        severity="N",
        printed="2000 samples of each of 10 words, 8000 examples, 7200 and 800, 8 output units",
        proven="the counts contradict each other; a sampling rate of 0.009 matches lots of 64 out of 7200",
        why="10 times 2000 isn't 8000, and 10 classes don't fit 8 units.",
    ),
    _row(
        row="Z24",
        where="appendix A.6.4, batch normalisation on single samples",
        severity="OK",
        printed="without running statistics and with batches of one, batch normalisation becomes instance normalisation",
        proven="right: each example's gradient is then a function of that example alone",
        why="No statistic is shared between examples.",
    ),
)
