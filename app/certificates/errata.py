r"""The rows of the errata that can apply to a certified run, each with its meaning in one line.

Papers are full of formulas that promise more than holds. A certificate names the rows that touch its mechanism or algorithm, so that a
reader who knows the paper sees which figure was corrected, and how this run differs from the printed text.
"""

from __future__ import annotations

from typing import Literal, final

from mechanisms.base import Value


@final
class ErratumNote(Value):
    r"""One row.

    Attributes:
      row: its id in the errata.
      severity: O: the printed text overclaims privacy; o: under one reading; W: wrong without harm to privacy; L: loose; OK: checked.
      meaning: what was printed, and what this service does instead.
    """

    row: str
    severity: Literal["O", "o", "W", "L", "OK"]
    meaning: str


class UnknownErratum(LookupError):
    """A mechanism, algorithm or data set names a row that has no text here: nothing is signed until it has one."""

    def __init__(self, row: str) -> None:
        self.row = row
        super().__init__(f"errata row {row!r} has no meaning in app/certificates/errata.py")


_ROWS: tuple[tuple[str, Literal["O", "o", "W", "L", "OK"], str], ...] = (
    (
        "Z1",
        "O",
        "The zeta-DP paper gives each component of its complex noise twice its true deviation; here std is that of one real component.",
    ),
    (
        "Z2",
        "O",
        "Its (epsilon, delta) theorem uses mu = D/sigma where its own noise has sqrt(2) D/sigma; here mu is D/std per real component.",
    ),
    ("Z5", "O", "Its Renyi theorem asks for half the noise variance that is needed; here the divergence is order D^2 / (2 std^2)."),
    ("Z7", "O", "Its Gaussian-DP theorem is off by the same sqrt(2); here mu is D/std per real component."),
    (
        "Z8",
        "O",
        "A bound on a function's slope isn't its sensitivity to one record; here sensitivity is the clipping bound of one record's term.",
    ),
    ("Z10", "O", "Its Algorithm 1, read literally, adds noise of std sigma B / sqrt(2) per component; this run adds the std stated above."),
    ("Z11", "O", "Dividing by a sample's realised size reveals that size; this run divides by the expected batch, a public constant."),
    (
        "Z12",
        "O",
        "Samples of a fixed size cost far more than Poisson samples of the same rate; this run samples by Poisson and is accounted so.",
    ),
    (
        "Z13",
        "O",
        "Epsilon from a central limit theorem isn't an upper bound (it came out a fifth too small); here every figure is the safe "
        "end of a bracket, whose rounding is proved or allowed for as the floating-point caveat says for its route.",
    ),
    ("Z15", "W", "Wirtinger gradients don't lower the noise that privacy needs; this run clips the full real gradient of each record."),
    ("Z19", "O", "Pairing images with replacement puts one image into several records; a guarantee per record isn't one per image then."),
    ("Z20", "o", "A guarantee per slice says nothing per patient; the unit of this certificate is the one it names."),
    (
        "Z22",
        "O",
        "A gradient that isn't finite slips through printed clipping and marks its record; it must count as zero before clipping.",
    ),
    ("C1", "OK", "The complex Gaussian of Riess et al. has the stated variance on each real component; that is the convention here."),
    ("C3", "L", "Their Theorem 1 is valid but loose; here mu is the largest that the stated sensitivities allow, which is attained."),
    ("C6", "L", "Unequal or correlated components need the worst direction of the move; here mu is computed along it."),
    ("C9", "O", "The same noise costs twice the mu when a record is replaced rather than added or removed; the adjacency is named above."),
    ("C10", "O", "A guarantee per image isn't one per patient who has many; the unit of this certificate is the one it names."),
    (
        "C11",
        "o",
        "Its delta of 1e-3 is below one over the patients and above one over their images, and a delta above 1/n allows publishing a "
        "random unit whole; compare the delta certified here with the number of units stated here.",
    ),
    ("C18", "OK", "Their Algorithm 1 (std sigma B per component, divided by the expected batch) is right under add or remove."),
    (
        "S3",
        "W",
        "SPOF's printed expansion makes its second-order coefficient depend on the record; the right one is public, and only that of z "
        "is private and noised.",
    ),
    (
        "S7",
        "O",
        "Its Algorithm 1 puts one coefficient's noise on two and spends sqrt(2) epsilon; here every released number is in the l1 "
        "sensitivity that is charged.",
    ),
    ("S8", "O", "Splitting a Laplace scale as if variances added doubles epsilon; here every Laplace release is charged l1 / scale."),
    (
        "S9",
        "O",
        "Without a public box a record's sensitivity is infinite, and a scale taken from the data is a release; here the box is part of "
        "the mechanism, and values outside are refused.",
    ),
    (
        "S11",
        "L",
        "Its sensitivity with a stabilisation constant is that of a wrongly expanded loss; in the right one a public constant leaves the "
        "coefficients of z at n.",
    ),
    (
        "S13",
        "O",
        "A stabilisation constant computed from the record's own code puts the record into the noise's scale, which is private at no "
        "epsilon; here it is a public number.",
    ),
    (
        "S14",
        "O",
        "Noise on a loss's coefficients protects nothing while gradients use the raw record; only what was computed from the released "
        "records alone is covered here.",
    ),
    ("S16", "O", "Fresh noise at every pass is a release at every pass; here each one is counted, and so is every record of a unit."),
    ("S26", "L", "Its sensitivity depends on the expansion point; that of everything a gradient sees is n at every point."),
    (
        "P1",
        "O",
        "Real noise on complex coefficients leaves their imaginary parts bare; here the noise is white in the real coordinates kept.",
    ),
    ("P2", "O", "Complex noise is easily given half its variance per component; here std always means one real component."),
    (
        "P4",
        "W",
        "A real signal's first K frequencies are min(2 K - 1, N) real numbers, not K; the noise is counted so, and isn't part of mu.",
    ),
    ("P5", "W", "In two dimensions that count is the product over both axes, not K^2; it isn't part of mu either."),
    ("P7", "O", "Clipping a query to S gives it sensitivity 2S, not S; here only sums of clipped per-record terms have sensitivity S."),
    ("P8", "O", "Noise for adding or removing a record is too small for replacing one; the adjacency is named above."),
    ("P11", "o", "The classic sqrt(2 ln(1.25/delta)) / epsilon fails for large epsilon; it is never used here, only the exact formula."),
    ("P16", "O", "Noise fit for a clipped signal is too small for its unnormalised transform; here every transform is unitary."),
    ("P19", "L", "Filtering before clipping is as private and keeps more; here sensitivity may be stated for the filtered query."),
)

_NOTES = {row: ErratumNote(row=row, severity=severity, meaning=meaning) for row, severity, meaning in _ROWS}


def note(row: str) -> ErratumNote:
    """The text of a row.

    Raises:
      UnknownErratum: the row isn't in the table.

    >>> note("C3").severity
    'L'
    """
    if (found := _NOTES.get(row)) is None:
        raise UnknownErratum(row)
    return found
