r"""From a leaf of an event to its dominating pair: whole and sampled releases, both kinds of sampling, every adjacency, groups.

A release with whole-data pair f(x - m) against f(x) (m: mu of a Gaussian mechanism, epsilon of a Laplace mechanism) has the pair

    whole                     P = f(x - k m)                                Q = f(x)                            any adjacency
    Poisson                   P = sum_j Bin(k, q)(j) f(x - j m)             Q = f(x)                            add_remove, zero_out
    Poisson                   P = sum_j Bin(k, q)(j) f(x - j c)             Q = sum_j Bin(k, q)(j) f(x + j c)   replace_one
    truncated Poisson         as Poisson, and where the sample is cut as a fixed size, of which it is public when that happens
    random allocation         P = (1/t) sum_i f(x - m e_i) on R^t            Q = f(x)                            add_remove, zero_out
    shuffled epoch            as whole, which bounds it                                                          zero_out, replace_one
    fixed size                P = sum_j H(j) f(x - 2 j m)                   Q = f(x)                            add_remove
    fixed size                P = (1 - q) f(x) + q f(x - m)                 Q = f(x), the worse direction       replace_one
    fixed size                P = (1 - q) f(x) + q f(x - 2 m)               Q = f(x), the worse direction       zero_out

for a group of k, with H the hypergeometric probabilities of how many of its units a sample of a fixed size holds (for one unit 1 - q and q;
groups under replace_one and zero_out have a pair known by its profile, ``displaced``), and c the shift of what one unit contributes. A
local release (of a single record, replace_one) keeps its whole pair, and a sample of any kind only shows it with probability q: epsilon
isn't amplified. Laplace noise on the n coordinates of a whole record is n leaves. proofs/pairs.md proves each row and says which of them
are attained.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from zetadp.accountants.allocation.density import Allocated
from zetadp.accountants.allocation.groups import LARGEST_ALLOCATED_GROUP, squared_moves
from zetadp.accountants.densities import DENSITIES, Density, LocationDensity, density_of
from zetadp.accountants.densities.mixtures import SMALLEST_WEIGHT, Mixture, moved_up
from zetadp.accountants.displaced import Displaced
from zetadp.accountants.leaf import Leaf, Selection, unshuffled
from zetadp.accountants.pairs import Crowded, Pair
from zetadp.mechanisms.base import Adjacency, Mechanism
from zetadp.mechanisms.declared.base import Declared
from zetadp.mechanisms.errors import UnsupportedEvent
from zetadp.mechanisms.local import LocalRelease
from zetadp.mechanisms.loss import ConcentratedLoss, FailingLoss, GaussianLoss, IntegerLoss, LaplaceLoss, PrivacyLoss, ResponseLoss
from zetadp.mechanisms.numerics.binomial import binomial_weights, log_binomial_tail
from zetadp.mechanisms.numerics.hypergeometric import hypergeometric

LARGEST_SAMPLED_GROUP = 1000
"""The mixture of a Poisson-sampled group has one component more than the group has members; beyond this no route is fast."""

LARGEST_DISPLACEMENT = 250.0
"""Scales of the noise that a group may move a sample of a fixed size under replace_one: beyond, it is bounded by the whole release."""

LARGEST_INTEGER_GROUP = 20
"""The table of a group's mixture on whole numbers has as many sums as the group has members."""

LARGEST_INTEGER_TABLE = 2**18
"""Whole numbers in a table beyond those that the noise itself reaches."""

_LARGE = 700.0
"""Epsilons from which on e^epsilon is not computed."""

_NULL = Mixture((1.0,), (0.0,))


def unsupported_reason(leaf: Leaf) -> str | None:
    """Why no dominating pair of this leaf is known here, or None."""
    found = _resolved(leaf)
    return found if isinstance(found, str) else None


def pair_of(leaf: Leaf) -> Pair:
    """The dominating pair of one leaf, from the table in the module's docstring.

    Raises:
      UnsupportedEvent: ``unsupported_reason`` gives a reason.

    >>> from zetadp.mechanisms import Gaussian, Sensitivity
    >>> noise = Gaussian(std=2.0, sensitivity=Sensitivity(l2=1.0, adjacency="add_remove", unit="record"))
    >>> pair_of(Leaf(0.25, noise, "fixed_size")).upper
    Mixture(weights=(0.75, 0.25), shifts=(0.0, 1.0))
    """
    found = _resolved(leaf)
    if isinstance(found, str):
        raise UnsupportedEvent("dominating pair", found)
    return found


@lru_cache(maxsize=2**14)
def _resolved(leaf: Leaf) -> Pair | str:
    """The pair, or the reason why there is none."""
    return _shuffled(leaf) if leaf.scheme == "shuffled" else _drawn(leaf)


def _drawn(leaf: Leaf) -> Pair | str:
    loss = leaf.mechanism.privacy_loss()
    if (not leaf.mechanism.CAN_BE_SAMPLED or isinstance(loss, ConcentratedLoss)) and (reason := _declared_reason(leaf, loss)) is not None:
        return reason
    family = density_of(loss)
    if isinstance(loss, IntegerLoss) and (reason := _integer_reason(leaf, loss)) is not None:
        return reason
    if family is None:
        known = " nor ".join(density.name for density in DENSITIES.values() if density.mixes and not density.is_discrete)
        return f"{leaf.mechanism.kind} noise is neither {known}, and no dominating pair of it is known here"
    move = loss.distance
    if isinstance(leaf.mechanism, LocalRelease):
        return _local(family, move, leaf)
    if leaf.is_whole:
        return Pair(family, Mixture((1.0,), (leaf.group * move,)), _NULL)
    return (_guaranteed if _is_guarantee(leaf) else _sampled)(family, leaf, move)


def _declared_reason(leaf: Leaf, loss: PrivacyLoss) -> str | None:
    """Why what is only declared has no dominating pair here, or None."""
    if isinstance(leaf.mechanism, Selection):
        return "the best of several runs has no dominating pair that is known here: only its Renyi divergences compose"
    if not leaf.is_whole:
        return f"what a sample of {leaf.mechanism.kind} guarantees isn't known here: declare the guarantee of what was run on the sample"
    if isinstance(loss, ConcentratedLoss):
        return "zCDP bounds only Renyi divergences, and no dominating pair of it is known here"
    if isinstance(loss, FailingLoss):
        return "an (epsilon, delta) guarantee may fail, and has a dominating pair only where it doesn't"
    return None


def _integer_reason(leaf: Leaf, loss: IntegerLoss) -> str | None:
    """Why noise on whole numbers has no pair here in this leaf, or None."""
    if leaf.scheme == "random_allocation":
        return "a random allocation of noise on whole numbers isn't proved here"
    if not leaf.is_whole and leaf.scheme != "fixed_size" and leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
        return "Poisson sampling under replace_one isn't supported here for noise on whole numbers: nothing says what one unit contributes"
    if leaf.group > LARGEST_INTEGER_GROUP or 4 * leaf.group * loss.moves > LARGEST_INTEGER_TABLE:
        return (
            f"a unit that moves whole numbers this far, or groups of more than {LARGEST_INTEGER_GROUP} units, have too large a table: "
            f"units times moves must be at most {LARGEST_INTEGER_TABLE // 4}"
        )
    return None


def _is_guarantee(leaf: Leaf) -> bool:
    """Whether nothing but a guarantee is known of what was released."""
    return isinstance(leaf.mechanism, Declared) and not isinstance(leaf.mechanism.privacy_loss(), IntegerLoss)


def _guaranteed(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """Row 10: a sample of what only a guarantee is declared of."""
    loss, adjacency, is_fixed = leaf.mechanism.privacy_loss(), leaf.mechanism.neighbours[0], leaf.scheme == "fixed_size"
    if not is_fixed and adjacency is not Adjacency.ADD_REMOVE:
        return (
            f"such a sample may leave the unit out, and a guarantee under {adjacency.value} says nothing of data without it: declare it "
            "under add_remove, or sample a fixed size"
        )
    if isinstance(loss, GaussianLoss):
        return _sampled(family, leaf, move)
    epsilon = loss.pure_epsilon
    assert epsilon is not None  # nothing else that is declared can be sampled
    if leaf.scheme not in ("poisson", "fixed_size") or (is_fixed and leaf.group > 1):
        return f"{leaf.scheme} samples of pure epsilon-DP, or groups with a fixed size, have no dominating pair that is proved here"
    q, is_zeroed = leaf.probability, adjacency is Adjacency.ZERO_OUT
    displaces = is_fixed and (adjacency is Adjacency.ADD_REMOVE or is_zeroed)
    distance = leaf.group * _amplified(2.0 * epsilon if displaces else epsilon, q)
    if is_fixed and is_zeroed:
        distance = min(distance, epsilon)
    response = density_of(ResponseLoss(distance))
    assert response is not None  # it has one at every distance
    return Pair(response, Mixture((1.0,), (distance,)), _NULL)


def _amplified(epsilon: float, q: float) -> float:
    """log(1 + q (e^epsilon - 1)), to a few units in the last place."""
    return math.log1p(q * math.expm1(epsilon)) if epsilon < _LARGE else epsilon + math.log(q + (1.0 - q) * math.exp(-epsilon))


def _sampled(family: Density, leaf: Leaf, move: float) -> Pair | str:
    if leaf.scheme == "poisson":
        return _poisson(family, leaf, move)
    if leaf.group > 1 and leaf.scheme == "fixed_size":
        return _fixed_size_group(family, leaf, move)
    if leaf.scheme == "truncated_poisson":
        return _truncated(family, leaf, move)
    if leaf.scheme == "random_allocation":
        return _allocated(family, leaf, move)
    return _fixed_size(family, leaf.probability, move, leaf.mechanism.neighbours[0])


def _local(family: Density, move: float, leaf: Leaf) -> Pair | str:
    """Row 7: the record's own pair, shown with the probability that it is in the sample (and that its output reveals anything)."""
    if leaf.group > 1:
        # A group of whole or Poisson-sampled local releases is that many releases; ``events.leaves`` returns it as such.
        return "groups of local releases with samples of a fixed or a largest size have no dominating pair that is proved here"
    shown = leaf.mechanism.privacy_loss().shown
    if leaf.probability < 1.0:
        shown = max(math.nextafter(shown * leaf.probability, math.inf), SMALLEST_WEIGHT)
    return Pair(family, Mixture((1.0,), (move,)), _NULL, shown=min(shown, 1.0))


def _poisson(family: Density, leaf: Leaf, move: float) -> Pair | str:
    q = leaf.probability
    if leaf.group > LARGEST_SAMPLED_GROUP:
        return f"a sample with groups of more than {LARGEST_SAMPLED_GROUP} units has too large a mixture"
    if leaf.mechanism.neighbours[0] is not Adjacency.REPLACE_ONE:
        return Pair(family, _two(q, move), _NULL) if leaf.group == 1 else _sampled_group(family, binomial_weights(leaf.group, q), move)
    assert isinstance(leaf.mechanism, Mechanism)  # nothing that is only declared is sampled
    c, norm = _contribution(leaf.mechanism, family), family.norm
    if c is None:
        return (
            f"Poisson sampling under replace_one needs sensitivity.{norm}_contribution, a bound on what one unit alone adds to the query: "
            f"{norm} bounds only the difference of two units, and a sample can leave both out"
        )
    return Pair(family, _two(q, c), _two(q, c).mirrored) if leaf.group == 1 else _replaced_group(family, binomial_weights(leaf.group, q), c)


def _fixed_size(family: Density, q: float, move: float, adjacency: Adjacency) -> Pair:
    if q == 1.0:
        # Everybody is in the sample: one displaces another only if neighbours differ in size.
        return Pair(family, Mixture((1.0,), (2.0 * move if adjacency is Adjacency.ADD_REMOVE else move,)), _NULL)
    distance = move if adjacency is Adjacency.REPLACE_ONE else 2.0 * move
    return Pair(family, _two(q, distance), _NULL, worst_of_both=adjacency is not Adjacency.ADD_REMOVE)


def _fixed_size_group(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """Rows 4 to 6: as many are displaced as the sample holds of the group's units."""
    assert leaf.sizes is not None  # of this scheme and a group
    if leaf.group > LARGEST_SAMPLED_GROUP:
        return f"a sample with groups of more than {LARGEST_SAMPLED_GROUP} units has too large a mixture"
    adjacency = leaf.mechanism.neighbours[0]
    if leaf.sizes.sample == leaf.sizes.population:
        return Pair(family, Mixture((1.0,), (leaf.group * (2.0 if adjacency is Adjacency.ADD_REMOVE else 1.0) * move,)), _NULL)
    weights = hypergeometric(max(leaf.sizes.population, leaf.group), leaf.group, leaf.sizes.sample)
    if adjacency is Adjacency.ADD_REMOVE:
        return _sampled_group(family, weights, 2.0 * move)
    if not isinstance(family, LocationDensity):
        return f"groups with samples of a fixed size under {adjacency.value} aren't supported here for {family.name} noise"
    if leaf.group * move > LARGEST_DISPLACEMENT:
        return Pair(family, Mixture((1.0,), (leaf.group * move,)), _NULL)
    return _displaced(family, _sampled_group(family, weights, move if adjacency is Adjacency.REPLACE_ONE else 2.0 * move))


def _displaced(family: LocationDensity, pair: Pair) -> Pair:
    """The pair with the profile (3), in the frame in which the copy that didn't move is at 0, whether it has any weight left or not."""
    if pair.is_plain:
        return pair
    upper = Mixture(pair.upper.weights, tuple(shift - pair.lower.shifts[0] for shift in pair.upper.shifts))
    is_of_one = len(upper.shifts) == 2 and upper.shifts[0] == 0.0
    return Pair(family if is_of_one else Displaced(family), upper, _NULL, worst_of_both=True)


def _allocated(family: Density, leaf: Leaf, move: float) -> Pair | str:
    if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
        return "random allocation under replace_one has no dominating pair that is proved here: a whole release of each epoch bounds it"
    if leaf.group > LARGEST_ALLOCATED_GROUP:
        return (
            f"groups of more than {LARGEST_ALLOCATED_GROUP} with random allocation aren't supported here: a whole release bounds each epoch"
        )
    if leaf.group == 1:
        return Pair(Allocated(family, leaf.steps), _at(move), _NULL)
    # A mean over blocks of as many steps as the group has records: proofs/allocation.md, Groups.
    far, squares = leaf.group * move, squared_moves(leaf.group, leaf.steps)
    lowest, kept = moved_up(list(squares.values()))
    shares = tuple(math.sqrt(square) / leaf.group for square in list(squares)[lowest:])
    if family.norm == "l1":
        kept, shares = (1.0,), (1.0,)
    if (blocks := leaf.steps // leaf.group) > 1:
        return Pair(Allocated(family, blocks, Mixture(kept, shares)), _at(far), _NULL)
    # The frame's origin is the lowest component, as that of a sampled group.
    return Pair(family, Mixture(kept, tuple(far * (share - shares[0]) for share in shares)), _at(-far * shares[0]))


def _at(shift: float) -> Mixture:
    return Mixture((1.0,), (shift,))


def _shuffled(leaf: Leaf) -> Pair | str:
    """That of one whole release an epoch: given the order, every other batch is the same. proofs/shuffled.md, 1."""
    loss = leaf.mechanism.privacy_loss()
    if not leaf.mechanism.CAN_BE_SAMPLED and (reason := _declared_reason(leaf, loss)) is not None:
        return reason
    if leaf.mechanism.neighbours[0] is Adjacency.ADD_REMOVE:
        return (
            "shuffled batches under add_remove have no guarantee that is proved here: one record more moves others to the next batches, or "
            "changes the batches' sizes. Under zero_out and replace_one they have that of one whole release an epoch"
        )
    if leaf.group > 1 and not isinstance(loss, GaussianLoss | LaplaceLoss | ResponseLoss):
        return (
            "groups with shuffled batches have no dominating pair that is proved here, but for Gaussian and Laplace noise, "
            "GDP and pure epsilon-DP"
        )
    (whole,) = unshuffled({leaf: 1})
    return _resolved(whole)


def _truncated(family: Density, leaf: Leaf, move: float) -> Pair | str:
    """Row 8: while fewer others are sampled than there is room for, as a Poisson sample; otherwise one displaces another."""
    assert leaf.truncation is not None  # of this scheme
    adjacency, (most, population) = leaf.mechanism.neighbours[0], leaf.truncation
    if leaf.group > 1 and adjacency is Adjacency.ZERO_OUT:
        return (
            "groups with samples of a largest size under zero_out have no dominating pair that is proved here: state them under add_remove"
        )
    plain = _poisson(family, leaf, move)
    if isinstance(plain, str):
        return plain
    units = min(leaf.group, population)
    log_crowded = log_binomial_tail(population - units, leaf.probability, most - units + 1)
    if log_crowded == -math.inf:
        return plain
    # The more often samples are cut, the larger the loss must be: at least as far as the plain pair's components are apart.
    far = max(move, plain.distance if plain.lower != _NULL else 0.0)
    displaced = _fixed_size(family, leaf.probability, far, adjacency) if leaf.group == 1 else _displacing_group(family, leaf, move, plain)
    crowded = max(math.nextafter(math.exp(log_crowded), math.inf), SMALLEST_WEIGHT)
    return displaced if crowded >= 1.0 else replace(plain, crowded=Crowded(crowded, displaced))


def _displacing_group(family: Density, leaf: Leaf, move: float, plain: Pair) -> Pair:
    weights = binomial_weights(leaf.group, leaf.probability)
    if leaf.mechanism.neighbours[0] is Adjacency.ADD_REMOVE:
        return _sampled_group(family, weights, 2.0 * move)
    # Each of the group replaces another record, or is one more where there is still room.
    return _replaced_group(family, weights, max(move, plain.upper.shifts[-1] / leaf.group))


def _contribution(mechanism: Mechanism, family: Density) -> float | None:
    """The shift of what one unit contributes; None if that isn't bounded in the norm that the noise needs."""
    given = mechanism.sensitivity
    if (given.l1_contribution if family.norm == "l1" else given.l2_contribution) is None:
        return None
    alone = mechanism.alone()
    assert alone is not None
    return alone.privacy_loss().distance


def _two(q: float, distance: float) -> Mixture:
    return Mixture((1.0 - q, q), (0.0, distance))


def _sampled_group(family: Density, weights: list[float], move: float) -> Pair:
    """sum_j weights[j] f(x - j move) against f(x); every rounding moves mass up, which dominates."""
    lowest, kept = moved_up(weights)
    # The frame's origin is the lowest component, so that its weight can represent 1 minus the others.
    return Pair(family, Mixture(kept, tuple(j * move for j in range(len(kept)))), Mixture((1.0,), (0.0 - lowest * move,)))


def _replaced_group(family: Density, weights: list[float], c: float) -> Pair:
    """sum_j weights[j] f(x - j c) against sum_j weights[j] f(x + j c); every rounding moves mass outwards, which dominates."""
    lowest, kept = moved_up(weights)
    upper = Mixture(kept, tuple(j * c for j in range(lowest, len(weights))))
    return Pair(family, upper, upper.mirrored)


def statement(leaf: Leaf) -> tuple[str, str]:
    """(a sampled leaf's pair, where it is proved), for derivations: f is noise of scale 1, m the whole release's distance."""
    adjacency = leaf.mechanism.neighbours[0]
    if isinstance(leaf.mechanism, LocalRelease) or (_is_guarantee(leaf) and not isinstance(leaf.mechanism.privacy_loss(), GaussianLoss)):
        return _kept_statement(leaf)
    if leaf.scheme in ("random_allocation", "shuffled", "truncated_poisson"):
        return _bounded_statement(leaf)
    if leaf.scheme == "fixed_size":
        return _fixed_size_statement(leaf, adjacency)
    if adjacency is Adjacency.REPLACE_ONE:
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
    if leaf.scheme == "shuffled":
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


def _bounded_statement(leaf: Leaf) -> tuple[str, str]:
    if leaf.scheme == "shuffled":
        return f"each record in one of {leaf.steps} batches of a shuffled epoch: as one whole release, not amplified", "proofs/shuffled.md"
    if leaf.scheme == "random_allocation":
        text = f"each record in one of {leaf.steps} releases: the mean over i of f(x - m e_i) against f(x), and f(x) against it"
        if leaf.group > 1:
            text = f"each of {leaf.group} records in one of {leaf.steps} releases: bounded by the mean over blocks of so many of them"
        return text, "proofs/allocation.md"
    own = statement(Leaf(leaf.probability, leaf.mechanism, group=leaf.group))[0]
    if leaf.group > 1:
        cut = "sum of Bin(k, q)(j) f(x - 2 j m) against f(x), both orders"
        if leaf.mechanism.neighbours[0] is Adjacency.REPLACE_ONE:
            cut = "the same with the larger of m and c in place of c"
        return f"{own}; where more than the largest batch less k others are sampled, {cut}", "proofs/pairs.md, row 8"
    cut = statement(Leaf(leaf.probability, leaf.mechanism, "fixed_size"))[0].removeprefix("sample of a fixed size: ")
    return f"{own}; where more are sampled than the largest batch, {cut}", "proofs/pairs.md, row 8"
