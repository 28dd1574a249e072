r"""What a guarantee lets an attacker do, in words. All such sentences come from this module; calculators, certificates and pages show them.

Every sentence is about one unit whose data are present or absent, with all other data fixed: this is what differential privacy bounds. It
says nothing about the share of a population that an attack finds, and neither do these sentences.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

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

_OTHERWISE = {
    Adjacency.ADD_REMOVE: ("had the {unit} been left out", "this very {unit} wasn't left out"),
    Adjacency.REPLACE_ONE: ("had the {unit}'s data been replaced by another's", "this very {unit}'s data weren't replaced by another's"),
    Adjacency.ZERO_OUT: ("had the {unit}'s data been blanked out", "this very {unit}'s data weren't blanked out"),
}
"""The neighbour in which the unit's data are absent, as a condition; and what is true if they are present."""

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
    A test that would name this very patient with probability 1 % had the patient been left out names the patient with probability at
    most 9.24 %.
    >>> print(naming_sentence(0.01, 0.0, (Adjacency.REPLACE_ONE, "record")))  # doctest: +NORMALIZE_WHITESPACE
    Nothing is promised: a test that would name this very record with probability 1 % had the record's data been replaced by another's
    may name the record with probability 100 %.
    """
    check_alpha(false_positives)
    if not 0.0 <= false_negatives <= 1.0:
        raise InvalidParameter("false_negatives", "in [0, 1]", false_negatives)
    if neighbours is None:
        return _NOBODY
    unit = _spelled(neighbours[1])
    alpha, otherwise = _printed(false_positives), _OTHERWISE[neighbours[0]][0].replace("{unit}", unit)
    above = 1 if false_positives == 0.0 else max(Fraction(1), Fraction(Decimal(repr(false_positives))) / Fraction(false_positives))
    rate = (1 - Fraction(false_negatives)) * above
    shown = f" (That the {unit} is in the data at all isn't hidden.)" if neighbours[0] is Adjacency.REPLACE_ONE else ""
    test = f"test that would name this very {unit} with probability {alpha} % {otherwise}"
    if rate >= 1 - CERTAIN:
        return f"Nothing is promised: a {test} may name the {unit} with probability 100 %."
    return f"A {test} names the {unit} with probability at most {percent_up(rate)}.{shown}"


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
    true = _OTHERWISE[neighbours[0]][1].replace("{unit}", _spelled(neighbours[1]))
    who = f"who knows all other data, and considers it {_printed(prior)} % likely beforehand that {true},"
    printed = Fraction(Decimal(repr(prior)))
    blind = max(printed, 1 - printed)
    # The success at a prior changes by no more than the prior does; the printed decimal isn't exactly the float.
    rate = max(blind, Fraction(success) + abs(printed - Fraction(prior)))
    if rate >= 1 - CERTAIN:
        return f"Nothing is promised: somebody {who} may be right about that with probability 100 %."
    return f"Somebody {who} is right about that with probability at most {percent_up(rate)} (a blind guess: {percent_up(blind)})."


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
    return f"{_plain(Decimal(scaled).scaleb(-places))} %"


def _magnitude(value: Fraction) -> int:
    """The power of ten of its first digit, exactly.

    >>> [_magnitude(Fraction(value)) for value in ("100", "99.9", "1", "0.099")]
    [2, 1, 0, -2]
    """
    found = len(str(value.numerator)) - len(str(value.denominator))
    return found if value >= Fraction(10) ** found else found - 1


def _printed(probability: float) -> str:
    """In percent, as the shortest decimal that converts back to this float."""
    return _plain(Decimal(repr(probability)).scaleb(2))


def _plain(value: Decimal) -> str:
    """Without trailing zeros; with an exponent only if there would be many leading ones."""
    normal = value.normalize()
    return f"{normal:f}" if normal.adjusted() >= -6 else f"{normal:e}"


def _spelled(unit: str) -> str:
    return unit.replace("_", " ")
