"""The errata's table: complete, named by everything that corrects a print, and with figures that can be computed again."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy import stats

from zetadp.mechanisms import MECHANISMS
from zetadp.mechanisms.errata import ERRATA, SEVERITIES, UnknownRow, erratum
from zetadp.mechanisms.numerics.gdp import gdp_log_delta
from zetadp.trainer import ALGORITHMS

ROOT = Path(__file__).parents[2]
COUNTS = {"Z": 24, "C": 19, "S": 33, "O": 19, "P": 24}
PAPERS = {
    "Z": "zeta_dp",
    "C": "complex_dp_federated",
    "S": "spof",
    "O": "complex_feature_obfuscation",
    "P": "spectral_dp",
}
ROW = re.compile(r"[ZCSOP][1-9][0-9]?")


def test_every_row_is_there_once_and_in_order():
    assert [row.row for row in ERRATA] == [f"{letter}{i}" for letter, count in COUNTS.items() for i in range(1, count + 1)]


@pytest.mark.parametrize("row", ERRATA, ids=lambda row: row.row)
def test_a_row_belongs_to_its_letters_paper_and_says_something_in_every_field(row):
    assert row.paper == PAPERS[row.row[0]]
    assert row.severity in SEVERITIES
    for text in (row.where, row.printed, row.proven, row.why):
        assert len(text) > 3
    assert row.printed != row.proven


def test_an_unknown_row_is_refused_by_name():
    with pytest.raises(UnknownRow, match="no row 'Z99'"):
        erratum("Z99")


def test_rows_that_mechanisms_and_algorithms_name_exist():
    named = [row for kind in MECHANISMS for row in kind.FACTS.errata] + [row for kind in ALGORITHMS for row in kind.ERRATA]
    assert named
    for row in named:
        assert erratum(row).row == row


def _texts_given_as(source: str, *names: str) -> list[str]:
    """Every text constant inside a keyword argument or a parameter's default of one of these names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        values = [word.value for word in getattr(node, "keywords", []) if word.arg in names] if isinstance(node, ast.Call) else []
        for value in values:
            found += [part.value for part in ast.walk(value) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return found


def test_the_search_for_named_rows_finds_them_and_nothing_else():
    assert _texts_given_as('f(erratum="Z2", note="W1")\ng(errata=("C3", "C4"))', "erratum", "errata") == ["Z2", "C3", "C4"]


def test_rows_that_findings_and_published_formulas_name_exist():
    named = {}
    for folder in ("app", "mechanisms", "trainer"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for text in _texts_given_as(path.read_text(encoding="utf-8"), "erratum", "errata"):
                named.setdefault(text, path)
    rows = {text: path for text, path in named.items() if ROW.fullmatch(text)}
    assert len(rows) >= 2
    unknown = {text: str(path) for text, path in rows.items() if text not in {row.row for row in ERRATA}}
    assert not unknown
    prose = {text: str(path) for text, path in named.items() if text not in rows}
    assert not prose, "erratum= takes a row's name"


def _delta(mu: float, epsilon: float) -> float:
    return float(np.exp(gdp_log_delta(mu, epsilon)))


def _softplus_derivative(order: int) -> float:
    with mpmath.workdps(60):
        return float(mpmath.taylor(lambda z: mpmath.log(1 + mpmath.e**z), 0, order)[order] * mpmath.factorial(order))


def _loss(z: float, x: float) -> float:
    return float(np.logaddexp(0.0, z) - x * z)


def _scale_tell(dimension: int) -> float:
    """delta(1) between zero-mean Gaussians of deviations 1/64 and 1/65 in this many dimensions, in the worse direction."""
    ratio = 65.0 / 64.0
    deltas = []
    for r in (ratio, 1.0 / ratio):
        # P has r times the deviation of Q, which is 1: log p/q = -d log r + (1 - 1/r^2) |x|^2 / 2 exceeds 1 beyond this |x|^2.
        threshold = 2.0 * (1.0 + dimension * np.log(r)) / (1.0 - 1.0 / (r * r))
        law = stats.chi2(dimension)
        p, q = (law.sf, law.sf) if r > 1.0 else (law.cdf, law.cdf)
        deltas.append(float(p(threshold / (r * r)) - np.e * q(threshold)))
    return max(deltas)


EVIDENCE = {
    "Z2": [(0.1269, _delta(1.0, 1.0)), (0.2862, _delta(2**0.5, 1.0)), (3.7e-15, _delta(1.0, 8.0)), (7.8e-8, _delta(2**0.5, 8.0))],
    "Z3": [(0.3753, stats.norm.sf(0.5) + stats.norm.cdf(-1.5)), (0.1269, _delta(1.0, 1.0))],
    "Z11": [(6.0e-6, _scale_tell(100)), (1.000, _scale_tell(10**6))],
    "C3": [(1.155, (1.0 + 0.5 * 2.0) ** 0.5 / (1.0 + 0.5) ** 0.5)],
    "S3": [
        (0.127, _loss(2.0, 1.0)),
        (0.193, np.log(2.0) + (0.5 - 1.0) * 2.0 + 2.0**2 / 8.0),
        (0.693, np.log(2.0) + (0.5 - 1.0) * 2.0 + (0.5 - 0.25) * 2.0**2),
    ],
    "S4": [(-2.77e7, _softplus_derivative(20))],
    "S11": [(9.625, 1.5 + 2.5 * (1.25 + 2.0))],
    "S20": [(441.0, 14 * (7 + 7**2 / 2)), (147.0, 1.5 * 7 * 14)],
    "S27": [(0.238, 2.0 * np.exp(-2.0) / (1.0 + np.exp(-2.0))), (4.2, (1.0 + np.exp(-2.0)) / (2.0 * np.exp(-2.0)))],
    "S28": [(112.0, 2 * 14 * 4.0), (14.0, min(14.0, 2.0 * 14**0.5 * 4.0))],
    "P12": [(5.66, 2.0 * (0.01 + np.log(1e5)) ** 2 / (4.0 * np.log(1.25e5)))],
}


@pytest.mark.parametrize("row", EVIDENCE)
def test_figures_given_as_evidence_can_be_computed_again(row):
    text = erratum(row).evidence
    assert text is not None
    for printed, computed in EVIDENCE[row]:
        assert computed == pytest.approx(printed, rel=0.02)
    numbers = [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text)]
    for printed, _ in EVIDENCE[row]:
        assert any(number == pytest.approx(printed) for number in numbers) or row in {"Z11"}, (printed, numbers)
