r"""Rows on SPOF (stabilisation of a perturbed loss function). Equation numbers are the paper's; s is the logistic function at a."""

from __future__ import annotations

from functools import partial

from zetadp.mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="spof")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="S1",
        where="section IV, second derivative of f_2",
        severity="W",
        printed="-(1 - x) e^-a / (1 + e^-a)^2",
        proven="+(1 - x) s (1 - s)",
        why="Softplus is convex, so its second derivative is positive.",
        here="SPOF prints a second derivative with the wrong sign; here every expansion is of the loss itself, with the right derivatives.",
    ),
    _row(
        row="S2",
        where="equations (8), (9) and (43)",
        severity="W",
        printed="the second-order term without its factor 1/2",
        proven="f''(a) / 2",
        why="This is Taylor's formula.",
        here="SPOF's printed expansion omits the factor 1/2 of its second-order term; here the factor is included.",
    ),
    _row(
        row="S3",
        where="equations (11) and (12)",
        severity="W",
        printed="alpha_3 = x/2 - 1/4, which depends on the data",
        proven="alpha_3 = s (1 - s) / 2, which is 1/8 at a = 0, whatever the data",
        why="The loss is softplus(z) - x z: x appears only in the linear term. Every sensitivity after this equation changes with it.",
        evidence="x = 1, z = 2: the loss is 0.127, its correct expansion is 0.193, and the printed one is 0.693.",
        here=(
            "In SPOF's printed expansion, the second-order coefficient depends on the record; the right one is public, and only the "
            "coefficient of z is private and gets noise."
        ),
    ),
    _row(
        row="S4",
        where="Proposition 1",
        severity="W",
        printed="one constant G bounds every derivative from the third on",
        proven="no constant does; the remainder is at most d^3 / (36 sqrt(3)), or d^4 / 192 at a = 0, where d = |z - a|",
        why="The derivative of softplus has poles at distance sqrt(a^2 + pi^2), so at a = 0 its derivatives grow like r! / pi^r, and the "
        "series converges only within that distance; |softplus'''| <= 1 / (6 sqrt(3)) and |softplus''''| <= 1/8.",
        evidence="the 20th derivative at 0 is -2.77e7.",
        here=(
            "No constant bounds all derivatives of the loss, contrary to SPOF's Proposition 1; here privacy doesn't depend on the "
            "remainder."
        ),
    ),
    _row(
        row="S5",
        where="equations (22) and (23)",
        severity="L",
        printed="sensitivity 3 n / 2",
        proven="n for the correct loss; 3 n / 2 is right for the printed pair of coefficients, and n / 2 for their sum",
        why="With records in [0, 1], alpha_2 = 1/2 - x changes by up to 1 and the printed alpha_3 by up to 1/2; the correct alpha_3 "
        "doesn't change.",
        here="SPOF's sensitivity 3 n / 2 counts a public coefficient; here the sensitivity counts only what depends on the record.",
    ),
    _row(
        row="S6",
        where="Proposition 2, appendix C.I",
        severity="L",
        printed="the summed query with Lap(3 n / (2 epsilon)) is epsilon-DP",
        proven="it is (epsilon / 3)-DP",
        why="The sum alpha_2 + alpha_3 has sensitivity n / 2.",
        here=(
            "SPOF's noise for the summed coefficients is three times what their sensitivity requires; here the noise is what the "
            "sensitivity requires."
        ),
    ),
    _row(
        row="S7",
        where="Algorithm 1, step 5",
        severity="O",
        printed="Lap(Delta / (sqrt(2) epsilon)) on alpha_2 and on alpha_3 gives epsilon",
        proven="releasing both costs sqrt(2) epsilon at c = 0; with the correct loss, where only alpha_2 is private, it costs 2 sqrt(2) / "
        "3 epsilon",
        why="The pure epsilon is the l1 sensitivity 3 n / 2 divided by the scale 3 n / (2 sqrt(2) epsilon); Laplace noise attains it.",
        here=(
            "SPOF's Algorithm 1 uses one coefficient's noise for two and spends sqrt(2) epsilon; here every released number counts in the "
            "l1 sensitivity that is charged."
        ),
    ),
    _row(
        row="S8",
        where="section V, splitting the noise",
        severity="O",
        printed="noise of variance (Delta / epsilon)^2 is split into two Laplace halves",
        proven="Lap(d) has variance 2 d^2; read as variances, the halves have scale Delta / (2 epsilon) and cost 2 epsilon",
        why="Two releases compose by adding their epsilons, each of which is sensitivity divided by scale; variances play no part in it, "
        "and the sum of two Laplace variables isn't a Laplace variable.",
        here="Splitting a Laplace scale as if variances added up doubles epsilon; here every Laplace release is charged l1 / scale.",
    ),
    _row(
        row="S9",
        where="Definition 2, section VIII",
        severity="O",
        printed="the sensitivity is a maximum over all of R^(m x n); the data are divided by their column maxima",
        proven="over all of R it is infinite; records must be clipped to [0, 1] with public scales",
        why="The coefficients are linear in x, and a maximum of a private column is itself an unaccounted release.",
        here=(
            "Without a public box, a record's sensitivity is infinite, and a scale computed from the data is a release; here the box is "
            "part of the mechanism, and values outside it are refused."
        ),
    ),
    _row(
        row="S10",
        where="equation (31)",
        severity="W",
        printed="the coefficient of z is alpha_2 (1 + 2 c), the constant c^2 alpha_3",
        proven="they are alpha_2 + 2 c alpha_3 and c alpha_2 + c^2 alpha_3; with the printed alpha_3, alpha_2 (1 - c) and alpha_2 (c - "
        "c^2/2)",
        why="Expand alpha_2 (z + c) + alpha_3 (z + c)^2. With the correct loss, c adds nothing that depends on x to the coefficient of z.",
        here="SPOF expands a stabilisation constant wrongly; here a public constant changes nothing that depends on the record.",
    ),
    _row(
        row="S11",
        where="Proposition 3, equation (32)",
        severity="L",
        printed="3 n / 2 + n c (c / 2 + 2)",
        proven="n for the correct loss (n (1 + |c|) with its constant); n (|1 - c| + 1/2) for the printed loss expanded correctly, and n "
        "|c - c^2/2| more with its constant; so the printed value is loose for c >= 0 only",
        why="Add up the largest changes of the coefficients in S10.",
        evidence="c = 2.5: the printed value is 9.625 n.",
        here=(
            "SPOF's sensitivity with a stabilisation constant is that of a wrongly expanded loss; in the right expansion, a public "
            "constant leaves the sensitivity of the coefficients of z at n."
        ),
    ),
    _row(
        row="S12",
        where="equation (33), third line",
        severity="N",
        printed="|alpha_2 c|",
        proven="2 |alpha_2 c|",
        why="The line above it has alpha_2 (1 + 2 c).",
        here="SPOF misplaces a factor of 2 in the sensitivity with a constant; no such formula is used here.",
    ),
    _row(
        row="S13",
        where="Algorithm 1, c_j = c . h_j(x_j) in the noise scale",
        severity="O",
        printed="a noise scale that contains c_j",
        proven="no epsilon holds at all; c_j must be replaced by a bound that doesn't depend on the data, c_j < c l for l hidden units",
        why="The ratio of Laplace densities with two different scales grows without bound in the tail, so extreme outputs distinguish the "
        "scales.",
        here=(
            "If a stabilisation constant is computed from the record's own code, the noise scale depends on the record, which is private "
            "at no epsilon; here the constant is a public number."
        ),
    ),
    _row(
        row="S14",
        where="Algorithm 1, line 6, and the claim that learning from the perturbed loss is private",
        severity="O",
        printed="parameters learned by minimising the perturbed loss are DP",
        proven="they aren't: z is computed from the raw x_j, and the encoder's gradient is a multiple of x_j",
        why="By the chain rule, the gradient with respect to W_j is x_j times a vector; noise in the coefficients changes that vector's "
        "size, not the direction x_j, so one update reveals x_j at any epsilon.",
        here=(
            "Noise on a loss's coefficients protects nothing while gradients use the raw record; only what was computed from the released "
            "records alone is covered here."
        ),
    ),
    _row(
        row="S15",
        where="section VIII, Figure 1",
        severity="O",
        printed="the hospital receives h_1, ..., h_m",
        proven="there is no guarantee against the hospital",
        why="h_j is a deterministic function of x_j without noise; two records give two different outputs with certainty.",
        here=(
            "In SPOF, the decoder's owner gets codes of raw records, which no noise protects; here codes are computed from released "
            "records, or aren't released."
        ),
    ),
    _row(
        row="S16",
        where="Algorithm 1: one epsilon for the training",
        severity="O",
        printed="epsilon",
        proven="T releases with fresh noise cost T sqrt(2) epsilon, and k times that for a user with k rows",
        why="This is basic composition, which is tight for pure Laplace releases.",
        here="Fresh noise in every pass means a release in every pass; here each release is counted, and so is every record of a unit.",
    ),
    _row(
        row="S17",
        where="comparison with the functional mechanism",
        severity="W",
        printed="the functional mechanism is SPOF with m = 1 and c = 0",
        proven="it perturbs coefficients summed over all records, once, through a trusted curator; SPOF perturbs each record's "
        "coefficients, again and again",
        why="The two differ in what is released, how often, and to whom.",
        here=(
            "The functional mechanism isn't a special case of SPOF: it perturbs sums over all records, once; this certificate says which "
            "of the two was released."
        ),
    ),
    _row(
        row="S18",
        where="section V, parallel composition",
        severity="o",
        printed="each user keeps epsilon",
        proven="this holds across users for one release each, but not across epochs or rows of one user, nor for h_j",
        why="Parallel composition is for disjoint data; repeated releases of the same data add up (S16).",
        here="SPOF's parallel composition holds across people for one release each; here every row of one unit is charged to that unit.",
    ),
    _row(
        row="S19",
        where="Theorem 1, equations (13) and (44)",
        severity="W",
        printed="alpha_3 becomes b_j alpha_3",
        proven="b_j^2 alpha_3",
        why="Substitute z = b_j z' into the square, as equation (42) does.",
        here="SPOF prints a coefficient of the aggregated loss with b instead of b^2; no such formula is used here.",
    ),
    _row(
        row="S20",
        where="equations (36) to (39)",
        severity="O",
        printed="b_j = 1 without noise, and less noise is needed where b_j < 1",
        proven="b_j is a sum of l terms and equals l without noise; the coefficients b alpha_2 and b^2 alpha_3 have sensitivity n (b + "
        "b^2/2)",
        why="Each of the l terms is 1 if the noise is 0, so the comparison starts from the wrong value.",
        evidence="b = 7, n = 14: the sensitivity is 441, and the printed value is 147.",
        here=(
            "SPOF claims that scaling coefficients by a record's own factor b lowers their sensitivity; here nothing private scales what "
            "is released."
        ),
    ),
    _row(
        row="S21",
        where="appendix C.II, Proposition 4",
        severity="O",
        printed="the privacy noise may be reduced by b_j(x_j, n_j)",
        proven="no epsilon holds; only a supremum over all data would do, and b is unbounded as h tends to 0",
        why="As in S13, the scale depends on private data.",
        here="Reducing the noise by a factor that depends on the record is private at no epsilon; here the noise scale is public.",
    ),
    _row(
        row="S22",
        where="equations (50), (51) and (53)",
        severity="W",
        printed="y = x / (1 - h x + h), density factor (1 + h) / (1 - h x + h)^2",
        proven="y = x (1 - h) / (1 - h x), factor (1 - h) / (1 - h x)^2, 0 < x < 1/h; the distribution function is Phi(log(y) / s), where "
        "s is the standard deviation of D",
        why="Solve x (1 + h (y - 1)) = y for y. The printed density doesn't integrate to 1.",
        here="SPOF prints the distribution of an environmental noise wrongly; here only noise that the service draws is counted.",
    ),
    _row(
        row="S23",
        where="appendix F.II",
        severity="W",
        printed="Var(W n) = sigma^2 |W|",
        proven="sigma^2 |W|^2",
        why="The variances of independent terms add up, each times the square of its coefficient.",
        here="SPOF prints a variance with a norm instead of its square; here only noise that the service draws is counted.",
    ),
    _row(
        row="S24",
        where="Figure 5, Proposition 4, Remark 2",
        severity="O",
        printed="Pr[b_max < 1] >= 1/2 for enough environmental noise",
        proven="at most 2^-|D| for |D| independent entries, for every sigma and h",
        why="b_max < 1 needs every entry to be below 1/l <= 1, so every log-ratio D must be negative, and each is negative with "
        "probability at most 1/2.",
        here=(
            "SPOF says that environmental noise reduces the required noise with probability 1/2, but that probability is at most "
            "2^-records; here environmental noise earns no discount."
        ),
    ),
    _row(
        row="S25",
        where="equation (58)",
        severity="W",
        printed="a sensitivity that is smallest near a = 0.9",
        proven="2 (log(1 + e^|a|) + s(|a|) + s (1 - s)), which is even in a and smallest exactly at a = 0: 2 log 2 + 3/2",
        why="Logarithms are misplaced, a sum replaces a difference, and one factor 2 is missing; the corrected sum grows with |a|.",
        here="SPOF prints a bound on the loss with misplaced terms; here privacy doesn't depend on it.",
    ),
    _row(
        row="S26",
        where="choice of the expansion point a",
        severity="L",
        printed="the sensitivity depends on a",
        proven="what a gradient uses has sensitivity n for every a and c",
        why="x enters the loss only as -x z (S3).",
        here="SPOF's sensitivity depends on the expansion point; everything that a gradient uses has sensitivity n at every point.",
    ),
    _row(
        row="S27",
        where="equations (26) and (65)",
        severity="O",
        printed="2 e^a / (1 + e^a) per coordinate",
        proven="1 for every a; the triangle inequality alone gives 2 max(s, 1 - s)",
        why="The gradient is s - x, so a record changes it by |x - x'| <= 1; for a < 0 the printed value is smaller.",
        evidence="a = -2: the printed value is 0.238, so the true epsilon is 4.2 times the claimed one.",
        here=(
            "SPOF's sensitivity of a gradient is too small for negative expansion points; here the sensitivity is the bound that gradients "
            "are clipped to."
        ),
    ),
    _row(
        row="S28",
        where="equation (26), 2 n C",
        severity="L",
        printed="2 n C for clipping norm C",
        proven="min(n, 2 sqrt(n) C)",
        why="Clipped vectors have l2 norm at most C, so their l1 distance is at most 2 sqrt(n) C, and clipping never takes them out of the "
        "box of side 1.",
        evidence="n = 14, C = 4: the printed value is 112 instead of 14.",
        here="SPOF's l1 sensitivity of a clipped gradient is loose; here the sensitivity is that of the norm that is clipped.",
    ),
    _row(
        row="S29",
        where="equations (26) and (27), two branches",
        severity="O",
        printed="one noise scale if the gradient's norm is below C, another otherwise",
        proven="one scale, whatever the data",
        why="Which branch was taken is private, and the two scales reveal it (S13).",
        here="A noise scale chosen by a gradient's private norm is private at no epsilon; here every step uses one public scale.",
    ),
    _row(
        row="S30",
        where="equation (27), second branch",
        severity="O",
        printed="sensitivity 2 C after b_j g / max(1, |g| / C)",
        proven="2 b_j C, or clip b_j g itself",
        why="The factor b_j is outside the clipping, so the norm can reach b_j C.",
        here="Clipping before scaling by b gives b times the sensitivity; here nothing is scaled between clipping and adding noise.",
    ),
    _row(
        row="S31",
        where="section VII, 'DP-SGD'",
        severity="O",
        printed="noise is added to the gradient with respect to z, which is then back-propagated",
        proven="this isn't DP-SGD: the gradients of the weights are that noisy number times h_j and x_j",
        why="As in S14, the direction is the record.",
        here=(
            "SPOF's DP-SGD clips only the gradient at the output, and the gradients of the weights still reveal the record; here whole "
            "gradients are clipped."
        ),
    ),
    _row(
        row="S32",
        where="appendix G, operation counts",
        severity="OK",
        printed="364 against 1403 operations, 74 % fewer",
        proven="right: (19 + l) n and 80 n + 283 for n = 14, l = 7",
        why="This is arithmetic.",
        here="SPOF's operation counts can be reproduced; they say nothing about privacy.",
    ),
    _row(
        row="S33",
        where="section V, step 3: choosing c",
        severity="o",
        printed="c is swept until accuracy no longer changes",
        proven="this is a selection on private data, outside the accounting",
        why="Every run that was looked at is a release.",
        here=(
            "SPOF chooses its constant by accuracy on private data, which isn't accounted for; what a choice here costs is listed under "
            "what isn't covered."
        ),
    ),
)
