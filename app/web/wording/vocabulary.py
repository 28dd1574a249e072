r"""What the terms of this service mean. Its vocabulary page and the handbook's are made from this table."""

from __future__ import annotations

from zetadp.accountants.attack_sentences import strengths_in_words

VOCABULARY: tuple[tuple[str, str], ...] = (
    ("mechanism", "adds noise to a query's value and releases it; states its own privacy loss"),
    ("sensitivity", "how far one unit can move the value: `l2`, `l1`, and for complex queries `l2_real`, `l2_imag`"),
    ("adjacency", "which data sets are neighbours: `add_remove`, `replace_one`, `zero_out`; always stated"),
    ("unit", "what is protected: `record`, `user`, `patient`, ...; always stated"),
    (
        "user-level",
        "the unit is a user with several records: all of a user's records (at most `records_per_user`) are summed and the sum is clipped",
    ),
    (
        "lot",
        "the units in one step's sample; its expected size is a public constant, the divisor, and its actual size is never released",
    ),
    ("ghost norm", "the norm of one unit's gradient, computed from a layer's inputs and output gradients without forming that gradient"),
    (
        "node",
        "in a federation, a site that holds its own units' data and samples, clips and adds its whole noise before anything leaves it",
    ),
    ("held-out records", "the records that metrics are measured on: declared public, or private and paid for; a certificate says which"),
    ("recipe", "a spec that is ready to run, with what its paper printed next to what is proven"),
    (
        "std",
        "standard deviation **per real component**, always. A complex coordinate's `total_std` is sqrt(2) times this for equal parts",
    ),
    ("noise multiplier", "std / l2"),
    (
        "event",
        "what was done to the data: `release`, `poisson_sampled`, `truncated_poisson_sampled`, `fixed_size_sampled`, "
        "`randomly_allocated`, `randomly_weighted`, `shuffled`, `repeated`, `repeated_and_selected`, `composed`, `grouped`; pure data",
    ),
    (
        "declared",
        "what others ran and an event only accounts for: `pure_dp`, `approximate_dp`, `zcdp`, `gdp`, `bounded_range`, `noisy_max`, "
        "`sparse_vector`, `discrete_gaussian`, `discrete_laplace`, `discrete_gaussian_sum`, `skellam`, "
        "`correlated_noise`, `tree_aggregation`; true only if the declaration is",
    ),
    (
        "private selection",
        "`repeated_and_selected`: an event ran a random number of times, such as a search for hyper-parameters, and only its best run's "
        "output is released",
    ),
    (
        "contribution",
        "`l2_contribution`, `l1_contribution`: how much one unit alone adds to the query; needed for Poisson sampling with replace_one",
    ),
    ("group", "`grouped`: the guarantee for a larger unit, such as a user, that holds at most `size` of the event's units"),
    (
        "dominating pair",
        "two distributions P, Q that are at least as easy to tell apart as any neighbours' releases; accountants see only these",
    ),
    ("accountant", "computes an event's privacy profile, with a lower and an upper end; only the upper end is the guarantee"),
    ("route", "the accountant that computed an answer: `auto` picks the cheapest one whose bracket is narrow enough and names it"),
    (
        "kept coordinates",
        "the real orthonormal coordinates of the frequencies that a filter keeps of a gradient's spectrum; only these "
        "get noise and are released",
    ),
    ("filter", "admits spends one after the other, each chosen in view of what the earlier ones released, as long as a budget holds"),
    ("profile", "delta as a function of epsilon, and what follows from it: Renyi divergence, mu, the attacker's trade-off"),
    (
        "naming",
        "what a guarantee bounds, worded the same everywhere: a test that names this very unit with probability 1 % if the unit was left "
        "out names it with at most the stated probability if the unit was included; this is about one unit, not about a share of all units",
    ),
    ("strength", f"our word for an epsilon and a delta. {strengths_in_words()}"),
    (
        "local release",
        "each record is released on its own (`local_laplace`, `local_gaussian`, `duchi_linf`, `spof_coefficients`); k "
        "records of a unit are k releases",
    ),
    ("score", "of an autoencoder: 1 - mean squared error, always shown next to the scores of zeros and of the columns' means"),
    ("finding", "one printed statement next to the proven one; `erratum` names the row that proves the difference"),
    ("plan", "sampling, clipping, mechanism and steps of a training; its event is what is accounted for and what the training loop does"),
    (
        "rotated feature",
        "in the obfuscation paper, x = e^(i theta) (a + i b), where a is the input's feature, b another input's, and theta is "
        "secret; the attacks here read all that it hides",
    ),
    ("canary", "a made-up record that a fair coin includes or leaves out; how well the releases show which gives a lower bound on epsilon"),
    ("upload, uploaded data set", "a file exactly as received; arrays made from files with constants that you state, never changed"),
    ("certificate", "a signed statement of what was done and what it guarantees"),
    ("log", "the append-only Merkle tree of certificates; its **head** is its size and root, signed"),
    ("inclusion proof", "hashes that lead from a statement to a signed root and so show that it is in the log"),
    ("consistency proof", "hashes that show that one head's log is the beginning of another's"),
    ("revoked", "said of a signing key that signs no more; whether its earlier signatures count depends on the reason and the log"),
)
"""(word, meaning), with `code` and **emphasis** as in Markdown."""
