r"""Rows on "Complex-valued federated learning with differential privacy and MRI applications"."""

from __future__ import annotations

from functools import partial

from mechanisms.errata.row import Erratum

_row = partial(Erratum, paper="complex_dp_federated")

ROWS: tuple[Erratum, ...] = (
    _row(
        row="C1",
        where="Definition 1",
        severity="OK",
        printed="N_C(0, 2 sigma^2 I, 2 i gamma I): variance sigma^2 on each part, correlation rho = gamma / sigma^2",
        proven="right",
        why="E|z|^2 is the sum of both variances, and E z^2 = Var Re - Var Im + 2 i Cov is 2 i gamma for equal variances.",
        here="The complex Gaussian of Riess et al. has the stated variance on each real component; that is the convention here.",
    ),
    _row(
        row="C2",
        where="Theorem 1, 'rho != 1'",
        severity="N",
        printed="rho != 1",
        proven="|rho| < 1",
        why="The covariance has determinant sigma^4 (1 - rho^2), which vanishes at -1 too.",
    ),
    _row(
        row="C3",
        where="Theorem 1, equations (3) and (13)",
        severity="L",
        printed="mu^2 = (Delta^2 + 2 |rho| Delta_Re Delta_Im) / (sigma^2 (1 - rho^2))",
        proven="the maximum of r^2 + s^2 + 2 |rho| r s over r <= Delta_Re, s <= Delta_Im, r^2 + s^2 <= Delta^2, over the same denominator",
        why="The form grows in r and s, so its maximum lies on the arc or in the corner of the box; the print adds two maxima that no "
        "single move reaches. With unbounded parts mu = Delta / (sigma sqrt(1 - |rho|)).",
        evidence="both parts bounded by Delta only: the print is 1.155 times too large at rho = 0.5, and sqrt(3/2) in the limit.",
        here="Their Theorem 1 is valid but loose; here mu is the largest that the stated sensitivities allow, which is attained.",
    ),
    _row(
        row="C4",
        where="appendix A, after equation (13)",
        severity="W",
        printed="no tighter bound can be computed without assumptions on the query",
        proven="C3's maximum uses the same three sensitivities, is smaller, and is attained",
        why="The query whose values fill the box of half widths Delta_Re/2 and Delta_Im/2 within the disc of radius Delta/2 reaches it.",
    ),
    _row(
        row="C5",
        where="appendix A, equation (11)",
        severity="N",
        printed="plus or minus 2 |rho|: the adversary chooses the sign",
        proven="the sign is that of -rho and belongs to the mechanism; the bound with |rho| holds since Re and Im may move either way",
        why="Inverting the 2x2 covariance gives (|u|^2 + |v|^2 - 2 rho u.v) / (sigma^2 (1 - rho^2)).",
    ),
    _row(
        row="C6",
        where="section 3: covariances that Theorem 1 doesn't cover",
        severity="L",
        printed="equal variances only; for others only the smallest eigenvalue is at hand, mu <= Delta / sqrt(lambda_min)",
        proven="mu is the largest Mahalanobis length over the box and disc of C3, with the covariance's own inverse",
        why="On the arc the squared length is a sinusoid of twice the angle, so its maximum is a vertex or a clamped end of the arc.",
        here="Unequal or correlated components need the worst direction of the move; here mu is computed along it.",
    ),
    _row(
        row="C7",
        where="section 3, remark on Corollary 1",
        severity="W",
        printed="rho != 0 can never improve privacy",
        proven="true where only Delta, Delta_Re and Delta_Im are known; false for queries that move along a known direction",
        why="Sets of moves closed under conjugation are no easier for Sigma(rho) than for the average of Sigma(rho) and Sigma(-rho), by "
        "convexity. For q = (1 + i) t alone mu^2 = 2 t^2 / (sigma^2 (1 + rho)), which falls with rho.",
    ),
    _row(
        row="C8",
        where="section 3, equation (4): circular noise is optimal",
        severity="W",
        printed="at equal mean squared error circular noise gives the best privacy",
        proven="only if min(Delta_Re, Delta_Im) >= Delta / sqrt(2); else variances as sqrt(Delta^2 - m^2) to m win, m that minimum",
        why="The worst move sits in a vertex (X, Y) of the squared box and disc, and X/v1 + Y/v2 with v1 + v2 = V is least for "
        "v1 : v2 = sqrt(X) : sqrt(Y) (Cauchy and Schwarz).",
        evidence="Delta = sqrt(10), Delta_Re = 3, Delta_Im = 1, V = 2: mu^2 is 8 against 10.",
    ),
    _row(
        row="C9",
        where="section 2, adjacency by adding, removing or replacing",
        severity="O",
        printed="noise sigma B gives mu = 1 / sigma a step",
        proven="right for adding or removing; replacing needs 2B, so mu = 2 / sigma and another pair under sampling",
        why="Two clipped gradients may point in opposite directions.",
        here="The same noise costs twice the mu when a record is replaced rather than added or removed; the adjacency is named above.",
    ),
    _row(
        row="C10",
        where="section 5, 'all stated guarantees are per patient'",
        severity="O",
        printed="epsilon as in Table 1, per patient",
        proven="only if gradients are clipped and sampled per patient; if per image, a patient's 80 images multiply mu by 80",
        why="484 patients give 38720 images, and a group of k records has k times the mu.",
        here="A guarantee per image isn't one per patient who has many; the unit of this certificate is the one it names.",
    ),
    _row(
        row="C11",
        where="section 5, delta = 10^-3",
        severity="o",
        printed="delta = 10^-3",
        proven="below one over the number of patients (484), above one over the images of a node (3520): fit for the patient unit only",
        why="A delta above 1/n allows publishing a random record whole.",
        here=(
            "Its delta of 1e-3 is below one over the patients and above one over their images, and a delta above 1/n allows publishing "
            "a random unit whole; compare the delta certified here with the number of units stated here."
        ),
    ),
    _row(
        row="C12",
        where="section 5, inputs normalised by whitening",
        severity="o",
        printed="inputs are whitened",
        proven="harmless per image; statistics of the whole data set would be a release of their own",
        why="Whatever depends on several records and is used unprotected is outside the accounting.",
    ),
    _row(
        row="C13",
        where="section 5 and Table 1",
        severity="N",
        printed="epsilon in [1, 3, 5, 10] in the text, 1, 3, 5, 8, 10 in the table",
        proven="the text forgets 8",
        why="Table 1 has a row for it.",
    ),
    _row(
        row="C14",
        where="section 5, test records",
        severity="N",
        printed="110 test records to each of 11 nodes",
        proven="110 in all",
        why="11 times 110 is more than there are.",
    ),
    _row(
        row="C15",
        where="section 4, Mish",
        severity="W",
        printed="x tanh(log(e^x + 1) / x)",
        proven="x tanh(log(1 + e^x))",
        why="Softplus isn't divided by x; both agree at x = 1 alone.",
    ),
    _row(
        row="C16",
        where="section 4, equation (6), ConjMish",
        severity="N",
        printed="a non-linearity of the phase",
        proven="(1 + i) (Mish(Re z) + i Mish(Im z)): Mish on each part, turned by 45 degrees and scaled by sqrt(2)",
        why="Multiply the product out.",
    ),
    _row(
        row="C17",
        where="section 4, complex GroupNorm",
        severity="O",
        printed="differentiable and compatible with DP",
        proven="its per-example gradients exist, but not where the 2x2 covariance has equal eigenvalues or a group has one element",
        why="The backward pass of a singular value decomposition divides by differences of eigenvalues; the NaN passes the clip (Z22). "
        "The closed form of a 2x2 inverse square root with a positive floor has no such point.",
    ),
    _row(
        row="C18",
        where="Algorithm 1",
        severity="OK",
        printed="N_C(0, 2 B^2 sigma^2 I, 0), divided by R",
        proven="right under adding or removing, R being the expected batch",
        why="Deviation sigma B on each real component against a clipping bound B on the full real gradient.",
        here="Their Algorithm 1 (std sigma B per component, divided by the expected batch) is right under add or remove.",
    ),
    _row(
        row="C19",
        where="section 3, definition of f-DP",
        severity="N",
        printed="T(q(D), q(D'))",
        proven="T(M(D), M(D'))",
        why="The trade-off is between outputs of the mechanism, not between queries.",
    ),
)
