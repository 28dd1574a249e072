r"""The cache of profiles, and the time limit of a request."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.app.calculators_harness import without_cost
from zetadp.accountants import Event, deadline, profile
from zetadp.accountants.deadline import time_limit
from zetadp.app.calculators import cache as cache_module
from zetadp.app.calculators import profiles
from zetadp.app.calculators.cache import MOST_EVENTS, ProfileCache, weight
from zetadp.app.calculators.profiles import compute_profile
from zetadp.app.calculators.schemas import ProfileRequest
from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app
from zetadp.mechanisms.errors import TimeLimitReached

SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
ROOM = 2**24


def release(std: float = 1.0) -> dict[str, Any]:
    return {"kind": "release", "mechanism": {"kind": "gaussian", "std": std, "sensitivity": SENSITIVITY}}


def asked(std: float = 1.0, **points: object) -> ProfileRequest:
    return ProfileRequest.model_validate({"event": release(std), **({"deltas": [1e-5]} | points)})


def keeping(most_bytes: int) -> ProfileCache:
    """A cache that keeps answers however little time they took."""
    return ProfileCache(most_bytes, kept_from_seconds=0.0)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events that a profile was made for, in order."""
    made: list[Event] = []

    def counted(event: Event, accountant: str) -> Any:
        made.append(event)
        return profile(event, accountant)

    monkeypatch.setattr(profiles, "profile", counted)
    return made


def test_an_event_asked_twice_is_computed_once(computed: list[Event]) -> None:
    cache = keeping(ROOM)
    assert without_cost(cache.profile(asked())) == without_cost(cache.profile(asked())) == without_cost(compute_profile(asked()))
    assert len(computed) == 2  # one of the cache, one of the comparison


def test_other_points_of_a_known_event_are_answered_like_those_of_a_new_one() -> None:
    cache = keeping(ROOM)
    for points in ({"deltas": [1e-5]}, {"deltas": [1e-6, 1e-5]}, {"epsilons": [1.0], "orders": [2.0]}, {"alphas": [0.1, 0.1]}):
        assert without_cost(cache.profile(asked(**points))) == without_cost(compute_profile(asked(**points)))


def test_another_accountant_is_another_answer() -> None:
    cache = keeping(ROOM)
    assert cache.profile(asked(accountant="rdp")).route != cache.profile(asked(accountant="gdp")).route


def test_numbers_spelled_differently_are_one_event(computed: list[Event]) -> None:
    cache = keeping(ROOM)
    event = release()
    event["mechanism"] = dict(reversed(event["mechanism"].items())) | {"std": 1}
    assert cache.profile(ProfileRequest.model_validate({"event": event})).gdp_mu == cache.profile(asked()).gdp_mu
    assert len(computed) == 1


def test_what_was_asked_longest_ago_is_forgotten_first(computed: list[Event]) -> None:
    cache = keeping(ROOM)
    for index in range(MOST_EVENTS):
        cache.profile(asked(1.0 + index))
    cache.profile(asked(1.0))
    cache.profile(asked(0.5))
    assert len(cache) == MOST_EVENTS
    del computed[:]
    cache.profile(asked(1.0))
    assert not computed
    cache.profile(asked(2.0))
    assert len(computed) == 1


def test_it_never_keeps_more_than_its_bytes() -> None:
    size = weight(profiles.Answers(asked().event, "auto"))
    cache = keeping(10 * size)
    for index in range(100):
        cache.profile(asked(1.0 + index, epsilons=[0.1 * number for number in range(index % 7)]))
        assert 0 <= cache.bytes <= 10 * size
    assert 1 <= len(cache) <= 10


def test_what_took_no_time_is_computed_again_and_never_weighed(computed: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cache_module, "weight")
    cache = ProfileCache(ROOM, kept_from_seconds=3600.0)
    assert without_cost(cache.profile(asked())) == without_cost(cache.profile(asked()))
    assert (len(computed), len(cache), cache.bytes) == (2, 0, 0)


def test_without_room_nothing_is_kept_and_all_is_answered() -> None:
    cache = ProfileCache(0)
    assert without_cost(cache.profile(asked())) == without_cost(compute_profile(asked()))
    assert (len(cache), cache.bytes) == (0, 0)


def test_answers_kept_count_as_they_grow() -> None:
    cache = keeping(ROOM)
    cache.profile(asked())
    before = cache.bytes
    cache.profile(asked(epsilons=[0.001 * number for number in range(1000)]))
    assert cache.bytes > before + 1000 * 100


def test_a_refusal_keeps_nothing() -> None:
    cache = keeping(ROOM)
    cache.profile(asked())
    for limit in (1e-9, 60.0):
        with time_limit(limit):
            try:
                answer = cache.profile(asked(epsilons=[1.0]))
            except TimeLimitReached:
                assert (len(cache), cache.bytes) == (0, 0)
    assert without_cost(answer) == without_cost(compute_profile(asked(epsilons=[1.0])))


def test_many_threads_get_the_same_answers(computed: list[Event]) -> None:
    cache = keeping(ROOM)
    requests = [asked(1.0 + index % 5, epsilons=[0.1 * index]) for index in range(200)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(cache.profile, requests))
    assert len(computed) == 5
    assert without_cost(answers) == without_cost([compute_profile(request) for request in requests])


def test_who_waits_for_anothers_answer_keeps_to_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = keeping(ROOM)
    begun, finish = threading.Event(), threading.Event()

    def slow(event: Event, accountant: str) -> Any:
        begun.set()
        assert finish.wait(120.0)
        return profile(event, accountant)

    monkeypatch.setattr(profiles, "profile", slow)
    first = threading.Thread(target=cache.profile, args=(asked(),))
    first.start()
    assert begun.wait(120.0)
    # Who waits uses no processor time: here the limit is one of time on the wall.
    with pytest.raises(TimeLimitReached), time_limit(0.1, clock=time.monotonic):
        cache.profile(asked())
    with pytest.raises(TimeLimitReached), time_limit(60.0, is_wanted=lambda: False):
        cache.profile(asked())
    finish.set()
    first.join()


def test_arrays_and_the_whole_behind_a_view_are_weighed() -> None:
    held = {"grid": np.zeros(10_000), "half": [np.zeros(10_000)[:5]]}
    assert 160_000 <= weight(held) < 170_000
    assert weight(cache_module) < 1000  # the program itself isn't


@pytest.fixture
def hurried(tmp_path: Path) -> Generator[TestClient]:
    """A service that gives no calculation any time."""
    with TestClient(create_app(Settings(data_dir=tmp_path, calculation_seconds=1e-9)), base_url="http://127.0.0.1") as client:
        yield client


def test_a_calculation_over_its_time_is_told_to_come_as_a_job(hurried: TestClient) -> None:
    response = hurried.post("/v1/profiles", json={"event": release(), "deltas": [1e-5]})
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")
    body = response.json()
    assert (body["type"], body["job"]) == ("time-limit-reached", "/v1/calculations")
    assert "longer than the limit of 1e-09 s; send it as a job: POST /v1/calculations" in body["detail"]


def test_a_calculation_is_stopped_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_event: Event, _accountant: str) -> Any:
        while True:
            deadline.check()

    monkeypatch.setattr(profiles, "profile", endless)  # answered at all, it was stopped
    with TestClient(create_app(Settings(data_dir=tmp_path, calculation_seconds=0.2)), base_url="http://127.0.0.1") as client:
        response = client.post("/v1/profiles", json={"event": release()})
    assert response.json()["type"] == "time-limit-reached"
