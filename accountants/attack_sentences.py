r"""What a guarantee lets an attacker do, in words. All such sentences come from this module; calculators, certificates and pages show them.

Every sentence is about one unit whose data are present or absent, with all other data fixed: this is what differential privacy bounds. It
says nothing about the share of a population that an attack finds, and neither do these sentences.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Literal, NamedTuple, final

from zetadp.accountants.conversions import check_prior
from zetadp.accountants.profile import check_alpha
from zetadp.mechanisms.base import Adjacency, PrivacyUnit
from zetadp.mechanisms.errors import InvalidParameter

FALSE_POSITIVES = 0.01
"""The default probability of naming a unit that isn't there, at which an attack's success is stated."""

EVEN_ODDS = 0.5

CERTAIN = Fraction(1, 10**9)
"""A bound this close to 1 is reported as no bound at all."""

_DIGITS, _DIGITS_OF_REST = 3, 2


@final
class NeighbourWords(NamedTuple):
    r"""What an adjacency hides of one unit; ``{unit}`` stands for the unit's name.

    Attributes:
      choice: which data sets are neighbours.
      true: what is true of the one with them.
      question: what an attack finds out.
      absent, present: the two neighbours, as clauses.
      shown: what isn't hidden, as a sentence; empty if nothing needs saying.
    """

    choice: str
    true: str
    question: str
    absent: str
    present: str
    shown: str


_SHOWN = "The {unit}'s presence isn't hidden."

NEIGHBOURS = {
    Adjacency.ADD_REMOVE: NeighbourWords(
        choice="one {unit} more or less",
        true="this very {unit} wasn't left out",
        question="whether this {unit} was included",
        absent="the {unit} was left out",
        present="the {unit} was included",
        shown="",
    ),
    Adjacency.REPLACE_ONE: NeighbourWords(
        choice="one {unit}'s data replaced by another's",
        true="this very {unit}'s data weren't replaced by another's",
        question="whether this {unit}'s data are another's",
        absent="the {unit}'s data were replaced by another's",
        present="the {unit}'s data are the real ones",
        shown=_SHOWN,
    ),
    Adjacency.ZERO_OUT: NeighbourWords(
        choice="one {unit}'s data blanked out",
        true="this very {unit}'s data weren't blanked out",
        question="whether this {unit}'s data are blanked out",
        absent="the {unit}'s data were blanked out",
        present="the {unit}'s data are the real ones",
        shown=_SHOWN,
    ),
}
"""Every page words an adjacency by this table."""


Tone = Literal["good", "warn", "bad"]
"""How loudly a page shows a strength."""


@final
class Strength(NamedTuple):
    r"""Our word for what a guarantee is worth, and up to where it holds.

    Attributes:
      name: how the guarantee is called.
      guess: the largest probability of a right guess from even odds, in percent, rounded up as ``percent_up`` shows it.
      delta: the largest delta.
      publishes: whether delta times the number of units may be 1 or more, so that it would allow publishing one of them whole.
      tone: how pages show it.
    """

    name: str
    guess: float
    delta: float
    publishes: bool
    tone: Tone


STRENGTHS = (
    Strength("strong", 75.0, 1e-6, publishes=False, tone="good"),
    Strength("moderate", 90.0, 1e-5, publishes=False, tone="warn"),
    Strength("weak", 99.0, 1e-3, publishes=True, tone="bad"),
    Strength("almost no", 100.0, 1.0, publishes=True, tone="bad"),
)
"""From the strongest on; certificates and pages call a guarantee by the first whose limits it keeps."""

_NOBODY = "Nothing is promised to anybody: no part of what was released is private."

Neighbours = tuple[Adjacency, PrivacyUnit]


def naming_sentence(false_positives: float, false_negatives: float, neighbours: Neighbours | None) -> str:
    r"""How often a test names one unit whose data are present, if it seldom names the unit when its data are absent.

    The bound is stated as 1 - ``false_negatives``, rounded up. A trade-off curve is concave in its true positives, which are at least 0
    where alpha is 0. So if the decimal printed for alpha is above the float, the bound grows with it in proportion.

    Args:
      false_positives: alpha, in [0, 1].
      false_negatives: a lower bound on beta at this alpha, in [0, 1]; 0 if there is no guarantee.
      neighbours: adjacency and unit of the guarantee, as returned by ``accountants.neighbourhood``; None if no part is private.
    Raises:
      InvalidParameter: a rate is out of range.

    >>> print(naming_sentence(0.01, 0.9077, (Adjacency.ADD_REMOVE, "patient")))  # doctest: +NORMALIZE_WHITESPACE
    A test that names this very patient with probability 1 % if the patient was left out names it with probability at most 9.24 % if the
    patient was included.
    >>> print(naming_sentence(0.01, 0.0, (Adjacency.REPLACE_ONE, "record")))  # doctest: +NORMALIZE_WHITESPACE
    Nothing is promised: a test that names this very record with probability 1 % if the record's data were replaced by another's may
    name it with probability 100 % if the record's data are the real ones.
    """
    check_alpha(false_positives)
    if not 0.0 <= false_negatives <= 1.0:
        raise InvalidParameter("false_negatives", "in [0, 1]", false_negatives)
    if neighbours is None:
        return _NOBODY
    unit = _spelled(neighbours[1])
    words = NEIGHBOURS[neighbours[0]]
    absent, present, shown = (one.replace("{unit}", unit) for one in (words.absent, words.present, words.shown))
    rate = naming_rate(false_positives, false_negatives)
    test = f"test that names this very {unit} with probability {_printed(false_positives)} % if {absent}"
    if rate >= 1 - CERTAIN:
        return f"Nothing is promised: a {test} may name it with probability 100 % if {present}."
    return f"A {test} names it with probability at most {percent_up(rate)} if {present}.{f' ({shown})' if shown else ''}"


def guessing_sentence(prior: float, success: float, neighbours: Neighbours | None) -> str:
    r"""How often somebody who knows all other data guesses correctly whether one unit's data are present.

    Args:
      prior: the prior probability that the unit's data are present, in (0, 1).
      success: an upper bound on a correct guess's probability, such as ``conversions.bayes_success``; in [0, 1], 1 without a guarantee.
      neighbours: as for ``naming_sentence``.
    Raises:
      InvalidParameter: a probability is out of range.

    >>> print(guessing_sentence(0.5, 0.6914, (Adjacency.ADD_REMOVE, "record")))  # doctest: +NORMALIZE_WHITESPACE
    Somebody who knows all other data, and considers it 50 % likely beforehand that this very record wasn't left out, is right about
    that with probability at most 69.2 % (a blind guess: 50 %).
    """
    check_prior(prior)
    if not 0.0 <= success <= 1.0:
        raise InvalidParameter("success", "in [0, 1]", success)
    if neighbours is None:
        return _NOBODY
    true = NEIGHBOURS[neighbours[0]].true.replace("{unit}", _spelled(neighbours[1]))
    who = f"who knows all other data, and considers it {_printed(prior)} % likely beforehand that {true},"
    rate, blind = guessing_rates(prior, success)
    if rate >= 1 - CERTAIN:
        return f"Nothing is promised: somebody {who} may be right about that with probability 100 %."
    return f"Somebody {who} is right about that with probability at most {percent_up(rate)} (a blind guess: {percent_up(blind)})."


def naming_rate(false_positives: float, false_negatives: float) -> Fraction:
    """The bound that ``naming_sentence`` states, before it is rounded: for the decimal that it prints for alpha."""
    above = 1 if false_positives == 0.0 else max(Fraction(1), Fraction(Decimal(repr(false_positives))) / Fraction(false_positives))
    return (1 - Fraction(false_negatives)) * above


def guessing_rates(prior: float, success: float) -> tuple[Fraction, Fraction]:
    """The bound that ``guessing_sentence`` states, before it is rounded, and a blind guess's success: for the printed prior."""
    printed = Fraction(Decimal(repr(prior)))
    blind = max(printed, 1 - printed)
    # The success at a prior changes by no more than the prior does; the printed decimal isn't exactly the float.
    return max(blind, Fraction(success) + abs(printed - Fraction(prior))), blind


def strength(success: float, delta: Decimal, units: int | None) -> Strength:
    r"""The word for a guarantee.

    Args:
      success: an upper bound on the probability of a right guess from even odds, in [0, 1].
      delta: of the guarantee, in [0, 1].
      units: how many there are, all of which delta concerns; None where nobody knows.

    >>> [strength(0.74, Decimal(delta), 100_000).name for delta in ("0", "1e-6", "2e-6", "1e-5", "1e-3", "0.1")]
    ['strong', 'strong', 'moderate', 'weak', 'weak', 'almost no']
    """
    guess = Fraction(percent_up(Fraction(success)).removesuffix(" %"))
    publishes = units is not None and delta * units >= 1
    return next(one for one in STRENGTHS if guess <= one.guess and delta <= Decimal(repr(one.delta)) and publishes <= one.publishes)


def publication_sentence(delta: str, unit: PrivacyUnit) -> str | None:
    r"""What delta allows beside what epsilon bounds; None where it allows nothing.

    >>> publication_sentence("0.00001", "patient")
    "Delta allows even publishing the patient's data, with probability up to 0.00001."
    """
    if Decimal(delta) <= 0:
        return None
    return f"Delta allows even publishing the {_spelled(unit)}'s data, with probability up to {delta}."


def strengths_in_words() -> str:
    r"""What the words for a strength mean.

    >>> strengths_in_words()[:95]
    'Protection is called strong if a guess from even odds is right with probability at most 75 % an'
    """
    first, second, third = (f"{one.guess:g} % and delta is at most {plain_decimal(Decimal(repr(one.delta)))}" for one in STRENGTHS[:3])
    return (
        f"Protection is called strong if a guess from even odds is right with probability at most {first}; moderate up to {second}; weak "
        f"up to {third}; and almost none beyond. Where the number of units is known and delta times it is 1 or more, it is weak at best: "
        "such a delta would allow publishing one of them whole. These words are ours."
    )


def percent_up(rate: Fraction) -> str:
    r"""A probability in percent, rounded up: to three digits, or to as many more as leave two digits of the difference from 100 %.

    >>> [percent_up(Fraction(rate)) for rate in ("0.015271", "0.5", "0.6914", "0.999672", "0.00001234", "1", "0")]
    ['1.53 %', '50 %', '69.2 %', '99.968 %', '0.00124 %', '100 %', '0 %']
    """
    if rate <= 0 or rate >= 1:
        return "0 %" if rate <= 0 else "100 %"
    percent = 100 * rate
    places = max(0, _DIGITS - 1 - _magnitude(percent), _DIGITS_OF_REST - 1 - _magnitude(100 - percent))
    scaled = math.ceil(percent * 10**places)
    return f"{plain_decimal(Decimal(scaled).scaleb(-places))} %"


def _magnitude(value: Fraction) -> int:
    """The power of ten of its first digit, exactly.

    >>> [_magnitude(Fraction(value)) for value in ("100", "99.9", "1", "0.099")]
    [2, 1, 0, -2]
    """
    found = len(str(value.numerator)) - len(str(value.denominator))
    return found if value >= Fraction(10) ** found else found - 1


def _printed(probability: float) -> str:
    """In percent, as the shortest decimal that converts back to this float."""
    return plain_decimal(Decimal(repr(probability)).scaleb(2))


def plain_decimal(value: Decimal) -> str:
    """Without trailing zeros; with an exponent only if there would be many leading ones.

    >>> [plain_decimal(Decimal(text)) for text in ("0.50", "1e-5", "2.5e-9")]
    ['0.5', '0.00001', '2.5e-9']
    """
    normal = value.normalize()
    return f"{normal:f}" if normal.adjusted() >= -6 else f"{normal:e}"


def _spelled(unit: str) -> str:
    return unit.replace("_", " ")
