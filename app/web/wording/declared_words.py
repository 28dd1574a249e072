r"""Titles and fields of what is only declared: others ran it."""

from __future__ import annotations

from zetadp.app.web.wording.words import Words, words_of

TITLES = {
    "pure_dp": "Epsilon-DP",
    "approximate_dp": "(epsilon, delta)-DP",
    "zcdp": "Zero-concentrated DP",
    "gdp": "Gaussian DP",
    "bounded_range": "A bounded range",
    "noisy_max": "Best of noisy scores",
    "sparse_vector": "The sparse vector technique",
    "discrete_gaussian": "Discrete Gaussian noise",
    "discrete_laplace": "Discrete Laplace noise",
    "discrete_gaussian_sum": "A sum of discrete Gaussians",
    "skellam": "Skellam noise",
    "correlated_noise": "Correlated noise",
    "tree_aggregation": "Tree aggregation",
}
"""A declared kind's name on the pages; its ``kind`` if it has none here."""

_FIELDS = {
    "epsilon": Words("Declared epsilon", "", "Of one release, for every two neighbours."),
    "delta": Words("Declared delta", "", "Of one release. The delta that you ask for above has to be larger than all of these together."),
    "rho": Words("Declared rho", "", "Its Renyi divergence of every order is at most rho times the order."),
    "mu": Words("Declared mu", "", "No test tells neighbours apart better than one between N(0, 1) and N(mu, 1)."),
    "eta": Words("Declared range eta", "", "For any two neighbours, all privacy losses lie in an interval of this length."),
    "noise": Words("Noise on every score", "", "Only the index of the largest noisy score is released."),
    "scale": Words("Noise: scale", "units of what it is added to", "For discrete Gaussian noise sigma, otherwise b."),
    "score_sensitivity": Words("Largest effect on one score", "units of a score", "How far one unit can move any one score."),
    "query_sensitivity": Words("Largest effect on one query", "units of a query", "How far one unit can move any one query."),
    "monotonic": Words("Whether one unit moves all of them in the same direction", "", "As with counts, if one unit is more or less."),
    "threshold_scale": Words("Threshold: Laplace scale", "units of a query", "Of the noise on the threshold, which is drawn once."),
    "query_scale": Words("Queries: Laplace scale", "units of a query", "Of the noise on each query, which is drawn afresh every time."),
    "most_above": Words("Queries above the threshold", "", 'After so many answers "above" it stops. A whole number.'),
    "honest": Words(
        "Honest parties", "", "Those that neither drop out nor collude, so that the attacker doesn't know their noise. A whole number."
    ),
    "variance": Words("Noise: variance in the sum", "", "Of all parties together that neither drop out nor collude."),
    "moves": Words(
        "Largest effect of one unit",
        "",
        "How far one unit can move the value. A whole number. One count, or a histogram in which one unit changes a single bin.",
    ),
    "contribution": Words(
        "Largest effect of one unit alone", "", "If units are replaced: how far one unit moves the value from what it is without it."
    ),
    "std": Words("Noise: standard deviation", "units of a step's sum", "Before it is correlated."),
    "l2": Words(
        "Largest effect per step",
        "units of a step's sum",
        "How far one unit can move one step's sum, as a Euclidean distance (l2). If units are replaced: two units' parts.",
    ),
    "steps": Words("Steps", "", "In one run. A whole number."),
    "coefficients": Words("Matrix's first column", "", "Of C. From the diagonal down; 0 beyond them. Separated by commas."),
    "inverse_coefficients": Words(
        "Inverse's coefficients",
        "",
        "w_1, w_2, ... where C is the first number above times the inverse of a banded matrix: 1 on its diagonal, -w_1, -w_2, ... below. "
        "Separated by commas; nothing for others.",
    ),
    "min_separation": Words(
        "Minimum separation", "steps", "The least distance between two steps that one unit takes part in. 1 if a unit may be in every step."
    ),
    "max_participations": Words("Most steps per unit", "", "In how many steps one unit takes part. A whole number."),
    "adjacency": words_of("sensitivity.adjacency"),
    "unit": words_of("sensitivity.unit"),
}


def declared_words_of(path: str) -> Words:
    """The words for a field of something declared; KeyError if there are none."""
    return _FIELDS[path]
