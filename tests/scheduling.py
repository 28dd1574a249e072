r"""The order of the tests: the longest first, so that no process is left with a long one at the end.

A unit of work is a file, whose tests share what they make; or a single test that takes long and shares nothing; or several files that share
what is dear. How long each takes stands in ``seconds.json``, which ``pytest tests --record-seconds`` writes anew. A figure that is
missing or stale costs time and nothing else.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

RECORD = Path(__file__).with_name("seconds.json")
RECORDED_SECONDS = 0.5
"""Units that take less aren't recorded: there are hundreds, and they fill the gaps."""
SINGLE_SECONDS = 2.0
"""A test that takes longer and shares nothing is a unit of its own."""
SHARED_SCOPES = ("module", "package", "class")
TOGETHER = {
    "walks in a browser": ("tests/walks/test_pages", "tests/walks/test_documentation"),
    "certificates": ("tests/app/test_certificate", "tests/app/test_verification"),
    "the API's description": ("tests/app/test_openapi", "tests/app/test_access_fuzz", "tests/app/test_documents"),
}
"""Units of several files, by how their names begin: those of one browser, those that account for the same events, and those that read the
description, which takes seconds to make."""
APART = "tests/walks/test_pages_start.py"
FREE = {"each_event_is_accounted_once"}
"""Fixtures of such a scope that cost nothing to set up again."""
INDEPENDENT = ("independent", True)
"""The property of a test that uses no fixture of its module, package or class."""


@cache
def seconds() -> dict[str, float]:
    """What each unit took when it was recorded."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def unit(nodeid: str) -> str:
    """The unit of work that a test belongs to: itself, its file, or several files."""
    return nodeid if nodeid in seconds() else shared_unit(nodeid)


def shared_unit(nodeid: str) -> str:
    for name, beginnings in TOGETHER.items():
        if nodeid.startswith(beginnings) and not nodeid.startswith(APART):
            return name
    return nodeid.partition("::")[0]


class LongestFirst(LoadScopeScheduling):
    """Hands out units in the order in which the tests were collected, which is that of their recorded seconds."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-seconds", action="store_true", help="write tests/seconds.json, by which the longest tests start first")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place: dict[str, int] = {}
    for item in items:
        place.setdefault(unit(item.nodeid), len(place))

    def rank(item: pytest.Item) -> tuple[float, int]:
        its_unit = unit(item.nodeid)
        return -seconds().get(its_unit, 0.0), place[its_unit]

    items.sort(key=rank)  # stable: the tests of a unit stay in order


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst:
    config.option.loadscopereorder = False
    return LongestFirst(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--record-seconds"):
        fixtures = getattr(item, "_fixtureinfo", None)
        scopes = {defined[-1].scope for name, defined in fixtures.name2fixturedefs.items() if name not in FREE} if fixtures else set()
        if not scopes.intersection(SHARED_SCOPES):
            item.user_properties.append(INDEPENDENT)


class Recorder:
    """Adds up what each test took, set-up included, and writes it down at the end."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = defaultdict(float)
        self.independent: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "slow" in report.keywords:  # with --all or by name: the figures are those of what runs by default
            return
        self.tests[report.nodeid] += report.duration
        if INDEPENDENT in report.user_properties:
            self.independent.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        units: dict[str, float] = defaultdict(float)
        for nodeid, taken in self.tests.items():
            alone = taken >= SINGLE_SECONDS and nodeid in self.independent
            units[nodeid if alone else shared_unit(nodeid)] += taken
        kept = {name: round(taken, 1) for name, taken in sorted(units.items()) if taken >= RECORDED_SECONDS}
        RECORD.write_text(json.dumps(kept, indent=1) + "\n")
