"""What a guarantee means, as every page shows it: one rule, one rounding, the sentences' own figures."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import problem
from zetadp.accountants.attack_sentences import STRENGTHS, strengths_in_words
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

GIVEN = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "patient", "units": None}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(Settings(data_dir=tmp_path_factory.mktemp("data"))), base_url="http://127.0.0.1")


def answer(client: TestClient, **changes: object) -> dict[str, Any]:
    response = client.post("/v1/meanings", json={**GIVEN, **changes})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 4.0, 12.0, 30.0])
def test_its_figures_are_those_of_any_epsilon_delta_guarantee_rounded_up_and_those_of_its_sentences(
    epsilon: float, client: TestClient
) -> None:
    found = answer(client, epsilon=epsilon)
    # Kairouz, Oh and Viswanath 2015, Theorem 2.1.
    e = math.exp(epsilon)
    right = (1 + (e - 1 + 2e-5) / (e + 1)) / 2
    right = (1 + (e - 1 + 2e-5) / (e + 1)) / 2
    named = min(e * 0.01 + 1e-5, 1 - (1 - 1e-5 - 0.01) / e)
    stated = {of: re.search(r"probability at most ([0-9.e-]+) %", found[of]["sentence"]) for of in ("guess", "naming")}
    percents = {of: match[1] if match else "100" for of, match in stated.items()}
    for of, rate in (("guess", right), ("naming", named)):
        assert rate * (1 - 1e-9) <= float(percents[of]) / 100 <= rate * 1.011
    assert found["naming_percent"] == percents["naming"]
    assert found["strengths"] == strengths_in_words()
    assert found["tone"] == next(one.tone for one in STRENGTHS if one.name == found["strength"])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"epsilon": 1.0986, "delta": 0}, "strong"),
        ({"epsilon": 1.0987, "delta": 0}, "moderate"),
        ({"epsilon": 0.0, "delta": 1.1e-6}, "moderate"),
        ({"epsilon": 0.5, "delta": "1e-06"}, "strong"),
        ({"epsilon": 0.5, "delta": "1.00000000000000001e-06"}, "moderate"),
        ({"epsilon": 0.5, "delta": 1e-6, "units": 10**6}, "weak"),
        ({"epsilon": 0.5, "delta": 3e-6, "units": 333_333}, "moderate"),
        ({"epsilon": 0.5, "delta": 3e-6, "units": 333_334}, "weak"),
        ({"epsilon": 4.0}, "weak"),
        ({"epsilon": 5.0}, "almost no"),
        ({"epsilon": "Infinity"}, "no"),
        ({"delta": 1}, "no"),
        ({"adjacency": None}, "no"),
        ({"epsilon": "9" * 40}, "almost no"),
        ({"epsilon": 0.5, "delta": "1e-400"}, "strong"),
        ({"epsilon": "1e-400"}, "moderate"),
    ],
)
def test_a_word_holds_up_to_its_limits_and_not_beyond(changes: dict[str, object], word: str, client: TestClient) -> None:
    assert answer(client, **changes)["strength"] == word


def test_what_delta_allows_is_said_of_the_delta_that_was_sent(client: TestClient) -> None:
    for delta, shown in ((1e-5, "0.00001"), ("1e-5", "1e-5"), (1e-9, "1e-9"), (0, None), (1, None)):
        said = answer(client, delta=delta)["publication"]
        assert said == (f"Delta allows even publishing the patient's data, with probability up to {shown}." if shown else None)


def test_larger_numbers_never_have_a_better_word(client: TestClient) -> None:
    names = [one.name for one in STRENGTHS]
    for delta in (0, 1e-9, 1e-5, 1e-3):
        ranks = [names.index(answer(client, epsilon=epsilon, delta=delta)["strength"]) for epsilon in (0.01, 1.0, 2.0, 4.0, 8.0)]
        assert ranks == sorted(ranks)


def test_a_decimal_is_never_taken_for_less_than_it_is(client: TestClient) -> None:
    for text in ("0.3", "0.8008127", "2.675"):
        as_float, as_text = (Fraction(1) - Fraction(answer(client, epsilon=one)["naming"]["beta"]) for one in (float(text), text))
        assert as_text >= as_float
    assert Fraction(answer(client, epsilon="2.675")["guess"]["success"]) >= Fraction(answer(client, epsilon=2.675)["guess"]["success"])


WRONG = [("epsilon", -1.0), ("epsilon", "-1"), ("epsilon", 1e60), ("delta", 1.5), ("delta", "2"), ("units", 0), ("adjacency", "none")]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_what_is_no_guarantee_is_refused(name: str, value: object, client: TestClient) -> None:
    problem(client.post("/v1/meanings", json={**GIVEN, name: value}))


def test_whether_the_number_of_units_is_known_has_to_be_said(client: TestClient) -> None:
    given = {name: value for name, value in GIVEN.items() if name != "units"}
    assert problem(client.post("/v1/meanings", json=given))["errors"][0]["field"] == "units"
