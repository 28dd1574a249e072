r"""A secure sum is the plain sum modulo a power of two, and a hostile coordinator gets no other one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.selection import chosen
from tests.trainer.secure_harness import MODEL, NUMBERS, Round, about, integers, plain, signing
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.messages import FIRST, digest, opened
from zetadp.trainer.sites.secure.masks import Ring, committed, expanded
from zetadp.trainer.sites.secure.parts import Part, sealed
from zetadp.trainer.sites.secure.party import COMMITMENT_BYTES, Party, shares_revealed
from zetadp.trainer.sites.secure.sharing import PRIME, SHARE_BYTES, joined, split
from zetadp.trainer.specs.algorithms.aggregation import SecureAggregation

EVERY, SIX = range(5), range(6)
STEPS = 5


@pytest.mark.parametrize("lost", [(), *((one,) for one in SIX), *combinations(SIX, 2)], ids=str)
def test_it_is_the_plain_sum_for_every_pattern_of_dropouts(lost: Collection[int]) -> None:
    # Whoever is lost is lost before one of the steps: each site before another one, and all patterns take turns.
    before = {site: (sum(lost) + 2 * place) % STEPS for place, site in enumerate(lost)}
    there = [[site for site in SIX if before.get(site, STEPS) > step] for step in range(STEPS)]
    assert Round(about(6, 2, 1)).whole(*there).tolist() == plain(there[2], 29)


@pytest.mark.parametrize("lost", chosen({str(pair): pair for pair in combinations(range(11), 2)}, ["(2, 7)"]))
def test_eleven_sites_of_which_two_drop_out(lost: str) -> None:
    gone = {int(part) for part in lost.strip("()").split(", ")}
    left = [site for site in range(11) if site not in gone]
    assert Round(about(11, 2, 2, width=21)).whole(range(11), range(11), left, left, left).tolist() == plain(left, 21)


@given(width=st.integers(1, 64), values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4))
def test_residues_travel_and_come_back(width: int, values: list[int]) -> None:
    ring = Ring(numbers=len(values), width=width)
    found = ring.centred(ring.unpacked(ring.packed(ring.residues(np.array(values)))))
    modulus = 2**width
    assert [int(value) % modulus for value in found] == [value % modulus for value in values]
    assert all(-modulus // 2 <= int(value) < modulus // 2 for value in found)


@settings(max_examples=20)
@given(secret=st.binary(min_size=32, max_size=32), points=st.sets(st.integers(1, 64), min_size=3, max_size=9))
def test_as_many_shares_as_are_needed_give_the_secret_and_one_less_dont(secret: bytes, points: set[int]) -> None:
    shares = split(secret, sorted(points), 3)
    assert all(joined({point: shares[point] for point in some}) == secret for some in combinations(sorted(points), 3))
    assert all(joined({point: shares[point] for point in some}) != secret for some in combinations(sorted(points), 2))


def test_every_coefficient_of_a_polynomial_is_drawn_anew_from_the_whole_field() -> None:
    """Fewer shares than are needed would say something of the secret otherwise."""
    found, times = set[int](), 3
    for _ in range(times):
        first, second, third = (int.from_bytes(share, "big") for share in split(bytes(range(32)), [1, 2, 3], 3).values())
        square = (first - 2 * second + third) * pow(2, -1, PRIME) % PRIME
        found |= {square, (second - first - 3 * square) % PRIME}
    assert len(found) == 2 * times
    assert min(found) > 2**400


def test_masked_integers_are_others_in_each_sum() -> None:
    runs = [Round(about(3, 0, 1)) for _ in range(2)]
    sent = [run.masked(range(3), run.shares(range(3), run.keys(range(3)))) for run in runs]
    ring = runs[0].about.ring
    for number in range(3):
        first, second = (masked[number].tolist() for masked in sent)
        assert len({*first, *second, *ring.residues(integers(number)).tolist()}) == 3 * NUMBERS


def test_what_binds_a_site_to_its_seed_is_derived_from_it_as_keys_are() -> None:
    run = Round(about(5, 1, 1))
    shares = run.shares(EVERY, run.keys(EVERY))
    agreed = run.agreed(EVERY, run.masked(EVERY, shares))
    held = [shares_revealed(opened(run.parties[number].revealed(agreed)).payload, EVERY) or {} for number in EVERY]
    salt = run.summing.roster.salt
    for number in EVERY:
        seed = joined({holder + 1: held[holder][number] for holder in range(4)})
        assert seed is not None
        shown = opened(shares[number]).payload[:COMMITMENT_BYTES]
        assert shown == committed(seed, salt)
        # Neither the mask's key, nor what the same seed would show elsewhere or without a label of its own.
        assert shown not in {expanded(seed, salt), committed(seed, bytes(32)), bytes.fromhex(digest(seed))}


Attack = Callable[[Round], object]


def _both_kinds(run: Round) -> object:
    """The same site's seed and key, one after the other."""
    arrived = run.masked(EVERY, run.shares(EVERY, run.keys(EVERY)))
    agreed = run.agreed(EVERY, arrived)
    run.parties[0].revealed(agreed)
    return run.parties[0].revealed(agreed)


def _second_list(run: Round) -> object:
    """A second list of survivors for one site."""
    run.masked(EVERY, run.shares(EVERY, run.keys(EVERY)))
    run.parties[0].agreed(EVERY)
    return run.parties[0].agreed([0, 1, 2, 3])


def _different_lists(run: Round) -> object:
    """Two lists of survivors: each has too few signatures."""
    run.masked(EVERY, run.shares(EVERY, run.keys(EVERY)))
    views = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 3], [0, 1, 2, 4]]
    agreed = [run.parties[number].agreed(view) for number, view in enumerate(views)]
    return run.parties[0].revealed(agreed[:2] + agreed[3:4])


def _different_shares(run: Round) -> object:
    """Lists of survivors that are equal, after some sites were given fewer shares: they have fewer masks between them."""
    shares = run.shares(EVERY, run.keys(EVERY))
    run.parties[0].masked(shares, MODEL, lambda: run.draw(0))
    others = [run.parties[number] for number in (1, 2, 3)]
    for number, party in enumerate(others, 1):
        party.masked(shares[:4], MODEL, lambda number=number: run.draw(number))
    return run.parties[0].revealed([party.agreed([0, 1, 2, 3]) for party in (run.parties[0], *others)])


def _different_models(run: Round) -> object:
    """One site's integers are for other parameters than the others'."""
    shares = run.shares(EVERY, run.keys(EVERY))
    for number in EVERY:
        run.parties[number].masked(shares, MODEL if number else "4" * 64, partial(run.draw, number))
    return run.parties[0].revealed([run.parties[number].agreed(EVERY) for number in EVERY])


def _signed_by_one_outside(run: Round) -> object:
    """A colluding site, whose integers aren't in the sum, makes up for one that signs another list."""
    shares = run.shares(EVERY, run.keys(EVERY))
    run.masked([0, 1, 2, 3], shares)
    agreed = [run.parties[number].agreed([0, 1, 2, 3]) for number in (0, 1, 2)]
    view = opened(agreed[0]).payload
    part = Part(kind="agreed", session=run.about.session, roster=run.summing.roster.digest, site="s4", payload=digest(view))
    return run.parties[0].revealed([*agreed, sealed(part, view, signing(4))])


def _without_its_own_shares(run: Round) -> object:
    return run.parties[0].masked(run.shares(EVERY, run.keys(EVERY))[1:], MODEL, lambda: run.draw(0))


def _arrived_without_shares(run: Round) -> object:
    """One whose shares the site wasn't given is said to have sent integers."""
    run.masked([0, 1, 2, 3], run.shares(EVERY, run.keys(EVERY))[:4])
    return run.parties[0].agreed(EVERY)


def _too_few_left(run: Round) -> object:
    run.masked(EVERY, run.shares(EVERY, run.keys(EVERY)))
    return run.parties[0].agreed([0, 1, 2])


def _not_among_them(run: Round) -> object:
    """Its own integers are said to be lost, so that its key would be revealed."""
    run.masked(EVERY, run.shares(EVERY, run.keys(EVERY)))
    return run.parties[0].agreed([1, 2, 3, 4])


def _too_few_signatures(run: Round) -> object:
    agreed = run.agreed(EVERY, run.masked(EVERY, run.shares(EVERY, run.keys(EVERY))))
    return run.parties[0].revealed(agreed[:3])


def _one_signature_often(run: Round) -> object:
    agreed = run.agreed(EVERY, run.masked(EVERY, run.shares(EVERY, run.keys(EVERY))))
    return run.parties[0].revealed([agreed[1]] * 5)


def _keys_of_its_own(run: Round) -> object:
    """The coordinator's keys in a site's name."""
    own = X25519PrivateKey.generate().public_key().public_bytes_raw() * 2
    part = Part(kind="keys", session=run.about.session, roster=FIRST, site="s1", payload=digest(own))
    keys = run.keys(EVERY)
    return run.parties[0].shares([keys[0], sealed(part, own, signing(-1)), *keys[2:]])


def _keys_of_another_sum(run: Round) -> object:
    other = Round(about(5, 1, 1, session="2" * 64)).keys(EVERY)
    return run.parties[0].shares([*run.keys(EVERY)[:4], other[4]])


def _keys_of_an_earlier_attempt(run: Round) -> object:
    """A site has made new keys since; the coordinator has kept its earlier ones."""
    earlier, again = run.keys(EVERY), Party(run.about, 0, signing(0))
    again.keys()
    return again.shares(earlier)


def _weak(run: Round, content: bytes = bytes(64)) -> bytes:
    """Keys of site 1 that are points of low order: everybody knows the secret."""
    part = Part(kind="keys", session=run.about.session, roster=FIRST, site="s1", payload=digest(content))
    return sealed(part, content, signing(1))


def _weak_keys(run: Round) -> object:
    keys = run.keys(EVERY)
    return run.parties[0].shares([keys[0], _weak(run), *keys[2:]])


def _shares_of_another_attempt(run: Round) -> object:
    other = Round(run.about)
    theirs = other.shares(EVERY, other.keys(EVERY))
    own = run.shares(EVERY, run.keys(EVERY))
    return run.parties[0].masked([own[0], *theirs[1:]], MODEL, lambda: run.draw(0))


def _draws_twice(run: Round) -> object:
    shares = run.shares(EVERY, run.keys(EVERY))
    run.parties[0].masked(shares, MODEL, lambda: run.draw(0))
    return run.parties[0].masked(shares, MODEL, lambda: run.draw(0))


def _skips(run: Round) -> object:
    run.shares(EVERY, run.keys(EVERY))
    return run.parties[0].agreed(EVERY)


STEP = "step must be the one after the last"
ATTACKS: dict[str, tuple[Attack, str]] = {
    "both kinds": (_both_kinds, STEP),
    "second list": (_second_list, STEP),
    "different lists": (_different_lists, "agreed of at least 4 sites, got 3"),
    "different shares": (_different_shares, "one of agreed from each site"),
    "different models": (_different_models, "one of agreed from each site"),
    "signed by one outside": (_signed_by_one_outside, "one of agreed from each site, got 's4'"),
    "without its own shares": (_without_its_own_shares, "a list with the site's own"),
    "arrived without shares": (_arrived_without_shares, "this site and others with shares"),
    "too few left": (_too_few_left, "at least 4 in all"),
    "not among them": (_not_among_them, "arrived must be this site and others"),
    "too few signatures": (_too_few_signatures, "agreed of at least 4 sites, got 3"),
    "one signature often": (_one_signature_often, "one of agreed from each site"),
    "keys of its own": (_keys_of_its_own, "signed by a site of the federation"),
    "keys of another sum": (_keys_of_another_sum, "keys of this sum"),
    "keys of an earlier attempt": (_keys_of_an_earlier_attempt, "a list with the site's own"),
    "weak keys": (_weak_keys, "an X25519 public key"),
    "shares of another attempt": (_shares_of_another_attempt, "shares of this sum"),
    "draws twice": (_draws_twice, STEP),
    "skips": (_skips, STEP),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_coordinator_is_refused(attack: str) -> None:
    run, (attacked, why) = Round(about(5, 1, 1)), ATTACKS[attack]
    with pytest.raises(InvalidParameter, match=why):
        attacked(run)
    # Nothing is drawn twice, and nothing for shares that aren't of this sum.
    assert len(run.draws) == len(set(run.draws))
    if attack in {"shares of another attempt", "without its own shares"}:
        assert not run.draws


def test_a_site_that_refused_goes_no_further() -> None:
    run = Round(about(5, 1, 1))
    arrived = run.masked(EVERY, run.shares(EVERY, run.keys(EVERY)))
    agreed = run.agreed(EVERY, arrived)
    for frames in (agreed[:3], agreed):
        with pytest.raises(InvalidParameter):
            run.parties[0].revealed(frames)


def test_a_site_that_couldnt_draw_signs_nothing() -> None:
    run = Round(about(5, 1, 1))
    shares = run.shares(EVERY, run.keys(EVERY))

    def broken() -> NDArray[np.int64]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run.parties[0].masked(shares, MODEL, broken)
    with pytest.raises(InvalidParameter, match=STEP):
        run.parties[0].agreed(EVERY)


def _wrong(run: Round, number: int) -> bytes:
    """A site's answer with shares of nothing."""
    payload, name = bytes(SHARE_BYTES * 5), f"s{number}"
    part = Part(kind="revealed", session=run.about.session, roster=run.summing.roster.digest, site=name, payload=digest(payload))
    return sealed(part, payload, signing(number))


def test_one_site_that_reveals_wrong_shares_is_left_out_and_two_give_no_sum() -> None:
    run = Round(about(5, 1, 1))
    agreed = run.agreed(EVERY, run.masked(EVERY, run.shares(EVERY, run.keys(EVERY))))
    revealed = [run.parties[number].revealed(agreed) for number in EVERY]
    assert (run.summing.total(revealed).tolist(), run.summing.wrong) == (plain(EVERY, 29), None)
    for number in EVERY[:4]:
        others = [frame for other, frame in enumerate(revealed) if other != number]
        assert (run.summing.total([_wrong(run, number), *others]).tolist(), run.summing.wrong) == (plain(EVERY, 29), number)
        # Without a fifth one nobody knows whose are wrong.
        with pytest.raises(InvalidParameter, match="of the secret that its site was bound to"):
            run.summing.total([_wrong(run, number), *others[:3]])
    with pytest.raises(InvalidParameter, match="of the secret that its site was bound to"):
        run.summing.total([_wrong(run, 0), _wrong(run, 1), *revealed[2:]])


@pytest.mark.parametrize("there", [[0, 1, 2, 3, 4], [0, 2, 3, 4]], ids=["seed", "key"])
def test_shares_that_give_another_secret_give_no_sum(there: list[int]) -> None:
    """Of the seed of site 1 if its integers arrived, else of its key: the secret and 1."""
    run = Round(about(5, 1, 1))
    agreed = run.agreed(there, run.masked(there, run.shares(EVERY, run.keys(EVERY))))
    revealed = {number: run.parties[number].revealed(agreed) for number in there}
    points = [number + 1 for number in there[:4]]
    weight = 1
    for other in points[1:]:
        weight = weight * other * pow(other - points[0], -1, PRIME) % PRIME
    payload = opened(revealed[0]).payload
    wrong = (int.from_bytes(payload[SHARE_BYTES : 2 * SHARE_BYTES], "big") + pow(weight, -1, PRIME)) % PRIME
    payload = payload[:SHARE_BYTES] + wrong.to_bytes(SHARE_BYTES, "big") + payload[2 * SHARE_BYTES :]
    part = Part(kind="revealed", session=run.about.session, roster=run.summing.roster.digest, site="s0", payload=digest(payload))
    assert run.summing.total(revealed.values()).tolist() == plain(there, 29)
    with pytest.raises(InvalidParameter, match="of the secret that its site was bound to, got 's1'"):
        run.summing.total([sealed(part, payload, signing(0)), *(revealed[number] for number in there[1:4])])


@pytest.mark.parametrize(
    ("sites", "dropouts", "colluding", "fits"), [(4, 1, 1, True), (3, 1, 1, False), (11, 2, 2, True), (11, 4, 3, False)]
)
def test_two_sums_of_one_round_must_be_impossible(sites: int, dropouts: int, colluding: int, *, fits: bool) -> None:
    aggregation = SecureAggregation(dropouts=dropouts, colluding=colluding)
    if fits:
        aggregation.check(sites)
    else:
        with pytest.raises(InvalidParameter, match=r"2 \* dropouts \+ colluding <"):
            aggregation.check(sites)


def test_messages_that_dont_fit_dont_count() -> None:
    run = Round(about(5, 1, 1))
    keys = run.keys(EVERY)
    assert [run.summing.counts_keys(frame) for frame in (*keys, b"", keys[0] + b"x")] == [0, 1, 2, 3, 4, None, None]
    # Sites would refuse a list with keys of low order: whoever sends them has dropped out instead.
    usable = opened(keys[1]).payload
    weak = (bytes(64), usable[:32] + bytes(32), bytes(32) + usable[32:], usable)
    assert [run.summing.counts_keys(_weak(run, content)) for content in weak] == [None, None, None, 1]
    shares = run.shares(EVERY, keys)
    assert [run.summing.counts_shares(frame) for frame in (*shares, keys[0], shares[1][:-1])] == [0, 1, 2, 3, 4, None, None]
    agreed = run.agreed(EVERY, run.masked(EVERY, shares))
    assert [run.summing.counts_agreed(frame) for frame in (*agreed, shares[0])] == [0, 1, 2, 3, 4, None]
    revealed = [run.parties[number].revealed(agreed) for number in EVERY]
    assert [run.summing.counts_revealed(frame) for frame in (*revealed, agreed[0])] == [0, 1, 2, 3, 4, None]
