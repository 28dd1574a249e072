r"""The reasons, as a certificate states them, why a method of the paper guarantees nothing."""

from __future__ import annotations

ROTATION = (
    "features were rotated, together with a counterpart, by one secret angle, as in the obfuscation paper: that isn't differentially "
    "private at any epsilon. What is sent spans a plane that contains the input's own feature: a candidate input can be confirmed or "
    "excluded exactly, without the angle (errata O5); two encodings of one input reveal its feature (O6); the single angle can be "
    "estimated from what is sent, or tried out with the public network, and with it the answer can be read as well (O3, O7, O12). Where "
    "the counterpart is another person's feature, two inputs are exposed instead of one (O11). What the paper calls k-anonymity is a "
    "critic's loss at k - 1 angles: it isn't k-anonymity, and it bounds no attacker (O1, O10). The network was trained on its records "
    "as they are"
)

SENT_AS_THEY_ARE = "features are sent as they are, and the network was trained on its records as they are: neither is hidden"

NOISY = (
    "the noise on a feature was scaled by that feature's own magnitude, which nothing bounds: no noise whose scale depends on the record "
    "gives differential privacy, and the network was trained on its records as they are"
)

REASONS = {"rotation": ROTATION, "original": SENT_AS_THEY_ARE, "additional_layers": SENT_AS_THEY_ARE, "noisy": NOISY}
