"""What the tests of a caller's own training share: the same few events and the same code stand in each of their certificates."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.remembered import accounted_once

CERTIFYING = {"test_training", "test_own_loop", "test_own_evaluation", "test_model_card", "test_several_inputs"}


@pytest.fixture(scope="module", autouse=True)
def each_event_is_accounted_once(request: pytest.FixtureRequest) -> Generator[None]:
    """For the tests that train and certify."""
    if request.module.__name__.rpartition(".")[2] in CERTIFYING:
        with accounted_once():
            yield
    else:
        yield
