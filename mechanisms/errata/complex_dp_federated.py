r"""Rows on "Complex-valued federated learning with differential privacy and MRI applications"."""

from __future__ import annotations

from functools import partial

from zetadp.mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="complex_dp_federated")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="C1",
        where="Definition 1",
        severity="OK",
        printed="N_C(0, 2 sigma^2 I, 2 i gamma I) has variance sigma^2 in each part and correlation rho = gamma / sigma^2",
        proven="right",
        why="E|z|^2 is the sum of both variances, and E z^2 = Var Re - Var Im + 2 i Cov, which is 2 i gamma for equal variances.",
        here="The complex Gaussian of Riess et al. has the stated variance on each real component; the same convention is used here.",
    ),
    _row(
        row="C2",
        where="Theorem 1, 'rho != 1'",
        severity="N",
        printed="rho != 1",
        proven="|rho| < 1",
        why="The covariance has determinant sigma^4 (1 - rho^2), which is also 0 at rho = -1.",
    ),
    _row(
        row="C3",
        where="Theorem 1, equations (3) and (13)",
        severity="L",
        printed="mu^2 = (Delta^2 + 2 |rho| Delta_Re Delta_Im) / (sigma^2 (1 - rho^2))",
        proven="mu^2 is the maximum of r^2 + s^2 + 2 |rho| r s over r <= Delta_Re, s <= Delta_Im, r^2 + s^2 <= Delta^2, divided by the "
        "same denominator",
        why="The form increases in r and s, so its maximum is on the arc or at the corner of the box; the paper adds two maxima that no "
        "single shift attains. With no separate bounds on the parts, mu = Delta / (sigma sqrt(1 - |rho|)).",
        evidence="both parts bounded by Delta only: the printed bound is 1.155 times too large at rho = 0.5, and sqrt(3/2) times in the "
        "limit.",
        here=(
            "Theorem 1 of Riess et al. is valid but loose; here mu is the largest value that the stated sensitivities allow, and it is "
            "attained."
        ),
    ),
    _row(
        row="C4",
        where="appendix A, after equation (13)",
        severity="W",
        printed="no tighter bound can be computed without assumptions on the query",
        proven="the maximum in C3 uses the same three sensitivities, is smaller, and is attained",
        why="It is attained by a query whose values fill the box of half-widths Delta_Re/2 and Delta_Im/2 within the disc of radius "
        "Delta/2.",
    ),
    _row(
        row="C5",
        where="appendix A, equation (11)",
        severity="N",
        printed="plus or minus 2 |rho|: the adversary chooses the sign",
        proven="the sign is that of -rho and is fixed by the mechanism; the bound with |rho| holds because Re and Im may move in either "
        "direction",
        why="Inverting the 2x2 covariance gives (|u|^2 + |v|^2 - 2 rho u.v) / (sigma^2 (1 - rho^2)).",
    ),
    _row(
        row="C6",
        where="section 3: covariances that Theorem 1 doesn't cover",
        severity="L",
        printed="only equal variances are treated; for others only the bound by the smallest eigenvalue is available, mu <= Delta / "
        "sqrt(lambda_min)",
        proven="mu is the largest Mahalanobis length over the intersection of the box and the disc of C3, with the inverse of the "
        "covariance itself",
        why="On the arc the squared length is a sinusoid in twice the angle, so its maximum is at the sinusoid's peak or at an end of the "
        "arc.",
        here="For unequal or correlated components, the worst direction of the shift is needed; here mu is computed along it.",
    ),
    _row(
        row="C7",
        where="section 3, remark on Corollary 1",
        severity="W",
        printed="rho != 0 can never improve privacy",
        proven="true if only Delta, Delta_Re and Delta_Im are known; false for queries that move along a known direction",
        why="By convexity, for a set of shifts closed under conjugation, Sigma(rho) is no better than the average of Sigma(rho) and "
        "Sigma(-rho). For q = (1 + i) t alone, mu^2 = 2 t^2 / (sigma^2 (1 + rho)), which decreases with rho.",
    ),
    _row(
        row="C8",
        where="section 3, equation (4): circular noise is optimal",
        severity="W",
        printed="at equal mean squared error, circular noise gives the best privacy",
        proven="only if min(Delta_Re, Delta_Im) >= Delta / sqrt(2); otherwise variances in the ratio sqrt(Delta^2 - m^2) to m are better, "
        "where m is that minimum",
        why="The worst shift is at a vertex (X, Y) of the box and disc in squared coordinates, and X/v1 + Y/v2 with v1 + v2 = V is "
        "smallest for v1 : v2 = sqrt(X) : sqrt(Y) (Cauchy and Schwarz).",
        evidence="Delta = sqrt(10), Delta_Re = 3, Delta_Im = 1, V = 2: mu^2 is 8 instead of 10.",
    ),
    _row(
        row="C9",
        where="section 2, adjacency by adding, removing or replacing",
        severity="O",
        printed="noise sigma B gives mu = 1 / sigma per step",
        proven="right for adding or removing a record; replacing one needs 2B, so mu = 2 / sigma, and a different pair under sampling",
        why="Two clipped gradients may point in opposite directions.",
        here=(
            "With the same noise, mu is twice as large if a record is replaced rather than added or removed; the adjacency is stated above."
        ),
    ),
    _row(
        row="C10",
        where="section 5, 'all stated guarantees are per patient'",
        severity="O",
        printed="the epsilons of Table 1 hold per patient",
        proven="only if gradients are clipped and sampled per patient; if this is done per image, a patient's 80 images multiply mu by 80",
        why="The 484 patients have 38720 images, and mu for a group of k records is k times as large.",
        here=(
            "A guarantee per image isn't a guarantee per patient if a patient has many images; this certificate holds for the unit that it "
            "names."
        ),
    ),
    _row(
        row="C11",
        where="section 5, delta = 10^-3",
        severity="o",
        printed="delta = 10^-3",
        proven="this is below one over the number of patients (484) but above one over the number of images per node (3520), so it fits "
        "only the patient as the unit",
        why="A delta above 1/n allows publishing a random record in full.",
        here=(
            "The delta of 1e-3 in Riess et al. is below one over the number of patients and above one over the number of their images, and "
            "a delta above 1/n allows publishing a random unit in full; compare the delta certified here with the number of units stated "
            "here."
        ),
    ),
    _row(
        row="C12",
        where="section 5, inputs normalised by whitening",
        severity="o",
        printed="inputs are whitened",
        proven="harmless per image; statistics of the whole data set would be a separate release",
        why="Anything that depends on several records and is used unprotected is outside the accounting.",
    ),
    _row(
        row="C13",
        where="section 5 and Table 1",
        severity="N",
        printed="epsilon in [1, 3, 5, 10] in the text, 1, 3, 5, 8, 10 in the table",
        proven="8 is missing from the text",
        why="Table 1 has a row for it.",
    ),
    _row(
        row="C14",
        where="section 5, test records",
        severity="N",
        printed="110 test records to each of 11 nodes",
        proven="110 in total",
        why="11 times 110 is more records than there are.",
    ),
    _row(
        row="C15",
        where="section 4, Mish",
        severity="W",
        printed="x tanh(log(e^x + 1) / x)",
        proven="x tanh(log(1 + e^x))",
        why="Softplus isn't divided by x; the two agree only at x = 1.",
    ),
    _row(
        row="C16",
        where="section 4, equation (6), ConjMish",
        severity="N",
        printed="a non-linearity of the phase",
        proven="(1 + i) (Mish(Re z) + i Mish(Im z)): Mish on each part, rotated by 45 degrees and scaled by sqrt(2)",
        why="Expand the product.",
    ),
    _row(
        row="C17",
        where="section 4, complex GroupNorm",
        severity="O",
        printed="differentiable and compatible with DP",
        proven="its per-example gradients exist, except where the 2x2 covariance has equal eigenvalues or a group has one element",
        why="The backward pass of a singular value decomposition divides by differences of eigenvalues; the NaN passes through the "
        "clipping (Z22). The closed form of a 2x2 inverse square root with a positive floor has no such point.",
    ),
    _row(
        row="C18",
        where="Algorithm 1",
        severity="OK",
        printed="N_C(0, 2 B^2 sigma^2 I, 0), divided by R",
        proven="right for adding or removing a record, where R is the expected batch size",
        why="The noise has standard deviation sigma B on each real component, and the full real gradient has the clipping bound B.",
        here=(
            "Algorithm 1 of Riess et al. (std sigma B per component, divided by the expected batch size) is right for adding or removing a "
            "record."
        ),
    ),
    _row(
        row="C19",
        where="section 3, definition of f-DP",
        severity="N",
        printed="T(q(D), q(D'))",
        proven="T(M(D), M(D'))",
        why="The trade-off function is between outputs of the mechanism, not between queries.",
    ),
)
