"""What the walks share."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.walks.pages import browser


@pytest.fixture(scope="module")
def chromium() -> Generator[Any]:
    """A browser for the tests of one file: its event loop would be in the way of other files' own."""
    with browser() as found:
        yield found
