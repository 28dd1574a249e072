r"""What stands between zetadp and NVFLARE on our side: settings, the line to a controller, and the job that is written."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic import ValidationError

from tests.trainer.federation_harness import DATA, spec_of
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.flare_job import write_flare
from zetadp.trainer.sites.flare_line import FlareLine
from zetadp.trainer.sites.local_line import listening
from zetadp.trainer.sites.settings import CoordinatorSettings, SiteSettings

SITE = {"name": "a", "state": "a", "data": DATA, "budget": {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"}}
SECONDS = 60.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "superlink must be given for Flower, or socket for NVFLARE, and not both, got 'neither'"),
        ({"superlink": "here:1", "socket": "s"}, "got 'superlink and socket'"),
        ({"socket": "s", "insecure": True}, "insecure must be absent with socket"),
        ({"socket": "s" * 101}, "a path of at most 100 bytes"),
    ],
)
def test_a_site_is_connected_in_one_way(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SiteSettings.model_validate(SITE | given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "got 'neither'"),
        ({"listen": "here:1", "relay": "r"}, "got 'listen and relay'"),
        ({"relay": "r", "certificate": "c"}, "absent with relay"),
    ],
)
def test_a_coordinator_is_connected_in_one_way(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CoordinatorSettings.model_validate({"key": "k"} | given)


def connected(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(SECONDS)
    while True:
        try:
            found.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            continue
        return found


def told(controller: socket.socket) -> bytes | None:
    return frames.receive(controller, lambda _head: 100)


def test_a_controller_that_comes_again_is_told_the_newest_request(short: Path) -> None:
    heard: list[bytes | None] = []

    def controllers() -> None:
        with connected(short / "relay") as first:
            heard.append(told(first))
            frames.send(first, b"early")  # comes although the second one connects at once
        with connected(short / "relay") as second:
            heard.append(told(second))
            frames.send(second, b"late")
            heard.append(told(second))  # until the end

    other = Thread(target=controllers)
    other.start()
    with FlareLine(short / "relay", lambda: None) as line:
        assert (short / "relay").stat().st_mode & 0o077 == 0
        line.send(b"request")
        answers: list[bytes] = []
        while len(answers) < 2:
            answers += [frame] if (frame := line.receive(0.01)) is not None else []
    other.join(SECONDS)
    assert (answers, heard) == ([b"early", b"late"], [b"request", b"request", None])
    assert not (short / "relay").exists()


def test_nothing_but_a_socket_is_removed(short: Path) -> None:
    (short / "site.pem").write_text("a key")
    with pytest.raises(InvalidParameter, match="a path where nothing is, or a socket"), FlareLine(short / "site.pem", lambda: None):
        pass
    assert (short / "site.pem").read_text() == "a key"


def test_a_socket_that_another_run_listens_on_is_not_taken(short: Path) -> None:
    with listening(short / "relay", 1):
        said = f"relay.lock, which process {os.getpid()} holds"
        with pytest.raises(InvalidParameter, match=said), FlareLine(short / "relay", lambda: None):
            pass
        with socket.socket(socket.AF_UNIX) as controller:
            controller.connect(str(short / "relay"))
    with listening(short / "relay", 1):  # free again
        pass


def test_a_run_that_should_stop_waits_for_no_controller(short: Path) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped), FlareLine(short / "relay", stop):
        pass
    assert not (short / "relay").exists()


def test_the_job_has_no_code_and_names_every_site_s_key(short: Path) -> None:
    federation = spec_of("0" * 64, ["1" * 64, "2" * 64]).federation
    assert federation is not None
    write_flare(federation, short / "relay", short / "flare")
    job = short / "flare" / "job"
    assert {path.suffix for path in job.rglob("*") if path.is_file()} == {".json"}
    [of] = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())["workflows"]
    assert of["args"] == {"socket_path": str(short / "relay"), "sites": ["a", "b"]}
    [scope] = json.loads((short / "flare" / "local" / "privacy.json").read_text())["scopes"]
    assert scope["task_result_filters"][0]["args"] == {"keys": ["1" * 64, "2" * 64]}
    with pytest.raises(FileExistsError):
        write_flare(federation, short / "relay", short / "flare")
