r"""What is proved of a sampled leaf, in one line of a derivation."""

from __future__ import annotations

from zetadp.accountants.dominating.guarantees import is_guarantee
from zetadp.accountants.leaf import Attained, Leaf
from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.declared import CorrelatedNoise
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import GaussianLoss


def statement(leaf: Leaf) -> tuple[str, str]:
    """(a sampled leaf's pair, where it is proved), for derivations: f is noise of scale 1, m the whole release's distance."""
    if isinstance(leaf.mechanism, LocalRelease) or (is_guarantee(leaf) and not isinstance(leaf.mechanism.privacy_loss(), GaussianLoss)):
        return _kept_statement(leaf)
    if isinstance(leaf.mechanism, CorrelatedNoise) and (leaf.attained is None or leaf.attained.drawn == "each_epoch"):
        return f"turns of correlated noise, whose columns have no row in common: {_drawn_statement(leaf)[0]}", "proofs/correlated.md, 1"
    return _drawn_statement(leaf)


def _drawn_statement(leaf: Leaf) -> tuple[str, str]:
    match leaf.scheme:
        case "random_allocation" | "shuffled" | "truncated_poisson":
            return _bounded_statement(leaf)
        case "fixed_size":
            return _fixed_size_statement(leaf, leaf.mechanism.neighbours[0])
        case "randomly_weighted":
            return _weighted_statement(leaf), "proofs/pairs.md, row 11"
        case "poisson":
            return _poisson_statement(leaf)


def _poisson_statement(leaf: Leaf) -> tuple[str, str]:
    if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
        one = "(1 - q) f(x) + q f(x - c) against (1 - q) f(x) + q f(x + c)"
        several = "sum of Bin(k, q)(j) f(x - j c) against sum of Bin(k, q)(j) f(x + j c)"
        return f"{one if leaf.group == 1 else several}, c of what one unit contributes", "proofs/pairs.md"
    if leaf.group > 1:
        return "sum of Bin(k, q)(j) f(x - j m) against f(x), and f(x) against it", "proofs/pairs.md"
    return "(1 - q) Q + q P against Q, and Q against it", "Zhu, Dong and Wang 2022, Theorem 11"


def _kept_statement(leaf: Leaf) -> tuple[str, str]:
    """Of what has no noise that mixes."""
    if isinstance(leaf.mechanism, LocalRelease):
        text = "a local release, of records that are in the sample: its own pair with probability q, else no difference"
        return text, "proofs/pairs.md, row 7"
    if leaf.scheme in ("shuffled", "random_allocation"):
        return _bounded_statement(leaf)
    text = "log(1 + q (e^e - 1))-DP, e of what was run on the sample, or twice that where one record displaces another"
    return text, "proofs/pairs.md, row 10"


def _fixed_size_statement(leaf: Leaf, adjacency: Adjacency) -> tuple[str, str]:
    added = adjacency is Adjacency.ADD_REMOVE
    if leaf.group > 1:
        pair = "sum of H(j) f(x - 2 j m) against f(x), both orders" if added else "the symmetric pair with the profile (3)"
        return f"sample of a fixed size, j units of the group in it with probability H(j): {pair}", "proofs/pairs.md, rows 4 to 6"
    distance = "m" if adjacency is Adjacency.REPLACE_ONE else "2m"
    order = "both orders" if added else "the worse order at every step"
    source = "errata Z12" if added else "Zhu, Dong and Wang 2022, Theorem 11"
    return f"sample of a fixed size: (1 - q) f(x) + q f(x - {distance}) against f(x), {order}", f"{source}; proofs/pairs.md"


def _weighted_statement(leaf: Leaf) -> str:
    who = "a record adds" if leaf.group == 1 else f"{leaf.group} records add"
    if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
        return f"{who} a random share s of what a unit contributes, c: the mean over s of f(x - s c) against that of f(x + s c)"
    return f"{who} a random share s: the mean over s of f(x - s m) against f(x), and f(x) against it"


def _bins_statement(leaf: Leaf, bins: Attained) -> tuple[str, str]:
    each = f"each unit in one of {bins.steps} bins, the same in every round"
    if leaf.steps == 1 or leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
        return f"{each}: as one whole release of a bin's rounds at most", "proofs/correlated.md, 3"
    text = f"bounded by the mean over {leaf.steps} bins that are a band apart, moved by all rounds together, against f(x), both orders"
    return f"{each}: {text}", "proofs/correlated.md, 3"


def _bounded_statement(leaf: Leaf) -> tuple[str, str]:
    if leaf.scheme == "shuffled":
        return f"each record in one of {leaf.steps} batches of a shuffled epoch: as one whole release, not amplified", "proofs/shuffled.md"
    if leaf.attained is not None and leaf.attained.drawn == "once":
        return _bins_statement(leaf, leaf.attained)
    if leaf.scheme == "random_allocation":
        text = f"each record in one of {leaf.steps} releases: the mean over i of f(x - m e_i) against f(x), and f(x) against it"
        if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
            return f"each record in one of {leaf.steps} releases: as one whole release of the epoch at most", "proofs/allocation.md, (R1)"
        if leaf.group > 1:
            text = f"each of {leaf.group} records in one of {leaf.steps} releases: bounded by the mean over blocks of so many of them"
        return text, "proofs/allocation.md"
    own = statement(Leaf(leaf.probability, leaf.mechanism, group=leaf.group))[0]
    if leaf.group > 1:
        cut = "sum of Bin(k, q)(j) f(x - 2 j m) against f(x), both orders"
        if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
            cut = "the same with the larger of m and c in place of c"
        elif leaf.mechanism.neighbours[0] is Adjacency.ZERO_OUT:
            cut = "sum of Bin(k, q)(j) f(x - 2 j m) against sum of Bin(k, q)(j) f(x + j m), both orders"
        return f"{own}; where more than the largest batch less k others are sampled, {cut}", "proofs/pairs.md, row 8"
    cut = statement(Leaf(leaf.probability, leaf.mechanism, "fixed_size"))[0].removeprefix("sample of a fixed size: ")
    return f"{own}; where more are sampled than the largest batch, {cut}", "proofs/pairs.md, row 8"
