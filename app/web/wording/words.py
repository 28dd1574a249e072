r"""Names, units and explanations of the fields that pages ask for, in plain English."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from zetadp.accountants.attack_sentences import NEIGHBOURS


@final
@dataclass(frozen=True)
class Words:
    """A field's label, its unit, and what it means."""

    label: str
    unit: str
    help: str


FIELDS: dict[str, Words] = {
    "std": Words(
        "Noise: standard deviation",
        "units of the query",
        "Of each real component: the real and the imaginary part of a complex number each have this deviation.",
    ),
    "std_real": Words(
        "Std of the real parts",
        "units of the query",
        "Only if it differs from the imaginary parts'; then leave the common one empty.",
    ),
    "std_imag": Words("Std of the imaginary parts", "units of the query", "Only if it differs from the real parts'."),
    "correlation": Words(
        "Correlation of parts",
        "",
        "Of the noise on real and imaginary parts: 0 for noise without a preferred direction (circular noise).",
    ),
    "scale": Words("Noise: Laplace scale", "units of the query", "The noise's standard deviation is 1.41 times this scale."),
    "epsilon": Words("Epsilon per record", "", "This mechanism has no noise scale: epsilon itself is its parameter."),
    "shape": Words("Signal length per axis", "", "One or two whole numbers, with a comma between them."),
    "kept": Words("Frequencies kept per axis", "", "One whole number for each axis. Filtering adds no privacy."),
    "lower": Words("Lowest value", "", "Of every number in a record. A public bound, chosen without looking at the data."),
    "upper": Words("Highest value", "", "Of every number in a record. A public bound, chosen without looking at the data."),
    "dimension": Words("Numbers per record", "", "A whole number."),
    "expansion_point": Words("Point of the Taylor expansion", "", "The paper uses 0."),
    "stabilisation": Words("Stabilisation constant c", "", "Public and fixed."),
    "sensitivity.l2": Words(
        "Largest effect of one unit",
        "units of the query",
        "How far one unit can move the result, as a Euclidean distance (l2 sensitivity); for example a clipping bound.",
    ),
    "sensitivity.l1": Words(
        "Largest effect of one unit (l1)",
        "units of the query",
        "How far one unit can move the result, as a sum of absolute changes (l1 sensitivity); needed for Laplace noise.",
    ),
    "sensitivity.l2_real": Words("The same for the real parts alone (l2)", "units of the query", "Leave it empty if you don't know it."),
    "sensitivity.l2_imag": Words(
        "The same for the imaginary parts alone (l2)", "units of the query", "Leave it empty if you don't know it."
    ),
    "sensitivity.l2_contribution": Words(
        "What one unit alone adds (l2)", "units of the query", "Needed if units are replaced and samples drawn; otherwise leave it empty."
    ),
    "sensitivity.l1_contribution": Words(
        "What one unit alone adds (l1)", "units of the query", "Needed if units are replaced and samples drawn; otherwise leave it empty."
    ),
    "sensitivity.adjacency": Words("Which data sets are neighbours", "", "Which change of one unit must stay hidden."),
    "sensitivity.unit": Words(
        "What is protected", "", "One unit: a record, an image, a patient. Lowercase letters, digits and underscores."
    ),
    "total_std": Words("Total deviation of a complex coordinate", "units of the query", ""),
    "noise_multiplier": Words("Noise multiplier", "", ""),
    "convention": Words("Standard deviation", "", ""),
    "sampler": Words("Sample size", "", ""),
    "steps": Words("Steps", "", ""),
    "delta": Words("Delta", "", ""),
    "printed_epsilon": Words("Printed epsilon", "", ""),
    "target.epsilon": Words("Epsilon to reach", "", "Together with a delta, instead of the total deviation."),
    "target.delta": Words("Delta to reach", "", "Together with an epsilon."),
    "target.gdp_mu": Words("Mu to reach", "", "Instead of epsilon and delta: Gaussian differential privacy."),
    "target.advantage": Words("Attacker's advantage to reach", "", "True minus false positive rate."),
    "target.rdp.order": Words("Order of a Renyi divergence to reach", "", "Together with its value."),
    "target.rdp.value": Words("Renyi divergence to reach", "", "At that order."),
    "target.trade_off.alpha": Words("Attacker's false positives", "", "Together with the false negatives to reach."),
    "target.trade_off.beta": Words("Attacker's false negatives to reach", "", "At those false positives."),
}

CHOICES: dict[str, str] = {
    **{adjacency.value: words.choice.replace("{unit}", "unit") for adjacency, words in NEIGHBOURS.items()},
    "per_component": "of each real component",
    "total": "of the whole complex number",
    "poisson": "each unit independently (Poisson)",
    "fixed_size": "always the same number",
    "gumbel": "Gumbel (exponential mechanism)",
    "exponential": "exponential (permute-and-flip)",
    "laplace": "Laplace (report noisy max)",
}

EVENT_TITLES: dict[str, str] = {
    "release": "One release",
    "poisson_sampled": "A Poisson sample",
    "truncated_poisson_sampled": "A Poisson sample, cut to a largest size",
    "fixed_size_sampled": "A sample of a fixed size",
    "randomly_allocated": "Each record in one step, drawn at random",
    "shuffled": "Shuffled batches",
    "randomly_weighted": "Each record with a random share",
    "grouped": "A group of records",
    "repeated": "Many releases",
    "repeated_and_selected": "The best of several runs",
    "composed": "Several events together",
    "non_private": "A part without privacy",
}
"""Events by kind, where one chooses what to start from."""

PATTERNS: dict[str, str] = {
    "^[a-z][a-z0-9_]{0,63}$": "lowercase letters, digits and underscores, starting with a letter, at most 64 characters",
}
"""What a text has to match, in words."""


def words_of(path: str) -> Words:
    """The words for a field by its path in the mechanism; KeyError if there are none."""
    return FIELDS[path]
