r"""A federation over Flower's own server, on this machine: sites from their command line; they and the coordinator are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.trainer.federation_harness import DATA, spec_of
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings
from zetadp.trainer import load_train
from zetadp.trainer.request import REQUEST, RESULT, TrainingRequest
from zetadp.trainer.sites.agreements import ledger_of
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.record import checked_statements
from zetadp.trainer.sites.settings import SiteSettings, read_settings
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import FEDERATION_VARIABLE
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.report import RunReport

FLOWER = Path(__file__).parents[2] / "build" / "flower"
SITES, ROUNDS, KILLED_AT = 3, 12, 4
RUNTIME = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=3600.0)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FLOWER / "bin" / "flower-superlink").exists(), reason="Flower isn't installed: make build/flower/.installed"),
]


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _zetadp(*arguments: str) -> str:
    found = subprocess.run([sys.executable, "-m", "zetadp", "federation", *arguments], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


class Federation:
    """Three sites' and a coordinator's folders, made by the commands of the handbook."""

    def __init__(self, folder: Path) -> None:
        self.folder, port = folder, _port()
        self.names = "abc"[:SITES]
        keys = [_zetadp("key", str(folder / name / "site.pem")).strip() for name in self.names]
        coordinator = _zetadp("key", str(folder / "coordinator.pem")).strip()
        self.spec = spec_of(coordinator, keys, steps=ROUNDS, reproducible=True, seed=5)
        (folder / "spec.json").write_text(self.spec.model_dump_json())
        _zetadp("propose", str(folder / "spec.json"), "--output", str(folder / "proposal.json"))
        self.proposal = Proposal.model_validate_json((folder / "proposal.json").read_bytes())
        (folder / "coordinator.yaml").write_text(
            f"key: coordinator.pem\nlisten: 127.0.0.1:{port}\ninsecure: true\nflower: {FLOWER}\nround_seconds: 5\nfirst_seconds: 120\n"
        )
        for number, name in enumerate(self.names):
            share = {"number": number, "sites": SITES, "seed": 0}
            budget = {"epsilon": 100.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"}
            (folder / f"{name}.yaml").write_text(
                f"name: {name}\nsuperlink: 127.0.0.1:{port}\nstate: {name}\ninsecure: true\nflower: {FLOWER}\nallows_seeds: true\n"
                f"data: {json.dumps(DATA)}\nshare: {json.dumps(share)}\nbudget: {json.dumps(budget)}\n"
            )
            said = _zetadp("agree", str(folder / "proposal.json"), "--settings", str(folder / f"{name}.yaml"), "--yes")
            assert f"signed by {name}" in said

    def charged(self, name: str) -> int:
        """Rounds in a site's own ledger."""
        return ledger_of(read_settings(SiteSettings, self.folder / f"{name}.yaml")).charged(self.proposal.digest)

    def all_answered(self, name: str) -> bool:
        """Whether a site has answered all that it has charged."""
        with closing(sqlite3.connect(self.folder / name / "ledger.sqlite")) as connection:
            return not connection.execute("SELECT count(*) FROM rounds WHERE statement IS NULL").fetchone()[0]

    def site(self, name: str) -> subprocess.Popen[bytes]:
        """A site's one command."""
        command = [sys.executable, "-m", "zetadp", "federation", "site", "--settings", str(self.folder / f"{name}.yaml")]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stderr=log)

    def coordinator(self) -> subprocess.Popen[bytes]:
        """The process that trains, as a worker starts it."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        request = TrainingRequest(spec=self.spec, runtime=RUNTIME, plan=self.proposal.plan)
        (work / REQUEST).write_text(request.model_dump_json())
        environment = os.environ | {FEDERATION_VARIABLE: str(self.folder / "coordinator.yaml")}
        command = [sys.executable, "-m", "zetadp.trainer.child", str(work), "--parent", str(os.getpid())]
        with (self.folder / "coordinator.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    @contextmanager
    def sites(self) -> Generator[dict[str, subprocess.Popen[bytes]]]:
        """All sites' processes."""
        found = {name: self.site(name) for name in self.names}
        try:
            yield found
        finally:
            for process in found.values():
                process.terminate()
            for process in found.values():
                process.wait(30.0)


def _check_certificate(federation: Federation, report: RunReport, artifacts: Path) -> None:
    """The run is certified, and its certificate names every site's last statement."""
    now = datetime.now(UTC)
    files = {path.name: path for path in artifacts.iterdir()}
    given = CertificateInput("job", federation.spec, RUNTIME, federation.proposal.plan, report, files, now, now, attempts=2)
    envelope = Envelope.model_validate_json(issue_certificate(given, Settings(data_dir=federation.folder / "service")))
    reading = Reading(Statement.model_validate_json(envelope.content).predicate)
    line = next(line for line in reading.done() if line.startswith("Sites: "))
    assert all(f"by its last statement, {record.statement}, it had charged {ROUNDS}" in line for record in report.sites)
    assert "simulated" not in reading.trust


def _until(holds: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_three_sites_by_hand_survive_kills_and_equal_the_simulation(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    with federation.sites() as sites:
        running = federation.coordinator()
        _until(lambda: federation.charged("a") >= KILLED_AT)
        # The coordinator dies between two rounds or in one, whatever it is at; then a site does, once it has answered what it was asked.
        running.send_signal(signal.SIGKILL)
        running.wait()
        _until(lambda: all(federation.all_answered(name) for name in federation.names))
        sites["b"].send_signal(signal.SIGKILL)
        sites["b"].wait()
        sites["b"] = federation.site("b")
        running = federation.coordinator()
        assert running.wait(300.0) == 0, (tmp_path / "coordinator.log").read_text()
    report = RunReport.model_validate_json((tmp_path / "work" / RESULT).read_bytes())
    assert report.event == federation.proposal.plan.event
    artifacts = tmp_path / "work" / "artifacts"
    records, gaps = checked_statements(
        federation.proposal.federation.sites, federation.proposal.digest, ROUNDS, (artifacts / "statements.jsonl").read_bytes()
    )
    assert records == report.sites
    for record in records:
        # Nothing was drawn for twice, and every answer of every attempt counts.
        assert (record.arrived, record.uncounted, record.charged) == (ROUNDS, 0, ROUNDS)
        assert federation.charged(record.name) == ROUNDS
    assert gaps == ()
    said = _zetadp("statements", str(tmp_path / "proposal.json"), str(artifacts / "statements.jsonl"))
    charged = f"by the last {records[0].charged} of {ROUNDS} rounds charged, and maybe more since"
    assert f"a: {records[0].arrived} statements that counted, 0 late or wrong; {charged}" in said
    _check_certificate(federation, report, artifacts)
    plain = FederatedZetaDpSgd.model_validate(dict(federation.spec) | {"transport": "simulated", "federation": None})
    load_train(plain)(plain, plain.plan(), RUNTIME, tmp_path / "plain", report=lambda _event: None, should_stop=lambda: False)
    assert (artifacts / "model.safetensors").read_bytes() == (tmp_path / "plain" / "artifacts" / "model.safetensors").read_bytes()
