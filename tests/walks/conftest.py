"""What the walks share: one browser, one service with a worker, and for the tests of each file a tenant of their own.

The fixtures live as long as the tests of this folder run: a browser's event loop would be in the way of other files' own.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.walks.pages import Complaints, Service, browser, new_key, serving_jobs
from zetadp.app.access.scopes import Scope


@pytest.fixture(scope="package")
def chromium() -> Generator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="package")
def shared_page(chromium: Any) -> Generator[tuple[Any, Complaints]]:
    """For walks that need no key and leave nothing behind: a new page costs three times as much as going to another address."""
    context, complaints = chromium.new_context(), Complaints()
    page = context.new_page()
    complaints.watch(page)
    yield page, complaints
    context.close()


@pytest.fixture
def reused(shared_page: tuple[Any, Complaints]) -> tuple[Any, Complaints]:
    """An empty page, and nothing that was complained of yet."""
    page, complaints = shared_page
    page.goto("about:blank")
    complaints.lines.clear()
    complaints.requested.clear()
    return page, complaints


@pytest.fixture(scope="module")
def window(chromium: Any) -> Generator[Any]:
    """For the tabs of a file's walks, which load and compile the same scripts once. A key is a tab's own."""
    context = chromium.new_context()
    yield context
    context.close()


@pytest.fixture(scope="package")
def service(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    """For every walk that doesn't end it; where there is no browser, it isn't started."""
    with serving_jobs(tmp_path_factory.mktemp("walks")) as found:
        yield found


@pytest.fixture(scope="package")
def address(service: Service) -> str:
    return service.address


@pytest.fixture
def own_service(chromium: Any, tmp_path: Path) -> Generator[Service]:
    """For a walk that ends it."""
    with serving_jobs(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def tenant(request: pytest.FixtureRequest) -> str:
    """Who sees nothing but what the tests of this file make."""
    return request.module.__name__.rpartition(".")[2].replace("_", "-")


@pytest.fixture(scope="module")
def key(service: Service, tenant: str) -> str:
    return new_key(service, tenant, *Scope)


@pytest.fixture(scope="module")
def client(service: Service, key: str) -> Generator[httpx2.Client]:
    with service.client(key) as found:
        yield found
