"""What a guarantee lets an attacker do, in words: about one unit, for every adjacency and unit, rounded to the safe side."""

from __future__ import annotations

import math
import random
import re
from decimal import Decimal
from fractions import Fraction

import pytest

from zetadp.accountants import NonPrivate, profile
from zetadp.accountants.attack_sentences import STRENGTHS, guessing_sentence, naming_sentence, percent_up, strength
from zetadp.mechanisms import Adjacency
from zetadp.mechanisms.errors import InvalidParameter

ABSENT, PRESENT = (
    {
        Adjacency.ADD_REMOVE: "the patient was left out",
        Adjacency.REPLACE_ONE: "the patient's data were replaced by another's",
        Adjacency.ZERO_OUT: "the patient's data were blanked out",
    },
    {
        Adjacency.ADD_REMOVE: "the patient was included",
        Adjacency.REPLACE_ONE: "the patient's data are the real ones",
        Adjacency.ZERO_OUT: "the patient's data are the real ones",
    },
)
THERE = {
    Adjacency.ADD_REMOVE: "this very patient wasn't left out",
    Adjacency.REPLACE_ONE: "this very patient's data weren't replaced by another's",
    Adjacency.ZERO_OUT: "this very patient's data weren't blanked out",
}
RECORD = (Adjacency.ADD_REMOVE, "record")


def told(sentence: str) -> Fraction:
    """The bound that a sentence names, as a probability."""
    found = re.search(r"with probability at most ([0-9.e-]+) %", sentence)
    assert found is not None
    return Fraction(found[1]) / 100


@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_neighbour_is_that_of_the_adjacency(adjacency: Adjacency) -> None:
    named = naming_sentence(0.01, 0.9077, (adjacency, "patient"))
    ending = " (The patient's presence isn't hidden.)" if adjacency is not Adjacency.ADD_REMOVE else ""
    assert named == (
        f"A test that names this very patient with probability 1 % if {ABSENT[adjacency]} names it with probability at most 9.24 % if "
        f"{PRESENT[adjacency]}.{ending}"
    )
    guessed = guessing_sentence(0.5, 0.6914, (adjacency, "patient"))
    assert f"considers it 50 % likely beforehand that {THERE[adjacency]}, is right about that" in guessed
    assert told(guessed) == Fraction("0.692")


def test_a_unit_of_several_words_is_spelled_as_words() -> None:
    assert "names this very group of 3 with" in naming_sentence(0.01, 0.9, (Adjacency.ADD_REMOVE, "group_of_3"))


def test_a_bound_is_never_told_as_less_than_it_is() -> None:
    stream = random.Random(5)
    for _ in range(2000):
        alpha = stream.choice((10 ** stream.uniform(-300, 0), stream.random(), stream.randrange(1, 100) / 100))
        beta = stream.choice((1 - 10 ** stream.uniform(-16, 0), stream.random(), 10 ** stream.uniform(-8, 0)))
        sentence = naming_sentence(alpha, beta, RECORD)
        exact, found = 1 - Fraction(beta), told(sentence)
        # Three digits: at most one in the third of them more.
        assert exact <= found <= exact * Fraction("1.0101")


def test_where_alpha_is_printed_above_the_float_the_bound_holds_at_what_is_printed() -> None:
    # .3 as a float lies below .3, and a concave curve may rise in proportion between the two.
    assert Fraction(0.3) < Fraction("0.3")
    assert told(naming_sentence(0.3, 0.5, RECORD)) > Fraction("0.5")
    assert told(naming_sentence(0.25, 0.5, RECORD)) == Fraction("0.5")


@pytest.mark.parametrize(
    ("alpha", "printed"), [(0.0, "0 %"), (0.05, "5 %"), (1e-9, "1e-7 %"), (0.001, "0.1 %"), (1 / 3, "33.33333333333333 %")]
)
def test_alpha_is_told_as_it_was_asked(alpha: float, printed: str) -> None:
    assert f"with probability {printed} if" in naming_sentence(alpha, 0.5, RECORD)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_without_a_guarantee_nothing_is_promised(adjacency: Adjacency) -> None:
    infinite = profile(NonPrivate(reason="published"))
    beta = infinite.trade_off(0.01)
    for sentence in (naming_sentence(0.01, beta, (adjacency, "user")), guessing_sentence(0.5, 1.0, (adjacency, "user"))):
        assert sentence.startswith("Nothing is promised: ")
        assert sentence.replace(f" if {PRESENT[adjacency].replace('patient', 'user')}.", ".").endswith("with probability 100 %.")
        assert "at most" not in sentence


def test_where_nothing_is_private_nothing_is_promised_to_anybody() -> None:
    for sentence in (naming_sentence(0.01, 0.0, None), guessing_sentence(0.5, 1.0, None)):
        assert sentence.startswith("Nothing is promised to anybody")


def test_a_guarantee_that_hides_little_is_told_with_what_it_hides() -> None:
    missed = math.exp(-8.0) * 0.99
    assert told(naming_sentence(0.01, missed, RECORD)) == Fraction("0.99967")


@pytest.mark.parametrize(("prior", "blind"), [(0.01, "99 %"), (0.9, "90 %"), (0.5, "50 %")])
def test_a_guess_is_told_beside_a_blind_one(prior: float, blind: str) -> None:
    sentence = guessing_sentence(prior, 0.9947, RECORD)
    assert sentence.endswith(f"with probability at most 99.48 % (a blind guess: {blind}).")


def test_rates_that_are_none_are_refused() -> None:
    for false_positives, false_negatives in ((-0.1, 0.5), (1.1, 0.5), (0.5, math.nan), (math.nan, 0.5), (0.5, -1e-9), (0.5, 1.1)):
        with pytest.raises(InvalidParameter):
            naming_sentence(false_positives, false_negatives, RECORD)
    for prior, success in ((0.0, 0.5), (1.0, 0.5), (0.5, 1.1), (0.5, math.nan)):
        with pytest.raises(InvalidParameter):
            guessing_sentence(prior, success, RECORD)


def test_percents_are_rounded_up() -> None:
    stream = random.Random(7)
    for _ in range(2000):
        rate = Fraction(10 ** stream.uniform(-12, 0))
        assert rate <= Fraction(percent_up(rate).removesuffix(" %")) / 100 <= rate * Fraction("1.0101")


# Strengths


@pytest.mark.parametrize(
    ("success", "delta", "units", "name"),
    [
        (0.5, "0", None, "strong"),
        (0.75, "1e-6", None, "strong"),
        (0.7501, "1e-6", None, "moderate"),
        (0.5, "1.1e-6", None, "moderate"),
        (0.8999, "1e-5", None, "moderate"),
        (0.5, "0.00002", None, "weak"),
        (0.99, "1e-3", None, "weak"),
        (0.5, "0.0011", None, "almost no"),
        (0.991, "0", None, "almost no"),
        (0.5, "1e-6", 999_999, "strong"),
        (0.5, "1e-6", 1_000_000, "weak"),
    ],
)
def test_a_strength_holds_up_to_its_limits_and_not_beyond(success: float, delta: str, units: int | None, name: str) -> None:
    assert strength(success, Decimal(delta), units).name == name


def test_more_success_a_larger_delta_and_more_units_never_have_a_better_strength() -> None:
    successes, deltas = (0.5, 0.75, 0.751, 0.9, 0.95, 0.99, 1.0), [Decimal(text) for text in ("0", "1e-9", "1e-6", "1e-5", "1e-3", "0.5")]
    for units in (None, 1, 10**5, 10**9):
        ranks = [[STRENGTHS.index(strength(success, delta, units)) for delta in deltas] for success in successes]
        assert all(row == sorted(row) for row in (*ranks, *map(list, zip(*ranks, strict=True))))
