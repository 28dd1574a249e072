r"""The fixed sentences of a certificate: what is trusted, what is released, what isn't covered, and what everything rests on."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from zetadp.mechanisms import AnyMechanism, Assumption, ComplexLaplace, DuchiLinf, Laplace, LocalLaplace, RandomOrigin, SpofCoefficients

POST_PROCESSING = "the guarantee holds even against someone who sees every noisy gradient sum, from which the model is computed"

FREE = "the model and the checkpoints are computed from that release alone, at no further cost in privacy"

NOT_COVERED = "not covered, since nothing in this run is"

NOTHING_COVERED = "no guarantee covers any of it"

RELEASED = {
    "none": "the final model and the checkpoints",
    "encoded": "the final model, the checkpoints and noisy features of the held-out records",
    "public": "the final model, the checkpoints, and metrics on public held-out records, during training and at the end",
    "private": "the final model, the checkpoints, and noisy counts of correctly classified held-out records",
}
"""What of it is covered, or that nothing is, comes after."""

RELEASED_BY_NODES = "every node's noisy update in every round, and the model after every round"

CHECKPOINTS = (
    "a checkpoint holds the model, the optimizer and the step count, which are computed from the released noisy sums, but no key, sample "
    "or gradient"
)
"""Whether that is covered comes before."""

NO_HELD_OUT = "no held-out record is protected, not even one of somebody who is also in the training data"
"""Of public ones: wherever they are said to be uncovered."""

EVALUATION = {
    "none": "nothing about the held-out records left the run",
    "encoded": "only noisy features of the held-out records left the run; they are among the releases named here",
    "public": "whoever asked for the training declared the held-out records public; metrics on them carry no noise",
    "private": (
        "the held-out records are as private as the training records: counts of correct answers were released with Gaussian noise; they "
        "are among the releases named here"
    ),
}

TEST_METRICS = {
    "none": "not used for training, and nothing about them was published",
    "encoded": "covered: only noisy features of them left the run, and epsilon counts these",
    "public": f"not covered: {NO_HELD_OUT}",
    "private": "covered: only noisy counts of their correct answers left the run, and epsilon counts these",
}

RUNNING_TIME = "running time: how long a step takes depends on how many records it drew"

SIDE_CHANNELS = "running time and every other side channel of the machine"

CLIPPING = {
    "flat": (
        "each {unit}'s whole gradient, all parameters as one vector of real pairs, is scaled down to this l2 norm if it is longer; a "
        "gradient that isn't finite counts as zero"
    ),
    "per_layer": (
        "each layer's part of a {unit}'s gradient, as a vector of real pairs, is scaled down to this bound divided by the square root of "
        "the number of layers, so that the whole has at most this l2 norm; a gradient that isn't finite counts as zero"
    ),
    "adaptive": (
        "each {unit}'s whole gradient, all parameters as one vector of real pairs, is scaled down to a bound that starts here and follows "
        "a quantile of the norms, which a noisy count estimates; count and sum are released together as one vector in units of the bound: "
        "a {unit} moves that vector by at most 1 whatever the bound is, and the noise is stated in these units (on the sum itself its "
        "standard deviation is the stated one times the step's bound, divided by the square root of 1 minus the count's share); a gradient "
        "that isn't finite counts as zero"
    ),
    "scheduled": (
        "each {unit}'s whole gradient, all parameters as one vector of real pairs, is scaled down to a bound that is a public function of "
        "the step; a step's sum is released in units of its bound: a {unit} moves it by at most 1 whatever the bound is, and the noise is "
        "stated in these units (on the sum itself its standard deviation is the stated one times the step's bound); a gradient that isn't "
        "finite counts as zero"
    ),
    "layer_bounds": (
        "each trained layer has a bound of its own, and its part of a {unit}'s gradient is scaled down to that l2 norm if it is longer; "
        "the l2 norm of the whole is then at most the square root of the sum of the squared bounds, and the noise is calibrated to that; a "
        "gradient that isn't finite counts as zero"
    ),
    "l1": (
        "each {unit}'s whole gradient, all parameters as one vector, is scaled down to this l1 norm if it is longer: the bound that "
        "Laplace noise needs; a gradient that isn't finite counts as zero"
    ),
}

SUMMED = (
    "; a {unit}'s gradient is the sum of the gradients of its records that are used, and the gradient of a record with random variants is "
    "the mean over these"
)
"""Added to the clipping where a unit is somebody with several records."""

_FOLLOW = "training computes its gradients from these releases, so that their noise is correlated from step to step"

_ALL_TURNS = (
    "every released sum is a weighted sum of all earlier steps' sums plus noise of its own; the weights are such that a {unit}, "
    "whatever it adds in all of its turns, moves all releases together by at most the stated sensitivity; no benefit of sampling is "
    "claimed; "
    f"{_FOLLOW}"
)

CORRELATED = {
    "banded_toeplitz": (
        "every released sum is a weighted sum of the last steps' sums plus noise of its own, so that what a {unit} adds in its turn shows "
        "in as many releases as there are bands; the squares of the weights add up to at most 1, and these releases together count as one "
        f"with the stated noise; {_FOLLOW}"
    ),
    "buffered_toeplitz": _ALL_TURNS,
    "banded_inverse_toeplitz": _ALL_TURNS,
}
"""What a plan's strategy, by its kind, does with noise."""

STOPPED_EARLY = "the guarantee counts all planned steps, since the choice to stop may have followed from what was released"

PARTICIPATION = (
    "every node takes part in every round with a Poisson sample of its own units; an update that a node failed to send, or that "
    "wasn't finite, counts as zero, the divisor stays the same, and the node's units are charged for the round anyway"
)

NODE_STRATEGY = (
    "every node weights its own sums alone, and all nodes have the same noise, probability, turns and weights: a unit's guarantee is "
    "the same at each; after an update that didn't arrive that node's weighted sums begin anew"
)
"""Where noise is correlated."""

NODE_NOISE = "every node adds the whole stated noise to its own sum before anything leaves it; its guarantee relies on nobody else's noise"


def not_covered(evaluation: str, running_time: str = RUNNING_TIME) -> tuple[str, ...]:
    """What the guarantee says nothing about; the held-out records among it unless they are private and paid for."""
    held_out = () if evaluation in {"private", "encoded"} else (held_out_records(evaluation),)
    return (*_NOT_COVERED[:2], *held_out, _NOT_COVERED[2], running_time, *_NOT_COVERED[3:])


def held_out_records(evaluation: str) -> str:
    """That they aren't covered, and what was said of them."""
    return f"the held-out records: {EVALUATION[evaluation]}"


OTHER_USES = "other uses of the same data: the privacy costs of several releases add up, and no ledger entry ties this one to others"

OTHER_USES_IN_LEDGER = (
    "other uses of the same data: the privacy costs of several releases add up; the ledger entry named here ties this one only to those "
    "that were charged to the same ledger"
)

OTHER_USES_IN_RENEWED_LEDGER = (
    "other uses of the same data: the privacy costs of several releases add up; the ledger entry named here ties this one only to those "
    "that were charged to the same ledger in the same period of its budget, which is free again in the next one"
)

_NOT_COVERED = (
    "hyper-parameter search: if other runs on the same data were used to choose this one, they cost additional privacy",
    "preprocessing: anything computed from the data before training, beyond the public recipe named here",
    OTHER_USES,
    "a unit that is in the data more than once, and several units of one person: their joint guarantee is weaker",
    "facts about the population: what a model reveals about everybody, it may also reveal about someone who isn't in the data",
)

ASSUMPTIONS = {
    Assumption.SENSITIVITY_AS_COMPUTED: (
        "the values to which noise is added, as the machine computes them, differ between neighbouring data sets by no more than the "
        "sensitivity (see the floating-point caveat)"
    ),
    Assumption.INDEPENDENT_NOISE: (
        "all random draws are independent of each other: the generator named here is taken to be as good as true randomness"
    ),
}

PUBLIC_NUMBERS = "the numbers of units, of training records and of held-out records are public"

COUNTED_NUMBER = f"{PUBLIC_NUMBERS}, and the sampling probability, which follows from them, is the same for neighbouring data sets"

DECLARED_NUMBER = (
    "the number of units, from which the sampling probability follows, was declared without counting them; the number of held-out "
    "records is public"
)

_IN_TURNS = (
    "each unit is in one group, which follows from that unit alone and may be known to everybody; in its group's turns "
    "it joins the sample independently with the stated probability, secretly and afresh each time"
)

_INDEPENDENTLY = "every unit joins every sample independently with the stated probability, secretly and afresh at each step"

SAMPLED = {
    "poisson": _INDEPENDENTLY,
    "federated_poisson": _INDEPENDENTLY,
    "truncated_poisson": (
        f"{_INDEPENDENTLY}; where a sample has more units than the stated largest number, a uniformly random subset of that many, chosen "
        "secretly, is used"
    ),
    "fixed_size": "every sample is a uniformly random set of the stated number of units, drawn secretly and afresh at each step",
    "random_allocation": "in every epoch each unit takes part in one step, chosen uniformly, secretly and independently of all other units",
    "cyclic_poisson": _IN_TURNS,
    "cyclic_allocation": (
        "each unit is in one group, which follows from that unit alone and may be known to everybody; in every epoch it takes part in one "
        "of its group's turns, chosen uniformly, secretly and independently of all other units"
    ),
    "federated_cyclic_poisson": f"{_IN_TURNS}; groups take turns in the same rounds at all nodes",
}
"""How a plan's sampling, by its kind, drew the units."""

PUBLIC_BOX = "the box that bounds the values, and every scaling before it, were chosen without looking at the data"

RUN_ASSUMPTIONS = (
    "the hyper-parameters and the data set's recipe were fixed without looking at the data",
    "whoever signed this ran the code whose digest is a subject of this certificate, on a machine that wasn't tampered with",
)

USER_ASSUMPTION = (
    "each record belongs to the {unit} that the data set states; which of a {unit}'s records are used depends on its own records alone"
)

FEDERATED_ASSUMPTION = (
    "every unit's data are at one node only, that node depends on that unit alone, and the nodes' random numbers are independent"
)

UPLOADED_ASSUMPTION = (
    "one row of the data set is one record as described, the rows of each {unit} are stated correctly, and scaling, bounds, classes, shape "
    "and split were chosen without looking at the data: the data set's maker says so, and nobody checked it"
)

UPLOADED_NOT_COVERED = "anything done to the data before they were uploaded, and the choice of what to upload"

CENTRAL_EVALUATION = "the held-out records are at one place, which is trusted with them and adds the noise to the counts"

KEYED = {
    RandomOrigin.OPERATING_SYSTEM: "keyed by the operating system",
    RandomOrigin.USER_SEED: "keyed by a user's seed",
}
"""Where a generator's keys came from: how every generator's words end."""
KEYED_BY_THE_RUN = "keyed by the run's secret key"
"""The same of a run whose plan is committed to a kept key."""


ROUNDING_PROOFS = {"gdp": "gdp_numerics.md", "contour": "contour.md", "single": "fft.md", "fft": "fft.md", "lattice": "lattice.md"}
"""Routes whose brackets hold with the rounding of their own arithmetic, by proof; every other route's allowance is measured."""

PAIRS_PROOF = "pairs.md"
"""What samples and groups do to a release's guarantee."""

PRECISION = {
    "float32": "in float32",
    "bfloat16": "with the network's arithmetic in bfloat16, but norms, sums and noise no narrower than float32",
}
"""What the network computed with."""

ArithmeticName = Literal[
    "probed_gradient_sums",
    "probed_counts",
    "banded_sums",
    "buffered_sums",
    "float64_sums",
    "float64_boxes",
    "float32_features",
    "exact_normal",
    "exact_laplace",
    "compared_signs",
    "unclaimed",
]

CORRELATED_SUMS: dict[str, ArithmeticName] = {
    "banded_toeplitz": "banded_sums",
    "buffered_toeplitz": "buffered_sums",
    "banded_inverse_toeplitz": "buffered_sums",
}
"""How a plan's strategy, by its kind, computed its weighted sums."""

_ON_GRID = "steps of 2^-32 of its scale, with no tail cut off; the value was rounded to such steps within its sensitivity (grid_noise.md)"

EXACT: frozenset[ArithmeticName] = frozenset({"exact_normal", "exact_laplace"})
"""Noise that is accounted for as it is drawn, to the bit. Signs have a probability that is rounded to 256 bits."""

ARITHMETIC: dict[ArithmeticName, str] = {
    "probed_gradient_sums": (
        "the run computed gradients {precision}, scaled them to 2^-8 below their bound, which is more than rounding of norms and sums can "
        "move them (clipped_sum.md), and added them in float32, or in float64 where the bound changes or a sample may be expected to "
        "hold more than 1024 units; before training, tests with made-up records on that machine showed no unit's gradient that had "
        "other bits with other units beside it, or that added more to the sum than the noise is calibrated to; that there is none isn't "
        "proved; where the network drops numbers at random, or records are varied at random, these draws are taken to be as good as "
        "independent: torch's own generator, which isn't cryptographic, makes them from 53 secret bits of each step"
    ),
    "probed_counts": (
        "right answers were counted with held-out records passed always as many at once: one by one, or as many as showed, in a test with "
        "made-up records on that machine before the first count, no output that had other bits at another place or beside other records; "
        "that there is none isn't proved"
    ),
    "banded_sums": (
        "each step's sum was rounded to steps of 2^-24 of the noise's scale or finer, within its sensitivity; products with the "
        "bands' weights and their sums are exact in float64 (banded_sums.md)"
    ),
    "buffered_sums": (
        "weighted sums of earlier steps were kept in float64, and the rounding of every operation, in all steps, is within the sensitivity "
        "(banded_sums.md)"
    ),
    "float64_sums": "the run computed the sums in float64",
    "float64_boxes": "the run mapped records into the public box in float64",
    "float32_features": (
        "features were computed in float32, scaled in float64 to 2^-20 below their bound, and received their noise before any other "
        "operation"
    ),
    "exact_normal": f"normal noise was drawn exactly, in {_ON_GRID}",
    "exact_laplace": f"Laplace noise was drawn exactly, in {_ON_GRID}",
    "compared_signs": "signs were drawn by comparing 256 random bits with a probability that is rounded to 256 bits",
    "unclaimed": "nothing is claimed about noise in this run, whatever it drew",
}
"""How a run computed: what a certificate names, and what the name stands for. Code that computes otherwise needs another name."""

ACCOUNTING = (
    "every figure counts the rounding of its own accounting: on the routes "
    + ", ".join(f"{route} ({proof})" for route, proof in ROUNDING_PROOFS.items())
    + " by proofs, which assume that float64 operations round correctly and that elementary functions, error functions and the constants "
    "of the Fourier transform are as accurate as stated there; on every other route and in Renyi divergences by allowances that were "
    "measured against exact values, not proved (every delta of a pld route: 1e-11 and 1e-15 per release; every sampled Renyi divergence: "
    "a relative 1e-9)"
)

_LIBRARIES = ("cryptography", "dp-accounting", "numpy", "pydantic", "scipy")
"""Of what draws, computes and reads figures."""


def floating_point(names: Iterable[ArithmeticName], precision: str) -> str:
    """What computing with floats leaves open, for a run that computed so, its network with this precision."""
    sentences = [ARITHMETIC[name].replace("{precision}", PRECISION[precision]) for name in names]
    if names == ("unclaimed",):
        return sentences[0]
    return f"values were computed with floats before noise was added: {'; '.join(sentences)}; {ACCOUNTING}"


def variates(mechanisms: Iterable[AnyMechanism]) -> tuple[ArithmeticName, ...]:
    """How the noise of these mechanisms is drawn, each way once."""
    return tuple(dict.fromkeys(_variates(one) for one in mechanisms))


def _variates(mechanism: AnyMechanism) -> ArithmeticName:
    match mechanism:
        case DuchiLinf():
            return "compared_signs"
        case Laplace() | ComplexLaplace() | LocalLaplace() | SpofCoefficients():
            return "exact_laplace"
        case _:
            return "exact_normal"


def library_versions() -> dict[str, str]:
    """Versions of what the run and the certificate's figures were computed with."""
    found = {"python": sys.version.split()[0]}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
