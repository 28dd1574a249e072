r"""Names, units and explanations of the fields that pages ask for, in plain English."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Words:
    """What a field is called, what it is measured in, and what it means."""

    label: str
    unit: str
    help: str


FIELDS: dict[str, Words] = {
    "std": Words(
        "Standard deviation of the noise", "units of the query", "Of each real component. A complex number has two of them, each with this."
    ),
    "std_real": Words(
        "Deviation of the real parts",
        "units of the query",
        "Only where it differs from the imaginary parts'; then leave the common one empty.",
    ),
    "std_imag": Words("Deviation of the imaginary parts", "units of the query", "Only where it differs from the real parts'."),
    "correlation": Words(
        "Correlation of real and imaginary noise", "between -1 and 1", "0 for noise without a preferred direction (circular noise)."
    ),
    "scale": Words("Scale b of the Laplace noise", "units of the query", "The noise's standard deviation is 1.41 times that."),
    "epsilon": Words("Epsilon of one record's release", "", "This mechanism has no noise scale: epsilon itself is its parameter."),
    "shape": Words("Length of the signal along each axis", "numbers", "One or two whole numbers, with a comma between them."),
    "kept": Words("Frequencies that are kept along each axis", "numbers", "As many as there are axes. Filtering earns no privacy."),
    "lower": Words("Lower end of every value", "", "A public bound, chosen without looking at the data."),
    "upper": Words("Upper end of every value", "", "A public bound, chosen without looking at the data."),
    "dimension": Words("Numbers in one record", "numbers", "A whole number."),
    "expansion_point": Words("Point of the Taylor expansion", "", "The paper's is 0."),
    "stabilisation": Words("Stabilisation constant c", "", "Public and fixed."),
    "sensitivity.l2": Words(
        "How far one unit can move the result (l2)", "units of the query", "The largest Euclidean distance: a clipping bound, say."
    ),
    "sensitivity.l1": Words(
        "How far one unit can move the result (l1)", "units of the query", "The largest sum of absolute changes; what Laplace noise needs."
    ),
    "sensitivity.l2_real": Words("The same for the real parts alone (l2)", "units of the query", "Leave it empty if you don't know it."),
    "sensitivity.l2_imag": Words(
        "The same for the imaginary parts alone (l2)", "units of the query", "Leave it empty if you don't know it."
    ),
    "sensitivity.l2_contribution": Words(
        "What one unit alone adds (l2)", "units of the query", "Needed where units are replaced and samples are drawn; else leave it empty."
    ),
    "sensitivity.l1_contribution": Words(
        "What one unit alone adds (l1)", "units of the query", "Needed where units are replaced and samples are drawn; else leave it empty."
    ),
    "sensitivity.adjacency": Words("Which data sets are neighbours", "", "Which change of one unit must stay hidden."),
    "sensitivity.unit": Words("What is protected", "", "One unit: a record, an image, a patient. Small letters, digits and underscores."),
}

CHOICES: dict[str, str] = {
    "add_remove": "one unit more or less",
    "replace_one": "one unit's data replaced by another's",
    "zero_out": "one unit's data blanked out",
}

PATTERNS: dict[str, str] = {
    "^[a-z][a-z0-9_]{0,63}$": "small letters, digits and underscores, beginning with a letter, at most 64 in all",
}
"""What a text has to match, in words."""


def words_of(path: str) -> Words:
    """Of a field by its path in the mechanism; KeyError where nobody wrote any."""
    return FIELDS[path]
