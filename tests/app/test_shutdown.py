r"""A worker that is told to end does so within its own limit, whatever its queue and its database do."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.fake_child import Order
from tests.app.jobs_harness import (
    child_pids,
    is_alive,
    postgresql_server,
    serving,
    settings,
    state,
    submit,
    wait_for_state,
    wait_until,
    working,
)
from tests.app.proxy import Proxy, proxied
from tests.app.test_jobs_queue import calls
from tests.selection import thinned
from zetadp.app.kit.settings import Settings


@pytest.mark.parametrize("outage", thinned([Proxy.cut, Proxy.mute], every=2))
def test_worker_with_a_call_in_hand_ends_though_its_queue_is_gone_or_never_answers(tmp_path: Path, outage: Callable[[Proxy], None]) -> None:
    # The thread that answers the call tries again for as long as the queue is away, and Python waits for it before it ends.
    with postgresql_server() as url, proxied(url) as (through, proxy):
        of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": url})
        with serving(of) as client, working(of, queue_url=through) as worker:
            submit(client)
            wait_until(lambda: calls(of, "SUCCESS") >= 1)  # it listens
            held = submit(client, Order.HOLD)
            wait_for_state(client, held, "running")
            submit(client)
            wait_until(lambda: calls(of, "PENDING") == 1)
            outage(proxy)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert state(client, held) == "queued", worker.log
            assert client.get("/v1/hardware").json()["workers"] == []


def test_worker_whose_database_never_answers_ends_at_its_limit_and_its_training_process_with_it(tmp_path: Path) -> None:
    with postgresql_server() as url, proxied(url) as (through, proxy):
        of = Settings.model_validate(settings(tmp_path).model_dump() | {"database_url": url})
        behind = Settings.model_validate(of.model_dump() | {"database_url": through, "shutdown_seconds": 1.0})
        with serving(of) as client, working(behind, queue_url=url) as worker:
            held = submit(client, Order.HOLD)
            wait_until(lambda: len(child_pids(of, held)) == 1)
            proxy.mute()
            worker.send_signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert "shutdown_limit_reached" in worker.log
            wait_until(lambda: not is_alive(child_pids(of, held)[0]))
