r"""Words that pages share with their scripts: those for neighbours, and papers' names. Every page carries them."""

from __future__ import annotations

import json

from zetadp.accountants.attack_sentences import NEIGHBOURS
from zetadp.mechanisms.errata import Paper

READ = ("choice", "absent", "present", "shown")
"""What scripts read of an adjacency's words."""

PAPERS: dict[Paper, str] = {
    "zeta_dp": "zeta-DP",
    "complex_dp_federated": "Complex federated learning",
    "spof": "SPOF",
    "complex_feature_obfuscation": "Attribute obfuscation",
    "spectral_dp": "Spectral-DP",
}
"""A paper's name where a statement of it is cited."""

TERMS = json.dumps(
    {
        "papers": PAPERS,
        "neighbours": {adjacency.value: {name: getattr(words, name) for name in READ} for adjacency, words in NEIGHBOURS.items()},
    }
)
"""JSON, as ``terms.js`` reads it."""

EPSILON = "How much any output may favour one of two neighbouring data sets, apart from delta. Smaller protects more."
DELTA = (
    "Any outcome may be this much more probable than epsilon allows, even one that publishes somebody's data. Choose it far below "
    "1 / (number of units), between 0 and 1."
)
"""What forms say of epsilon and of delta."""
