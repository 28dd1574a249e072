r"""The fixed sentences of a certificate: what is trusted, what is released, what isn't covered, and what everything rests on."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from app.certificates.guarantee import SEED_SENTENCE
from mechanisms import Assumption, RandomOrigin

TRUST_MODEL = (
    "central: a trusted curator holds the raw data, runs the training and keeps its inner state; the guarantee is against everyone who "
    "sees what is released, whatever else they know"
)

RELEASED = (
    "the final model, and held-out accuracies on the way and at its end; the guarantee is stronger than the model needs: it holds for "
    "someone who sees every noisy gradient sum, of which the model is post-processing"
)

CHECKPOINTS = (
    "covered: a checkpoint holds model, optimizer and step count, which follow from released noisy sums; no key, no sample, no gradient"
)

TRAINING_METRICS = (
    "not published: training loss, gradient norms, sample sizes and clipped fractions depend on the records and aren't covered"
)

TEST_METRICS = (
    "not covered: the accuracy is exact, computed on held-out records that were never trained on; the guarantee says nothing about "
    "those records"
)

SAMPLE_SIZES = "withheld: how many records a step really drew would leak who was drawn; only the public expected batch is used and stated"

CLIPPING = (
    "each record's whole gradient, all parameters as one vector of real pairs, is scaled down to this l2 norm where it is longer; one that "
    "isn't finite counts as zero"
)

NOT_COVERED = (
    "hyper-parameter search: if other runs on the same data were used to choose this one, they cost privacy of their own",
    "preprocessing: whatever was computed from the data before training, beyond the public recipe named here",
    "the held-out records, on which the accuracy was computed",
    "other uses of the same data: guarantees of several releases add up, and no ledger entry ties this one to others",
    "running time: how long a step takes depends on how many records it drew",
    "a unit that is in the data more than once, and several units of one person: their joint guarantee is weaker",
    "facts about the population: what a model says about everybody, it may say about someone who isn't in the data",
)

ASSUMPTIONS = {
    Assumption.IDEALIZED_REALS: "the noise and its addition are those of exact real arithmetic (see the floating-point caveat)",
    Assumption.INDEPENDENT_NOISE: "noise of different coordinates and steps is independent, as good as AES-256 in counter mode is",
}

RUN_ASSUMPTIONS = (
    "the number of training records is public",
    "every record joins every sample independently with the stated probability, secretly and afresh at each step",
    "the hyper-parameters and the data set's recipe were fixed without looking at the data",
    "the service ran the code whose digest is a subject of this certificate, on a machine that wasn't tampered with",
)

GENERATORS = {
    RandomOrigin.OPERATING_SYSTEM: "AES-256-CTR keyed by the operating system",
    RandomOrigin.USER_SEED: "AES-256-CTR keyed by a user's seed",
}

SEED_STATEMENTS = {RandomOrigin.OPERATING_SYSTEM: None, RandomOrigin.USER_SEED: SEED_SENTENCE}

ROUNDING_PROOFS = {"gdp": "gdp_numerics.md", "contour": "contour.md", "single": "fft.md", "fft": "fft.md", "lattice": "lattice.md"}
"""Routes whose brackets hold with the rounding of their own arithmetic, by proof; every other route's allowance is measured."""

PAIRS_PROOF = "pairs.md"
"""What samples and groups do to a release's guarantee."""

FLOATING_POINT = (
    "the proof is for idealized real numbers; the run computed gradients in float32 and the noisy sum in float64, and its normal variates "
    "are by Box-Muller from 53-bit uniforms, truncated at 8.58 standard deviations; attacks on the lowest bits of floats aren't covered; "
    "rounding in the accounting itself is counted in every figure: by proof on "
    + ", ".join(f"route {route} ({proof})" for route, proof in ROUNDING_PROOFS.items())
    + ", which take for granted that float64 operations round correctly and that elementary functions, error functions and the constants "
    "of the Fourier transform are as accurate as these proofs say; on every other route and in Renyi divergences by allowances that were "
    "measured against exact values, not proved (every delta of a pld route: 1e-11 and 1e-15 per release; every sampled Renyi divergence: "
    "1e-9 relatively)"
)

_LIBRARIES = ("cryptography", "dp-accounting", "numpy", "pydantic", "scipy", "securesystemslib")


def library_versions() -> dict[str, str]:
    """Versions of what computed and signed the certificate."""
    found = {"python": sys.version.split()[0]}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
