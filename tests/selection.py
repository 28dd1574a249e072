r"""Which tests run: all but the slow ones, unless ``--all`` asks for everything or a test is named; and why any were left out.

A test is slow, and marked so, where it repeats with more power, more points or more rounds what a faster one shows. Contracts, golden
values, laws and proofs of soundness aren't.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

SKIPPED = "Skipped: "


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases of a parametrised test, plain tuples where it takes several arguments.

    Each ``every``-th from the first on runs by default, the others are slow.

    >>> [marked.marks for marked in thinned("abc", every=2)][1][0].name
    'slow'
    """
    return [_marked(case, slow=bool(number % every)) for number, case in enumerate(cases)]


def chosen(cases: Iterable[Any], of_default: Sequence[Any]) -> list[Any]:
    """The cases of a parametrised test: those named run by default, the others are slow."""
    listed = list(cases)
    missing = [case for case in of_default if case not in listed]
    if missing:
        raise ValueError(f"the default cases must be among all cases, got {missing}")
    return [_marked(case, slow=case not in of_default) for case in listed]


SLOW_SECONDS = 1800.0
"""After which a slow test has hung: beside other work some of them take minutes."""


def _marked(case: Any, *, slow: bool) -> Any:
    marks = (pytest.mark.slow,) if slow else ()
    if hasattr(case, "marks"):  # a pytest.param already, with an id of its own
        return pytest.param(*case.values, id=case.id, marks=(*case.marks, *marks))
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=marks)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "slow" in item.keywords and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))
    # A test that is named is meant, slow or not.
    if config.getoption("--all") or config.option.markexpr or any("::" in argument for argument in config.args):
        return
    slow = [item for item in items if "slow" in item.keywords]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if "slow" not in item.keywords]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(
        report.longrepr[2].removeprefix(SKIPPED) if isinstance(report.longrepr, tuple) else str(report.longrepr)
        for report in terminalreporter.getreports("skipped")
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"left out: {count} test{'s' if count > 1 else ''}: {reason}", yellow=True)
