r"""Rows on the zeta-DP paper (complex-valued differential privacy, zeta-DP-SGD)."""

from __future__ import annotations

from functools import partial

from mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="zeta_dp")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="Z1",
        where="Definition 7 and the paragraph after it",
        severity="O",
        printed="N_C(0, sigma^2) puts noise of scale sqrt(2) sigma on each component; the same in R^2n would need 2 sigma",
        proven="each real component has standard deviation sigma / sqrt(2), and R^2n with that deviation is exactly as private",
        why="Splitting a complex vector into its real pairs keeps distances, and N_C(m, sigma^2 I) is the real Gaussian with covariance "
        "sigma^2/2 I of those pairs: the two densities are the same function.",
        here=(
            "The zeta-DP paper gives each component of its complex noise twice its true deviation; here std is that of one real component."
        ),
    ),
    _row(
        row="Z2",
        where="Theorem 1, equations (6) and (15)",
        severity="O",
        printed="delta(epsilon) is that of mu = Delta / sigma; the privacy loss is N(Delta^2 / (2 sigma^2), Delta^2 / sigma^2)",
        proven="mu = sqrt(2) Delta / sigma; the privacy loss is N(Delta^2 / sigma^2, 2 Delta^2 / sigma^2)",
        why="The log ratio of the two densities is linear in the output with variance |d|^2 over the variance of one real component, and "
        "that variance is sigma^2 / 2, so mu^2 = 2 |d|^2 / sigma^2.",
        evidence="sigma = Delta = 1: at epsilon 1 the print says delta 0.1269 and 0.2862 is true; at epsilon 8, 3.7e-15 and 7.8e-8.",
        here="Its (epsilon, delta) theorem uses mu = D/sigma where its own noise has sqrt(2) D/sigma; here mu is D/std per real component.",
    ),
    _row(
        row="Z3",
        where="proof sketch of Theorem 1, appendix A.1",
        severity="W",
        printed="(epsilon, delta)-DP is shown by |privacy loss| <= epsilon with probability 1 - delta",
        proven="that is enough, but not needed: exactly, delta = P[L > epsilon] - e^epsilon P[L' < -epsilon], L' the loss under D'",
        why="The best event for an attacker is where the density ratio exceeds e^epsilon; its excess probability is the one-sided "
        "difference (Neyman and Pearson), less than the two-sided tail.",
        evidence="mu = epsilon = 1: the tail P[|L| > epsilon] is 0.3753, the exact delta 0.1269.",
    ),
    _row(
        row="Z4",
        where="Theorems 1 and 3",
        severity="N",
        printed="if and only if, for all epsilon > 0 and delta in [0, 1]",
        proven="for one epsilon, delta(epsilon) is the smallest delta; 'only if' needs a pair of neighbours at distance Delta",
        why="Both statements are about the supremum over neighbours, which Delta describes only where it is reached.",
    ),
    _row(
        row="Z5",
        where="Theorem 2, equations (7), (9) and (18)",
        severity="O",
        printed="(alpha, rho)-RDP from sigma^2 >= alpha Delta^2 / (2 rho)",
        proven="it takes sigma^2 >= alpha Delta^2 / rho for N_C(0, sigma^2)",
        why="A Gaussian shift has Renyi divergence alpha |d|^2 over twice the variance of a real component, and that is sigma^2 / 2.",
        evidence="sigma = Delta = 1: order 2 has divergence 2, printed 1.",
        here="Its Renyi theorem asks for half the noise variance that is needed; here the divergence is order D^2 / (2 std^2).",
    ),
    _row(
        row="Z6",
        where="equations (8), (17) and (18)",
        severity="W",
        printed="D_alpha = alpha <mu_0, mu_1> / (2 sigma^2)",
        proven="the squared distance |mu_0 - mu_1|^2 belongs where the inner product stands",
        why="The divergence depends on the shift alone and is 0 for equal means; an inner product isn't, and can even be negative.",
        evidence="alpha = 2, means 3 and 3: printed 9 where 0 is true; means 3 and -3: printed -9.",
    ),
    _row(
        row="Z7",
        where="Theorem 3, equations (10) to (12) and (21)",
        severity="O",
        printed="mu-GDP if and only if Delta / sigma <= mu",
        proven="if sqrt(2) Delta / sigma <= mu, that is sigma^2 >= 2 (Delta / mu)^2",
        why="The same half variance per component as in Z2.",
        here="Its Gaussian-DP theorem is off by the same sqrt(2); here mu is D/std per real component.",
    ),
    _row(
        row="Z8",
        where="Definitions 1 and 2",
        severity="O",
        printed="Delta = K_f = sup |grad f|",
        proven="Delta is a Lipschitz constant in the metric that counts records; a slope in a record's value must be multiplied by the "
        "diameter of the values a record can take",
        why="Along the segment between two values of one record the query moves by at most slope times length, and the length is the "
        "diameter of the record's domain, not 1.",
        evidence="f = sum of x with x in [0, 10]: slope 1, sensitivity 10.",
        here=(
            "A bound on a function's slope isn't its sensitivity to one record; here sensitivity is the clipping bound of one record's "
            "term."
        ),
    ),
    _row(
        row="Z9",
        where="section 4.2",
        severity="N",
        printed="noise is calibrated to the sensitivity of the loss function",
        proven="to the sensitivity of what is released: the sum of clipped gradients",
        why="Only the released vector and how far one record moves it enter a privacy guarantee.",
    ),
    _row(
        row="Z10",
        where="Algorithm 1",
        severity="O",
        printed="add N_C(0, sigma^2 B^2 I_L) and account for noise multiplier sigma",
        proven="the dimension is the number of parameters, each real component has sigma B / sqrt(2), and the noise multiplier is "
        "sigma / sqrt(2)",
        why="Z2 with sensitivity B: the variance of N_C is shared by two components.",
        here="Its Algorithm 1, read literally, adds noise of std sigma B / sqrt(2) per component; this run adds the std stated above.",
    ),
    _row(
        row="Z11",
        where="Algorithm 1, the factor 1/L",
        severity="O",
        printed="divide by L, with L_t the drawn lot",
        proven="divide by the expected lot size, a public constant",
        why="Divided by the realised size the noise has deviation sigma B / |L_t|, and two such scales are told apart the better the more "
        "parameters there are, so the noise itself tells whether a record was drawn.",
        evidence="lots of 64 and 65, all gradients zero, epsilon 1: delta 6.0e-6 for 100 parameters and 1.000 for a million.",
        here="Dividing by a sample's realised size reveals that size; this run divides by the expected batch, a public constant.",
    ),
    _row(
        row="Z12",
        where="Algorithm 1 ('Poisson or uniform sampling') and appendix A.7 (uniform without replacement)",
        severity="O",
        printed="both samplings are accounted alike",
        proven="a sample of fixed size costs as Poisson sampling with noise multiplier sigma / 2, under add or remove too",
        why="In a sample of fixed size a record takes another one's place. Let that one pull by -B and the record by +B: the sum moves by "
        "2B with probability q, so the pair is (1 - q) N(0, sigma^2) + q N(2, sigma^2) against N(0, sigma^2), and it is attained.",
        here=(
            "Samples of a fixed size cost far more than Poisson samples of the same rate; this run samples by Poisson and is accounted so."
        ),
    ),
    _row(
        row="Z13",
        where="section 5 ('converted losslessly from GDP')",
        severity="O",
        printed="every epsilon follows losslessly from Gaussian DP",
        proven="GDP converts losslessly, but this mu is the limit of a central limit theorem, which isn't an upper bound",
        why="After finitely many steps the privacy loss of sampled noise has a heavier tail than its Gaussian limit.",
        evidence="CIFAR-10's setting under Poisson sampling: the limit says 5.26, the truth lies above 6.59.",
        here=(
            "Epsilon from a central limit theorem isn't an upper bound (it came out a fifth too small); here every figure is the safe "
            "end of a bracket, whose rounding is proved or allowed for as the floating-point caveat says for its route."
        ),
    ),
    _row(
        row="Z14",
        where="Tables 1, 2, 3 and 5",
        severity="O",
        printed="epsilon 7.54, 1.62, 1.39, 0.16 and 0.51 for CIFAR-10, ECG, SpeechCommands, FastMRI and PhaseMNIST",
        proven="upper bounds if sampling is Poisson and each component has deviation sigma B; too small with the noise that Algorithm 1 "
        "prints, and far too small for samples of fixed size",
        why="The figures come out of the central limit theorem for uniform samples with multiplier sigma; GET /v1/papers/zeta_dp "
        "recomputes them with proved brackets under four conventions.",
    ),
    _row(
        row="Z15",
        where="appendix A.5, sections 1 and 5.1",
        severity="W",
        printed="Wirtinger gradients lower the sensitivity; real pairs need superfluous noise",
        proven="half the gradient with the same bound B is the whole gradient with bound 2B: noise, signal and privacy are unchanged",
        why="Clipping is homogeneous: clip(g/2; B) = clip(g; 2B) / 2. What differs is which gradients are clipped, a matter of tuning B.",
        here="Wirtinger gradients don't lower the noise that privacy needs; this run clips the full real gradient of each record.",
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
        printed="where (26) exists f is differentiable in the real sense; d/dz and d/d(conj z) are conjugates",
        proven="(26) is the complex derivative; the two operators give conjugates only for real-valued f",
        why="Conjugating d f/dz gives d(conj f)/d(conj z), which is d f/d(conj z) where f is real.",
    ),
    _row(
        row="Z18",
        where="appendix A.5, note to practitioners",
        severity="OK",
        printed="some frameworks scale the conjugate gradient by 2",
        proven="so does PyTorch: the gradient it reports is 2 d/d(conj z), the full real gradient",
        why="Its gradient of |z|^2 at 3 + 4i is 6 + 8i, and d/d(conj z) |z|^2 = z.",
    ),
    _row(
        row="Z19",
        where="appendices A.4 and A.6.5, PhaseMNIST",
        severity="O",
        printed="epsilon and delta as for ordinary records",
        proven="they hold per composed example; an image that serves as imaginary part of M others needs a group of 1 + M",
        why="Imaginary parts are drawn with replacement, so one image can sit in several records while adjacency changes only one.",
        here="Pairing images with replacement puts one image into several records; a guarantee per record isn't one per image then.",
    ),
    _row(
        row="Z20",
        where="Table 2, FastMRI",
        severity="o",
        printed="epsilon = 0.16",
        proven="it is a figure per slice of 34742; nothing follows per patient without a bound on the slices a patient has",
        why="Group privacy: k slices of one patient are k records.",
        here="A guarantee per slice says nothing per patient; the unit of this certificate is the one it names.",
    ),
    _row(
        row="Z21",
        where="section 4.1, item 3",
        severity="W",
        printed="noise for pure epsilon-DP isn't circular in the complex plane",
        proven="density proportional to exp(-|z| / b) is circular and (Delta / b)-DP",
        why="||z - a| - |z - a'|| <= |a - a'|, so log densities differ by at most Delta / b. Elliptical Laplace laws fail, others don't.",
    ),
    _row(
        row="Z22",
        where="Algorithm 1, clipping",
        severity="O",
        printed="g / max(1, |g| / B)",
        proven="a per-example gradient that isn't finite must count as zero before its norm is taken",
        why="An infinity divided by itself is NaN and NaN survives every norm: the sum then shows that the record was there.",
        here="A gradient that isn't finite slips through printed clipping and marks its record; it must count as zero before clipping.",
    ),
    _row(
        row="Z23",
        where="section 5.3 and appendix A.6.3, SpeechCommands",
        severity="N",
        printed="2000 samples of each of 10 words, 8000 examples, 7200 and 800, 8 output units",
        proven="the counts contradict each other; sampling rate 0.009 agrees with lots of 64 out of 7200",
        why="10 times 2000 isn't 8000, and 10 classes don't fit 8 units.",
    ),
    _row(
        row="Z24",
        where="appendix A.6.4, batch normalisation on single samples",
        severity="OK",
        printed="without running statistics and with batches of one it becomes instance normalisation",
        proven="right: each example's gradient is then a function of that example alone",
        why="No statistic is shared between examples.",
    ),
)
