r"""Titles and fields of what is only declared: others ran it."""

from __future__ import annotations

from zetadp.app.web.wording.words import Words, words_of

TITLES = {
    "pure_dp": "Epsilon-DP",
    "approximate_dp": "(epsilon, delta)-DP",
    "zcdp": "Zero-concentrated DP",
    "gdp": "Gaussian DP",
    "bounded_range": "A bounded range",
    "noisy_max": "The best of many noisy scores",
    "sparse_vector": "The sparse vector technique",
    "discrete_gaussian": "Discrete Gaussian noise",
    "discrete_laplace": "Discrete Laplace noise",
    "discrete_gaussian_sum": "A sum of discrete Gaussians",
    "skellam": "Skellam noise",
    "correlated_noise": "Noise correlated along the steps",
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
    "scale": Words("Scale of the noise", "units of what it is added to", "For discrete Gaussian noise sigma, otherwise b."),
    "score_sensitivity": Words("How far one unit can move any one score", "units of a score", ""),
    "query_sensitivity": Words("How far one unit can move any one query", "units of a query", ""),
    "monotonic": Words("Whether one unit moves all of them in the same direction", "", "As with counts, if one unit is more or less."),
    "threshold_scale": Words("Laplace scale on the threshold", "units of a query", "Drawn once."),
    "query_scale": Words("Laplace scale on every query", "units of a query", "Drawn afresh for each query."),
    "most_above": Words("Queries above the threshold", "", 'After so many answers "above" it stops. A whole number.'),
    "honest": Words(
        "Honest parties", "", "Those that neither drop out nor collude, so that the attacker doesn't know their noise. A whole number."
    ),
    "variance": Words("Variance of the noise in the sum", "", "Of all parties together that neither drop out nor collude."),
    "moves": Words(
        "How far one unit can move the value", "", "A whole number. One count, or a histogram in which one unit changes a single bin."
    ),
    "std": Words("Standard deviation of the noise", "units of a step's sum", "Before it is correlated."),
    "l2": Words("How far one unit can move one step's sum (l2)", "units of a step's sum", "If units are replaced: two units' parts."),
    "steps": Words("Steps of one run", "", "A whole number."),
    "coefficients": Words("First column of the matrix C", "", "From the diagonal down; 0 beyond them. Separated by commas."),
    "min_separation": Words("Least distance between two steps of one unit", "steps", "1 if a unit may be in every step."),
    "max_participations": Words("Most steps that one unit is in", "", "A whole number."),
    "adjacency": words_of("sensitivity.adjacency"),
    "unit": words_of("sensitivity.unit"),
}


def declared_words_of(path: str) -> Words:
    """The words for a field of something declared; KeyError if there are none."""
    return _FIELDS[path]
