r"""A federation over NVFLARE, in its simulator: a server and three clients of its own, and zetadp's parts in them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trainer.federation_by_hand import Federation, until, zetadp
from tests.trainer.nvflare_harness import NEEDS_NVFLARE, NVFLARE, environment_of, killed
from zetadp.trainer import load_train
from zetadp.trainer.request import RESULT
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.flare_job import MODULE
from zetadp.trainer.sites.keys import public_text
from zetadp.trainer.sites.local_line import listening
from zetadp.trainer.sites.messages import FIRST, Refusal, digest, sealed
from zetadp.trainer.sites.secure.parts import Part
from zetadp.trainer.sites.secure.parts import sealed as sealed_part
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.report import RunReport

ROUNDS = 6

pytestmark = NEEDS_NVFLARE


def simulator(federation: Federation, job: Path, name: str) -> subprocess.Popen[bytes]:
    """Three clients, each a process, with this job."""
    environment = environment_of(federation) | {"PYTHONPATH": str(federation.folder / "flare" / "local" / "custom")}
    shutil.copytree(federation.folder / "flare" / "local", federation.folder / name / "local")
    (federation.folder / name / "local" / "resources.json").write_text(json.dumps({"class_allow_list": ["zetadp_flare."]}))
    clients = ",".join(federation.names)
    command = ["nvflare", "simulator", str(job), "-w", str(federation.folder / name), "-c", clients, "-t", str(len(federation.names))]
    with (federation.folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


@pytest.mark.parametrize("aggregation", [None, {"dropouts": 0, "colluding": 1}], ids=["sites", "secure"])
def test_three_clients_and_a_server_that_is_killed_equal_the_simulation(aggregation: dict[str, int] | None, short: Path) -> None:
    changes = {"steps": ROUNDS, "reproducible": True, "seed": 5, "transport": "nvflare", "aggregation": aggregation}
    federation = Federation(short, round_seconds=30, **changes)
    zetadp("nvflare", str(short / "proposal.json"), "--relay", str(short / "relay"), "--output", str(short / "flare"))
    job = short / "flare" / "job"
    with federation.sites():
        running = federation.coordinator()
        until(lambda: (short / "relay").exists() and all((short / name / "socket").exists() for name in federation.names))
        first = simulator(federation, job, "first")
        try:
            until(lambda: federation.charged("a") >= 2)
        finally:
            killed(first)
        second = simulator(federation, job, "second")
        try:
            assert running.wait(300.0) == 0, (short / "coordinator.log").read_text()
        finally:
            killed(second)
    report = RunReport.model_validate_json((short / "work" / RESULT).read_bytes())
    assert report.event == federation.proposal.plan.event
    # A round that the kill cut off is asked again, and gets the same bytes: nothing is drawn or charged twice.
    assert [(site.arrived, site.uncounted, site.charged) for site in report.sites] == [(ROUNDS, 0, ROUNDS)] * 3
    assert all(federation.charged(name) == ROUNDS for name in federation.names)
    federation.certificate(report)
    plain = FederatedZetaDpSgd.model_validate(dict(federation.spec) | {"transport": "simulated", "federation": None})
    load_train(plain)(plain, plain.plan(), federation.runtime, short / "plain", report=lambda _event: None, should_stop=lambda: False)
    files = [folder / "artifacts" / "model.safetensors" for folder in (short / "work", short / "plain")]
    assert files[0].read_bytes() == files[1].read_bytes()


_ASKED = """
import json, sys
from nvflare.apis.filter import ContentBlockedException
from nvflare.apis.shareable import Shareable
from zetadp_flare import OnlySigned

keys, frames = json.load(sys.stdin)
only = OnlySigned(keys)
for frame in frames:
    result = Shareable()
    result["body"], result["more"] = bytes.fromhex(frame), "a record"
    result.set_header("note", "a record")
    try:
        found = only.process(result, None)
        print(sorted(set(found) - {"__headers__"}), "a record" in repr(found))
    except ContentBlockedException as blocked:
        print("blocked")
"""


def test_only_what_a_site_signed_leaves_a_client_to_the_last_byte() -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    refusal = Refusal(proposal=FIRST, site="a", round=0, reason="not_agreed", charged=None)
    payload = b"masked"
    part = Part(kind="keys", session=FIRST, roster=FIRST, site="a", payload=digest(payload))
    good = [sealed(refusal, b"", key), sealed_part(part, payload, key)]
    bad = [
        *(frame + b"!" for frame in good),
        sealed(refusal, b"", other),
        sealed_part(part, b"another", key),
        good[1][:4] + b" " + good[1][5:],
        b"a record",
        b"",
    ]
    given = json.dumps([[public_text(key)], [frame.hex() for frame in (*good, *bad)]])
    command = [NVFLARE / "bin" / "python", "-c", _ASKED]
    environment = {"PYTHONPATH": str(MODULE.parent)}
    found = subprocess.run(command, input=given, capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.splitlines() == ["['body'] False"] * len(good) + ["blocked"] * len(bad)


_EXECUTED = """
import sys, threading
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from zetadp_flare import SiteExecutor

request, abort = Shareable(), Signal()
request["body"] = b"request"
threading.Thread(target=lambda: sys.stdin.readline() and abort.trigger(True), daemon=True).start()
print("asks", flush=True)
reply = SiteExecutor().execute("zetadp", request, FLContext(), abort)
print(reply.get_return_code(), reply.get("body"))
"""


@contextmanager
def executor(site: Path) -> Iterator[subprocess.Popen[str]]:
    """NVFLARE's process that asks a site, once it asks; a line of its input ends the job."""
    environment = {"PYTHONPATH": str(MODULE.parent), "ZETADP_SITE_SOCKET": str(site), "PYTHONUNBUFFERED": "1"}
    command = [str(NVFLARE / "bin" / "python"), "-c", _EXECUTED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "asks\n"
            yield process
        finally:
            process.kill()


_CONTROLLED = """
import sys, threading
import zetadp_flare
from nvflare.apis.signal import Signal

zetadp_flare.COORDINATOR_SECONDS = float(sys.argv[2])
controller, abort = zetadp_flare.SumController(sys.argv[1], ["a"]), Signal()
controller.system_panic = lambda reason, fl_ctx: print("panic:", reason)
controller._withdraw = lambda fl_ctx: None
controller._offer = lambda body, fl_ctx: print("offers", body, flush=True)
threading.Thread(target=lambda: sys.stdin.readline() and abort.trigger(True), daemon=True).start()
print("begins", flush=True)
controller.start_controller(None)
controller.control_flow(abort, None)
print("ended")
"""


@contextmanager
def controller(relay: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """NVFLARE's process that asks a coordinator, once it begins to; a line of its input ends the job."""
    environment = {"PYTHONPATH": str(MODULE.parent), "PYTHONUNBUFFERED": "1"}
    command = [str(NVFLARE / "bin" / "python"), "-c", _CONTROLLED, str(relay), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            yield process
        finally:
            process.kill()


def test_a_controller_waits_for_a_coordinator_that_is_starting(short: Path) -> None:
    with controller(short / "relay", 60.0) as process, listening(short / "relay", 1) as asked:
        connection, _ = asked.accept()
        with connection:
            frames.send(connection, b"request")
            assert process.stdout is not None
            assert process.stdout.readline() == "offers b'request'\n"
        assert process.communicate(timeout=120.0)[0] == "ended\n"


def test_a_controller_without_a_coordinator_says_where_it_looked(short: Path) -> None:
    with controller(short / "relay", 0.5) as process:
        told = process.communicate(timeout=120.0)[0]
    where = f"the coordinator's training process isn't at {short / 'relay'}, where its settings say relay"
    assert told == f"panic: {where}: it didn't start within 0.5 s\nended\n"


def test_a_controller_whose_job_ends_waits_no_longer_for_its_coordinator(short: Path) -> None:
    with controller(short / "relay", 600.0) as process:
        assert process.communicate("end\n", timeout=120.0)[0] == "ended\n"


def test_an_executor_waits_for_a_site_that_is_starting(short: Path) -> None:
    with executor(short / "site") as process, listening(short / "site", 1) as asked:
        connection, _ = asked.accept()
        with connection:
            assert frames.receive(connection, lambda _head: 100) == b"request"
            frames.send(connection, b"answer")
        assert process.communicate(timeout=120.0)[0] == "OK b'answer'\n"


def test_an_executor_whose_job_ends_waits_no_longer_for_its_site(short: Path) -> None:
    with listening(short / "site", 1) as asked, executor(short / "site") as process:
        connection, _ = asked.accept()
        with connection:
            assert process.communicate("end\n", timeout=120.0)[0].splitlines()[-1] == "EXECUTION_EXCEPTION None"
