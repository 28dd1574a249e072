r"""One row of the errata: a statement of a paper, and what is true of the same quantity."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import StringConstraints

from mechanisms.base import Value

Paper = Literal["zeta_dp", "complex_dp_federated", "spof", "complex_feature_obfuscation", "spectral_dp"]

Severity = Literal["O", "o", "W", "L", "N", "U", "OK"]

SEVERITIES: dict[Severity, str] = {
    "O": "overclaims: built or certified as printed, it promises more privacy than there is",
    "o": "overclaims under one reading that the text leaves open",
    "W": "wrong, but nobody's privacy suffers from it",
    "L": "loose: it holds, and a smaller figure holds as well",
    "N": "notation, a slip of the pen or an inconsistency",
    "U": "an empirical or utility claim that its evidence doesn't carry",
    "OK": "checked and found right",
}

RowName = Annotated[str, StringConstraints(strict=True, pattern=r"^[ZCSOP][1-9][0-9]?$")]


@final
class Erratum(Value):
    r"""One row.

    Attributes:
      row: its id; the letter stands for the paper.
      paper: whose statement it is.
      where: its theorem, equation, algorithm, table or section.
      severity: what the error means for someone who relies on the print; ``SEVERITIES`` explains each.
      printed: the paper's statement.
      proven: what is true instead.
      why: the proof in brief.
      evidence: figures that anyone can recompute, if they say more than the proof.
      here: what this service does instead, in one line for the reader of a certificate; None if the row concerns none of its runs.
    """

    row: RowName
    paper: Paper
    where: str
    severity: Severity
    printed: str
    proven: str
    why: str
    evidence: str | None = None
    here: str | None = None
