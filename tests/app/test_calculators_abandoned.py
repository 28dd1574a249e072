"""A calculation whose client has gone is given up, in a real server with a real connection that is closed."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.app.jobs_harness import WAIT_SECONDS, serving, settings
from zetadp.accountants import deadline
from zetadp.app.kit.settings import Settings

RELEASE = {
    "kind": "release",
    "mechanism": {"kind": "gaussian", "std": 1.0, "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}},
}


class Endless:
    """A calculation that ends when it is stopped and never by itself."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, *_arguments: object) -> None:
        self.begun.set()
        try:
            while True:
                deadline.check()
                time.sleep(0.01)
        finally:
            self.ended.set()


@pytest.mark.parametrize(
    ("path", "body", "calculation"),
    [
        (
            "/v1/calibrations",
            {"event": RELEASE, "target": {"epsilon": 1.0, "delta": 1e-5}},
            "zetadp.app.calculators.limits.compute_calibration",
        ),
        ("/v1/profiles", {"event": RELEASE, "deltas": [1e-5]}, "zetadp.app.calculators.cache.ProfileCache.profile"),
        ("/v1/profiles/batch", {"requests": [{"event": RELEASE, "deltas": [1e-5]}]}, "zetadp.app.calculators.cache.ProfileCache.profile"),
    ],
)
def test_a_calculation_ends_when_its_client_goes(
    path: str, body: dict[str, object], calculation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless, content = Endless(), json.dumps(body).encode()
    monkeypatch.setattr(calculation, endless)
    of = Settings.model_validate(settings(tmp_path).model_dump() | {"calculation_seconds": 3600.0, "batch_seconds": 3600.0})
    with serving(of) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as line:
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            line.sendall(head.encode() + content)
            assert endless.begun.wait(WAIT_SECONDS)
            assert not endless.ended.wait(0.3)
        assert endless.ended.wait(WAIT_SECONDS)
        assert client.get("/livez").status_code == 200
