r"""Cheap collection."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects the tests without a look for garbage, and leaves out of every later look what then is there.

    Modules and tests are millions of objects that live as long as the process: to go through them again and again was two fifths of
    the time of collecting. Later it looks seldom: what the tests keep for one another lives long too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 5, 5)
        gc.enable()
