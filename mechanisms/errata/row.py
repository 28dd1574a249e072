r"""One row of the errata: a statement of a paper, and what is true of the same quantity."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import StringConstraints, WithJsonSchema

from zetadp.mechanisms.base import Value

Paper = Literal["zeta_dp", "complex_dp_federated", "spof", "complex_feature_obfuscation", "spectral_dp"]

Severity = Annotated[
    Literal["O", "o", "W", "L", "N", "U", "OK"],
    # Not as an enum: generators make the same name of O and o.
    WithJsonSchema({"type": "string", "pattern": "^(O|o|W|L|N|U|OK)$"}),
]

SEVERITIES: dict[Severity, str] = {
    "O": "overclaims: built or certified as printed, it promises more privacy than it gives",
    "o": "overclaims under one reading that the text leaves open",
    "W": "wrong, but without harm to privacy",
    "L": "loose: it holds, but a smaller figure holds too",
    "N": "notation, a typo or an inconsistency",
    "U": "an empirical or utility claim that its evidence doesn't support",
    "OK": "checked and found right",
}

RowName = Annotated[str, StringConstraints(strict=True, pattern=r"^[ZCSOP][1-9][0-9]?$")]


@final
class Erratum(Value):
    r"""One row.

    Attributes:
      row: its id; the letter stands for the paper.
      paper: the paper that makes the statement.
      where: the theorem, equation, algorithm, table or section of the statement.
      severity: what the error means for someone who relies on the printed statement; ``SEVERITIES`` explains each.
      printed: the paper's statement.
      proven: what is true instead.
      why: the proof in brief.
      evidence: figures that anyone can recompute, if they add something to the proof.
      here: what this service does instead, in one line for the reader of a certificate; None if the row doesn't concern any of its runs.
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
