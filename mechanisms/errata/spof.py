r"""Rows on SPOF (stabilisation of a perturbed loss function). Equations are the paper's; s is the logistic function at the point a."""

from __future__ import annotations

from functools import partial

from mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="spof")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="S1",
        where="section IV, second derivative of f_2",
        severity="W",
        printed="-(1 - x) e^-a / (1 + e^-a)^2",
        proven="+(1 - x) s (1 - s)",
        why="Softplus is convex, so its second derivative is positive.",
        here="A second derivative is printed with the wrong sign; here every expansion is of the loss itself, whose derivatives are right.",
    ),
    _row(
        row="S2",
        where="equations (8), (9) and (43)",
        severity="W",
        printed="the second-order term without its factor 1/2",
        proven="f''(a) / 2",
        why="Taylor's formula.",
        here="The printed expansion loses the factor 1/2 of its second-order term; here it is there.",
    ),
    _row(
        row="S3",
        where="equations (11) and (12)",
        severity="W",
        printed="alpha_3 = x/2 - 1/4, which depends on the data",
        proven="alpha_3 = s (1 - s) / 2, 1/8 at a = 0, whatever the data",
        why="The loss is softplus(z) - x z: x meets z only in the linear term. Every sensitivity after this equation changes with it.",
        evidence="x = 1, z = 2: the loss is 0.127, its correct expansion 0.193, the printed one 0.693.",
        here=(
            "SPOF's printed expansion makes its second-order coefficient depend on the record; the right one is public, and only that "
            "of z is private and noised."
        ),
    ),
    _row(
        row="S4",
        where="Proposition 1",
        severity="W",
        printed="one constant G bounds every derivative from the third on",
        proven="none does; the remainder is at most d^3 / (36 sqrt(3)), or d^4 / 192 at a = 0, with d = |z - a|",
        why="Softplus has poles of its derivative at distance sqrt(a^2 + pi^2), so its derivatives grow like r! / pi^r and the series ends "
        "there; |softplus'''| <= 1 / (6 sqrt(3)) and |softplus''''| <= 1/8.",
        evidence="the 20th derivative at 0 is -2.77e7.",
        here="No constant bounds all derivatives of the loss, as its Proposition 1 wants; here nothing of privacy rests on the remainder.",
    ),
    _row(
        row="S5",
        where="equations (22) and (23)",
        severity="L",
        printed="sensitivity 3 n / 2",
        proven="n for the correct loss; 3 n / 2 is right for the printed pair of coefficients, n / 2 for their sum",
        why="With records in [0, 1] alpha_2 = 1/2 - x moves by 1 and the printed alpha_3 by 1/2; the correct one doesn't move.",
        here="Its sensitivity 3 n / 2 counts a public coefficient; here only what depends on the record is in the sensitivity.",
    ),
    _row(
        row="S6",
        where="Proposition 2, appendix C.I",
        severity="L",
        printed="the summed query with Lap(3 n / (2 epsilon)) is epsilon-DP",
        proven="it is (epsilon / 3)-DP",
        why="The sum alpha_2 + alpha_3 has sensitivity n / 2.",
        here="Its noise for the summed coefficients is three times what their sensitivity asks for; here it is that of the sensitivity.",
    ),
    _row(
        row="S7",
        where="Algorithm 1, step 5",
        severity="O",
        printed="Lap(Delta / (sqrt(2) epsilon)) on alpha_2 and on alpha_3 gives epsilon",
        proven="releasing both costs sqrt(2) epsilon at c = 0; with the correct loss, where only alpha_2 is private, 2 sqrt(2) / 3 epsilon",
        why="Pure epsilon is the l1 sensitivity 3 n / 2 over the scale 3 n / (2 sqrt(2) epsilon); Laplace noise attains it.",
        here=(
            "Its Algorithm 1 puts one coefficient's noise on two and spends sqrt(2) epsilon; here every released number is in the l1 "
            "sensitivity that is charged."
        ),
    ),
    _row(
        row="S8",
        where="section V, splitting the noise",
        severity="O",
        printed="noise of variance (Delta / epsilon)^2 split into two Laplace halves",
        proven="Lap(d) has variance 2 d^2; read as variances the halves have scale Delta / (2 epsilon) and cost 2 epsilon",
        why="Two releases compose by adding their epsilons, each sensitivity over scale; variances have no part in it, and the sum of two "
        "Laplace variables isn't one.",
        here="Splitting a Laplace scale as if variances added doubles epsilon; here every Laplace release is charged l1 / scale.",
    ),
    _row(
        row="S9",
        where="Definition 2, section VIII",
        severity="O",
        printed="the sensitivity is a maximum over all of R^(m x n); data are divided by their column maxima",
        proven="over all of R it is infinite; records must be clipped to [0, 1] at public scales",
        why="Coefficients are linear in x, and a maximum of the private column is itself a release that nobody accounted for.",
        here=(
            "Without a public box a record's sensitivity is infinite, and a scale taken from the data is a release; here the box is "
            "part of the mechanism, and values outside are refused."
        ),
    ),
    _row(
        row="S10",
        where="equation (31)",
        severity="W",
        printed="coefficient alpha_2 (1 + 2 c) of z, constant c^2 alpha_3",
        proven="alpha_2 + 2 c alpha_3 and c alpha_2 + c^2 alpha_3; with the printed alpha_3: alpha_2 (1 - c), alpha_2 (c - c^2/2)",
        why="Expand alpha_2 (z + c) + alpha_3 (z + c)^2. With the correct loss c adds nothing that depends on x to the coefficient of z.",
        here="A stabilisation constant is expanded wrongly; here a public constant changes no coefficient that depends on the record.",
    ),
    _row(
        row="S11",
        where="Proposition 3, equation (32)",
        severity="L",
        printed="3 n / 2 + n c (c / 2 + 2)",
        proven="n for the correct loss (n (1 + |c|) with its constant); n (|1 - c| + 1/2) for the printed loss expanded correctly, more by "
        "n |c - c^2/2| with its constant; so the print is loose for c >= 0 only",
        why="Add the largest moves of the coefficients that S10 gives.",
        evidence="c = 2.5: printed 9.625 n.",
        here=(
            "Its sensitivity with a stabilisation constant is that of a wrongly expanded loss; in the right one a public constant "
            "leaves the coefficients of z at n."
        ),
    ),
    _row(
        row="S12",
        where="equation (33), third line",
        severity="N",
        printed="|alpha_2 c|",
        proven="2 |alpha_2 c|",
        why="The line above it has alpha_2 (1 + 2 c).",
        here="A factor of 2 is misplaced in the sensitivity with a constant; no such formula is used here.",
    ),
    _row(
        row="S13",
        where="Algorithm 1, c_j = c . h_j(x_j) in the noise scale",
        severity="O",
        printed="a noise scale that contains c_j",
        proven="no epsilon at all; a bound free of data, c_j < c l for l hidden units, must stand in its place",
        why="Laplace densities of two scales have a ratio that grows without bound in the tail, so outputs far out tell the scales apart.",
        here=(
            "A stabilisation constant computed from the record's own code puts the record into the noise's scale, which is private at "
            "no epsilon; here it is a public number."
        ),
    ),
    _row(
        row="S14",
        where="Algorithm 1, line 6, and the claim that learning from the perturbed loss is private",
        severity="O",
        printed="parameters learned by minimising the perturbed loss are DP",
        proven="they aren't: z is computed from the raw x_j, and the encoder's gradient is a multiple of x_j",
        why="By the chain rule the gradient in W_j is x_j times a vector; noise in coefficients changes that vector's size, not the "
        "direction x_j, so one update gives x_j away at any epsilon.",
        here=(
            "Noise on a loss's coefficients protects nothing while gradients use the raw record; only what was computed from the "
            "released records alone is covered here."
        ),
    ),
    _row(
        row="S15",
        where="section VIII, Figure 1",
        severity="O",
        printed="the hospital receives h_1, ..., h_m",
        proven="no guarantee against the hospital",
        why="h_j is a deterministic function of x_j without noise; two records give two different outputs with certainty.",
        here=(
            "Its decoder's owner gets codes of raw records, which no noise protects; here codes are of released records, or aren't "
            "released."
        ),
    ),
    _row(
        row="S16",
        where="Algorithm 1: one epsilon for the training",
        severity="O",
        printed="epsilon",
        proven="T releases with fresh noise cost T sqrt(2) epsilon, times k for a user with k rows",
        why="Basic composition, which is tight for pure Laplace releases.",
        here="Fresh noise at every pass is a release at every pass; here each one is counted, and so is every record of a unit.",
    ),
    _row(
        row="S17",
        where="comparison with the functional mechanism",
        severity="W",
        printed="the functional mechanism is SPOF with m = 1 and c = 0",
        proven="it perturbs coefficients summed over all records, once, by a trusted curator; SPOF perturbs each record's, again and again",
        why="The two differ in what is released, how often, and to whom.",
        here=(
            "The functional mechanism isn't its special case: that perturbs sums over all records, once; this certificate says which "
            "was released."
        ),
    ),
    _row(
        row="S18",
        where="section V, parallel composition",
        severity="o",
        printed="each user keeps epsilon",
        proven="yes across users and one release each; not across epochs or rows of one user, nor for h_j",
        why="Parallel composition is for disjoint data; repeated releases of the same data add up (S16).",
        here="Its parallel composition holds across people for one release each; here every row of one unit is charged to that unit.",
    ),
    _row(
        row="S19",
        where="Theorem 1, equations (13) and (44)",
        severity="W",
        printed="alpha_3 becomes b_j alpha_3",
        proven="b_j^2 alpha_3",
        why="Put z = b_j z' into the square, as equation (42) does.",
        here="A coefficient of the aggregated loss is printed with b instead of b^2; no such formula is used here.",
    ),
    _row(
        row="S20",
        where="equations (36) to (39)",
        severity="O",
        printed="b_j = 1 without noise, and less noise is needed where b_j < 1",
        proven="b_j is a sum of l terms, l without noise; coefficients b alpha_2 and b^2 alpha_3 have sensitivity n (b + b^2/2)",
        why="Each of the l terms is 1 where the noise is 0, so the comparison starts from the wrong value.",
        evidence="b = 7, n = 14: 441 against the printed 147.",
        here=(
            "Scaling coefficients by a record's own factor b is said to lower their sensitivity; here nothing private scales what is "
            "released."
        ),
    ),
    _row(
        row="S21",
        where="appendix C.II, Proposition 4",
        severity="O",
        printed="privacy noise may shrink by b_j(x_j, n_j)",
        proven="no epsilon; only a supremum over all data would do, and b is unbounded as h tends to 0",
        why="As in S13: a scale that depends on private data.",
        here="Shrinking the noise by a factor that depends on the record is private at no epsilon; here the noise's scale is public.",
    ),
    _row(
        row="S22",
        where="equations (50), (51) and (53)",
        severity="W",
        printed="y = x / (1 - h x + h), density factor (1 + h) / (1 - h x + h)^2",
        proven="y = x (1 - h) / (1 - h x), factor (1 - h) / (1 - h x)^2, 0 < x < 1/h; distribution Phi(log(y) / s), s the deviation of D",
        why="Solve x (1 + h (y - 1)) = y for y. The printed density doesn't integrate to 1.",
        here="The law of an environmental noise is printed wrongly; here no noise counts but what the service draws.",
    ),
    _row(
        row="S23",
        where="appendix F.II",
        severity="W",
        printed="Var(W n) = sigma^2 |W|",
        proven="sigma^2 |W|^2",
        why="Variances of independent terms add, each with its squared coefficient.",
        here="A variance is printed with a norm instead of its square; here no noise counts but what the service draws.",
    ),
    _row(
        row="S24",
        where="Figure 5, Proposition 4, Remark 2",
        severity="O",
        printed="Pr[b_max < 1] >= 1/2 for enough environmental noise",
        proven="at most 2^-|D| for |D| independent entries, for every sigma and h",
        why="b_max < 1 needs every entry below 1/l <= 1, so every log-ratio D negative, and each is so with probability at most 1/2.",
        here=(
            "Environmental noise is said to lower what is needed with probability 1/2, which is at most 2^-records; here it earns no "
            "discount."
        ),
    ),
    _row(
        row="S25",
        where="equation (58)",
        severity="W",
        printed="a sensitivity that is least near a = 0.9",
        proven="2 (log(1 + e^|a|) + s(|a|) + s (1 - s)), even in a, least exactly at a = 0: 2 log 2 + 3/2",
        why="Misplaced logarithms, a sum in place of a difference, and one factor 2 lost; the corrected sum grows with |a|.",
        here="A loss bound is printed with misplaced terms; here nothing of privacy rests on it.",
    ),
    _row(
        row="S26",
        where="choice of the expansion point a",
        severity="L",
        printed="the sensitivity depends on a",
        proven="what a gradient needs has sensitivity n for every a and c",
        why="x enters the loss only as -x z (S3).",
        here="Its sensitivity depends on the expansion point; that of everything a gradient sees is n at every point.",
    ),
    _row(
        row="S27",
        where="equations (26) and (65)",
        severity="O",
        printed="2 e^a / (1 + e^a) per coordinate",
        proven="1 for every a; the triangle inequality alone gives 2 max(s, 1 - s)",
        why="The gradient is s - x, so a record moves it by |x - x'| <= 1; for a < 0 the print is smaller.",
        evidence="a = -2: printed 0.238, so the true epsilon is 4.2 times the claim.",
        here=(
            "Its sensitivity of a gradient is too small for negative expansion points; here it is the bound that gradients are clipped to."
        ),
    ),
    _row(
        row="S28",
        where="equation (26), 2 n C",
        severity="L",
        printed="2 n C for clipping norm C",
        proven="min(n, 2 sqrt(n) C)",
        why="Clipping leaves vectors of l2 norm at most C, whose l1 distance is at most 2 sqrt(n) C, and never takes them out of the box "
        "of side 1.",
        evidence="n = 14, C = 4: 112 against 14.",
        here="Its l1 sensitivity of a clipped gradient is loose; here it is that of the norm that is clipped.",
    ),
    _row(
        row="S29",
        where="equations (26) and (27), two branches",
        severity="O",
        printed="one noise scale where the gradient's norm is below C, another elsewhere",
        proven="one scale, whatever the data",
        why="Which branch was taken is private, and the two scales tell it (S13).",
        here="A noise scale chosen by a gradient's private norm is private at no epsilon; here one public scale serves every step.",
    ),
    _row(
        row="S30",
        where="equation (27), second branch",
        severity="O",
        printed="2 C after b_j g / max(1, |g| / C)",
        proven="2 b_j C, or clip b_j g itself",
        why="The factor b_j stands outside the clip, so the norm can reach b_j C.",
        here="Clipping before scaling by b leaves b times the sensitivity; here nothing is scaled between clipping and noise.",
    ),
    _row(
        row="S31",
        where="section VII, 'DP-SGD'",
        severity="O",
        printed="noise on the gradient in z, then back-propagation",
        proven="not DP-SGD: the gradients in the weights are that noisy number times h_j and x_j",
        why="As in S14: the direction is the record.",
        here=(
            "Its DP-SGD clips the gradient at the output alone, and the weights' gradients still show the record; here whole gradients "
            "are clipped."
        ),
    ),
    _row(
        row="S32",
        where="appendix G, operation counts",
        severity="OK",
        printed="364 against 1403 operations, 74 % fewer",
        proven="right: (19 + l) n and 80 n + 283 for n = 14, l = 7",
        why="Arithmetic.",
        here="Its counts of operations reproduce; they say nothing of privacy.",
    ),
    _row(
        row="S33",
        where="section V, step 3: choosing c",
        severity="o",
        printed="c is swept until accuracy no longer changes",
        proven="a selection by private data, outside the accounting",
        why="Every run that was looked at is a release.",
        here=(
            "Its constant is chosen by accuracy on private data, which nothing pays for; what a choice here costs stands among what "
            "isn't covered."
        ),
    ),
)
