r"""One unit more or less moves nobody else: between training and test, between nodes, between encoders, in or out of what is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from zetadp.mechanisms.base import Adjacency
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.data import DataSet, DigitsImages, DigitsPhasePairs, facts_of
from zetadp.trainer.data.splits import Keys, by_record, dealt, is_chosen, name_keys, record_keys, sides
from zetadp.trainer.engine import units_at_nodes
from zetadp.trainer.engine.autoencoders.rows import TrainingRows
from zetadp.trainer.specs.algorithms.spof import Spof
from zetadp.trainer.specs.obfuscation.division import shuffled
from zetadp.trainer.specs.units import check_split

SEED, FRACTION = 3, 0.2
Split = Callable[[Keys], NDArray[Any]]
"""Keys of the records -> whose training they are in."""


def records(count: int) -> NDArray[Any]:
    return RandomStream.from_seed(1, "made-up records").uniform(4 * count).reshape(count, 4).astype(np.float32)


def by_keyed_hash(keys: Keys) -> NDArray[Any]:
    return by_record("content", keys, SEED, FRACTION)[0]


def by_permutation(keys: Keys) -> NDArray[Any]:
    """A broken build: a fifth of all places in a random order, as splits were drawn once."""
    return shuffled(len(keys), SEED, "train/test split")[round(FRACTION * len(keys)) :]


def by_place(keys: Keys) -> NDArray[Any]:
    """A broken build under add_remove."""
    return by_record("position", keys, SEED, FRACTION)[0]


def moved(split: Split, rows: NDArray[Any], place: int) -> int:
    """Records that are trained on with or without the record at ``place``, and not both, beside that record."""
    fewer = np.delete(rows, place, axis=0)
    first, second = (set(map(bytes, some[split(record_keys(some))])) for some in (rows, fewer))
    return len((first ^ second) - {bytes(rows[place])})


@pytest.mark.parametrize("place", [0, 500, 999])
def test_a_record_that_leaves_moves_no_other_record(place: int) -> None:
    assert moved(by_keyed_hash, records(1000), place) == 0


@pytest.mark.parametrize("broken", [by_permutation, by_place])
def test_splits_by_place_are_found_to_move_others(broken: Split) -> None:
    assert moved(broken, records(1000), 500) > 50


def test_the_order_of_records_decides_nothing() -> None:
    rows = records(300)
    turned = rows[::-1]
    first, second = (set(map(bytes, some[by_keyed_hash(record_keys(some))])) for some in (rows, turned))
    assert first == second


def test_a_record_that_is_replaced_stays_on_its_side_where_places_decide() -> None:
    rows = records(300)
    other = rows.copy()
    other[7] = 0.25
    first, second = (by_record("position", record_keys(some), SEED, FRACTION) for some in (rows, other))
    assert all(np.array_equal(one, another) for one, another in zip(first, second, strict=True))


def test_users_are_on_one_side_whoever_else_is_there() -> None:
    names = np.array([f"user {number % 40}" for number in range(400)])
    training, test = sides(name_keys(names), SEED, FRACTION)
    assert not set(names[training]) & set(names[test])
    assert sorted([*training, *test]) == list(range(400))
    fewer = names[names != "user 17"]
    again, _ = sides(name_keys(fewer), SEED, FRACTION)
    assert set(fewer[again]) == set(names[training]) - {"user 17"}


def test_a_name_has_one_key_as_a_word_and_as_a_number() -> None:
    keys = [name_keys(np.array(names)).tolist() for names in (["12", "7", "12"], [12, 7, 12], [12.0, 7.0, 12.0])]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[0])) == 2
    # A longer name beside it changes the type of the array.
    assert name_keys(np.array(["12", "a much longer name"]))[0] == keys[0][0]


def test_names_that_would_be_one_unit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zetadp.trainer.data.splits._key", len)
    assert len(set(name_keys(np.array(["a", "bb", "a"])).tolist())) == 2
    with pytest.raises(InvalidParameter, match="a data set whose names have different 64-bit hashes"):
        name_keys(np.array(["a", "bb", "c"]))


def test_keys_follow_from_the_numbers_not_from_how_they_are_stored() -> None:
    rows = records(20)
    for same in (np.asfortranarray(rows), rows.astype(">f4"), np.repeat(rows, 2, axis=0)[::2]):
        assert np.array_equal(record_keys(same), record_keys(rows))
    assert len(set(record_keys(rows).tolist())) == 20
    labels = np.arange(20)
    assert not np.isin(record_keys(rows, labels), record_keys(rows)).any()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_as_many_are_chosen_as_expected(share: float) -> None:
    keys, seeds = np.arange(2000), range(5)
    chosen = np.concatenate([is_chosen(keys, share, seed, "purpose") for seed in seeds])
    # Five standard errors.
    assert abs(chosen.mean() - share) <= 5.0 * (share * (1.0 - share) / len(chosen)) ** 0.5
    assert not np.array_equal(is_chosen(keys, share, 0, "purpose"), is_chosen(keys, share, 0, "another"))


def test_parts_are_equally_likely() -> None:
    counts = np.bincount(dealt(np.arange(30_000), 3, 0, "purpose"), minlength=3)
    # chi-square with 2 degrees of freedom: 27.6 has probability 1e-6.
    assert float((((counts - 10_000) ** 2) / 10_000).sum()) < 27.6


def test_a_split_without_records_on_both_sides_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="no held-out records"):
        sides(np.array([5, 5, 5]), 0, 0.01)
    with pytest.raises(InvalidParameter, match="no training records"):
        sides(np.array([5, 5, 5]), 0, 0.99)


def test_a_unit_that_leaves_moves_no_other_between_nodes() -> None:
    keys = record_keys(records(500))
    homes, fewer = units_at_nodes(keys, 7, SEED), units_at_nodes(np.delete(keys, 250), 7, SEED)
    assert torch.equal(torch.cat(homes).sort().values, torch.arange(500))
    for before, after in zip(homes, fewer, strict=True):
        assert set(keys[before.numpy()].tolist()) - {int(keys[250])} == set(np.delete(keys, 250)[after.numpy()].tolist())
    assert not torch.equal(homes[0], units_at_nodes(keys, 7, SEED + 1)[0])


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("split_by", ["content", "position"])
def test_a_guarantee_needs_a_split_that_suits_its_neighbours(adjacency: Adjacency, split_by: str) -> None:
    recipe = DigitsPhasePairs.model_validate({"split_seed": 0, "test_fraction": 0.2, "split_by": split_by})
    facts = facts_of(recipe, recipe.read())
    if (adjacency, split_by) in {(Adjacency.ADD_REMOVE, "position"), (Adjacency.REPLACE_ONE, "content")}:
        with pytest.raises(InvalidParameter, match=f"under {adjacency.value}"):
            check_split(facts, adjacency)
    else:
        check_split(facts, adjacency)


def test_a_row_goes_to_its_encoder_whoever_else_is_there(tmp_path: Path) -> None:
    spec = Spof.example()
    with_four = Spof.model_validate(dict(spec) | {"encoders": 4})
    rows, users = records(60), name_keys(np.arange(60) // 3)

    def places(keep: NDArray[Any], users: Keys | None, rows: NDArray[Any] = rows) -> NDArray[Any]:
        some = None if users is None else users[keep]
        data = DataSet(rows[keep], rows[keep], rows[:1], rows[:1], None, some)
        recipe = DigitsImages(split_seed=0, test_fraction=0.2)
        facts = facts_of(recipe, data)
        return TrainingRows.of(with_four, facts, data, torch.device("cpu")).places.numpy()

    whole = np.arange(60)
    without = np.delete(whole, [9, 10, 11])
    assert np.array_equal(places(whole, users)[without], places(without, users))
    assert set(places(whole, users).tolist()) == {0, 1, 2, 3}
    # Under replace_one, a row's place decides, and never what is in it.
    assert spec.adjacency is Adjacency.REPLACE_ONE
    assert np.array_equal(places(whole, None), places(whole, None, 1.0 - rows))
