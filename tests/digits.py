r"""mpmath's digits belong to a test and not to those before it: 15, those of its mark ``digits``, or what it asks ``workdps`` for."""

from __future__ import annotations

from collections.abc import Generator

import mpmath
import pytest

DIGITS = 15
"""mpmath's own choice."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "digits(n): computed by mpmath with n decimal digits")


def pytest_collection_finish() -> None:
    if mpmath.mp.dps != DIGITS:
        raise pytest.UsageError(f"a module of the tests set mpmath's digits for all others: to {mpmath.mp.dps}; mark its tests instead")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    mark = item.get_closest_marker("digits")
    with mpmath.workdps(mark.args[0] if mark else DIGITS):
        return (yield)
