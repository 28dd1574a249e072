r"""What the words of this service mean: its page and the handbook's are made of this table."""

from __future__ import annotations

VOCABULARY: tuple[tuple[str, str], ...] = (
    ("mechanism", "adds noise to a query's value and releases it; states its own privacy loss"),
    ("sensitivity", "how far one unit can move the value: `l2`, `l1`, and for complex queries `l2_real`, `l2_imag`"),
    ("adjacency", "which data sets are neighbours: `add_remove`, `replace_one`, `zero_out`; always stated"),
    ("unit", "what is protected: `record`, `user`, `patient`, ...; always stated"),
    (
        "user-level",
        "the unit is somebody with several records: all of a user's (at most `records_per_user`) are summed, and the sum is clipped",
    ),
    (
        "lot",
        "the units that one step's sample holds; its expected size is a public constant, the divisor, and its real size never leaves",
    ),
    ("ghost norm", "the norm of one unit's gradient from a layer's inputs and output gradients, without ever making that gradient"),
    (
        "node",
        "in a federation: a place that holds its own units' data, samples, clips and adds its whole noise before anything leaves it",
    ),
    ("held-out records", "what metrics are measured on: declared public, or private and paid for; a certificate says which"),
    ("recipe", "a spec that is ready to run, with what its paper printed beside what is proved"),
    (
        "std",
        "standard deviation **per real component**, always. A complex coordinate's `total_std` is sqrt(2) times that for equal parts",
    ),
    ("noise multiplier", "std / l2"),
    (
        "event",
        "what was done to the data: `release`, `poisson_sampled`, `fixed_size_sampled`, `repeated`, `composed`, `grouped`; pure data",
    ),
    (
        "contribution",
        "`l2_contribution`, `l1_contribution`: how much one unit alone adds to the query; Poisson sampling with replace_one needs it",
    ),
    ("group", "`grouped`: the guarantee for a unit, a user say, that holds at most `size` of the event's units"),
    (
        "dominating pair",
        "two distributions P, Q that are at least as easy to tell apart as any neighbours' releases; accountants see only these",
    ),
    ("accountant", "from an event to its privacy profile, with a lower and an upper end; only the upper is the guarantee"),
    ("route", "which accountant an answer came by: `auto` picks the cheapest whose bracket is narrow enough, and names it"),
    (
        "kept coordinates",
        "of a gradient's spectrum: the real orthonormal coordinates of the frequencies that a filter keeps; only these "
        "get noise and are released",
    ),
    ("filter", "admits spends chosen one after the other, each in view of what the others released, as long as a budget holds"),
    ("profile", "delta as a function of epsilon, and what follows: Renyi divergence, mu, the attacker's trade-off"),
    (
        "naming",
        "what a guarantee bounds, in one wording everywhere: a test that would name this very unit with probability 1 % had the unit been "
        "left out names the unit with probability at most so much; about one unit that is there or isn't, not a share of everybody",
    ),
    (
        "local release",
        "each record released by itself (`local_laplace`, `local_gaussian`, `duchi_linf`, `spof_coefficients`); k "
        "records of a unit are k releases",
    ),
    ("score", "of an autoencoder: 1 - mean squared error, always beside the score of zeros and of the columns' means"),
    ("finding", "one printed statement beside the proved one; `erratum` names the row that proves the difference"),
    ("plan", "sampling, clipping, mechanism and steps of a training; its event is what is accounted, and what the loop does"),
    (
        "turned feature",
        "of the obfuscation paper: x = e^(i theta) (a + i b), a the input's feature, b another's, theta secret; it "
        "hides nothing that the attacks here don't read",
    ),
    ("canary", "a made-up record that takes part or not by a fair coin; how well releases tell which is a lower bound on epsilon"),
    ("upload, data set of one's own", "a file as it came; arrays made of files by constants that the maker names, which never change"),
    ("certificate", "a signed statement of what was done and what it guarantees"),
    ("log", "of certificates: a Merkle tree that only grows; its **head** is its size and root, signed"),
    ("inclusion proof", "hashes that lead from a statement to a signed root: it is in the log"),
    ("consistency proof", "hashes that show one head's log to be the beginning of another's"),
    ("revoked", "of a signing key: it signs no more; what it signed before stands or not by the reason and the log"),
)
"""(word, meaning), with `code` and **emphasis** as in Markdown."""
