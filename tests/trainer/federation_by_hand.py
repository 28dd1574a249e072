"""A federation over Flower's server, or NVFLARE's, on this machine, by the handbook's commands: its folders, processes and certificate."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from tests.trainer.federation_harness import DATA, spec_of
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.cli.federation import register
from zetadp.app.cli.federation.rehearsal import free_port
from zetadp.app.kit.settings import Settings
from zetadp.process import child_command
from zetadp.trainer.request import REQUEST, TrainingRequest
from zetadp.trainer.sites.agreements import ledger_of
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteSettings, read_settings
from zetadp.trainer.specs.algorithms.federation import FEDERATION_VARIABLE
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.report import RunReport

FLOWER = Path(__file__).parents[2] / "build" / "flower"


def zetadp(*arguments: str) -> str:
    """What a command of ``zetadp federation`` prints."""
    app = typer.Typer()
    register(app)
    found = CliRunner().invoke(app, ["federation", *arguments])
    assert found.exit_code == 0, found.output
    return found.output


class Federation:
    r"""The sites' and a coordinator's folders.

    Args:
      sites: how many; they share the public digits.
      checkpoint_seconds: of the coordinator's runs.
      round_seconds: how long a round waits for sites that answered the one before.
      epsilon: of each site's budget.
      tls: the files of a server's certificate, its key and who signed it; None: nothing is encrypted.
      changes: to the spec.
    """

    def __init__(
        self,
        folder: Path,
        sites: int = 3,
        *,
        checkpoint_seconds: float = 3600.0,
        round_seconds: int = 5,
        epsilon: float = 100.0,
        tls: tuple[Path, Path, Path] | None = None,
        **changes: Any,
    ) -> None:
        self.folder, self.port = folder, free_port()
        self.runtime = RuntimeSpec(device="cpu", threads=1, checkpoint_seconds=checkpoint_seconds)
        self.names = [chr(ord("a") + number) for number in range(sites)]
        keys = [zetadp("key", str(folder / name / "site.pem")).strip() for name in self.names]
        coordinator = zetadp("key", str(folder / "coordinator.pem")).strip()
        self.spec = spec_of(coordinator, keys, **changes)
        (folder / "spec.json").write_text(self.spec.model_dump_json())
        zetadp("propose", str(folder / "spec.json"), "--output", str(folder / "proposal.json"))
        self.proposal = Proposal.model_validate_json((folder / "proposal.json").read_bytes())
        way, sites_way = f"listen: 127.0.0.1:{self.port}", f"superlink: 127.0.0.1:{self.port}"
        coordinator_trust = site_trust = f"insecure: true\nflower: {FLOWER}\n"
        if tls is not None:
            site_trust = f"root_certificate: {tls[2]}\nflower: {FLOWER}\n"
            coordinator_trust = f"certificate: {tls[0]}\ncertificate_key: {tls[1]}\n{site_trust}"
        if self.spec.transport == "nvflare":
            way, sites_way, coordinator_trust, site_trust = "relay: relay", "socket: {name}/socket", "", ""
        (folder / "coordinator.yaml").write_text(
            f"key: coordinator.pem\n{way}\n{coordinator_trust}round_seconds: {round_seconds}\nfirst_seconds: 300\n"
        )
        others = json.dumps(dict(zip(self.names, keys, strict=True)))
        for number, name in enumerate(self.names):
            share = {"number": number, "sites": sites, "seed": 0}
            budget = {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"}
            (folder / f"{name}.yaml").write_text(
                f"name: {name}\n{sites_way.format(name=name)}\nstate: {name}\n{site_trust}allows_seeds: true\n"
                f"data: {json.dumps(DATA)}\nshare: {json.dumps(share)}\nbudget: {json.dumps(budget)}\n"
                f"sites: {others}\n"
            )
            said = zetadp("agree", str(folder / "proposal.json"), "--settings", str(folder / f"{name}.yaml"), "--yes")
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
        request = TrainingRequest(spec=self.spec, runtime=self.runtime, plan=self.proposal.plan)
        (work / REQUEST).write_text(request.model_dump_json())
        environment = os.environ | {FEDERATION_VARIABLE: str(self.folder / "coordinator.yaml")}
        command = child_command("zetadp.trainer.child", str(work))
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
                process.wait(180.0)

    def certificate(self, report: RunReport) -> bytes:
        """Of a run that ended, with its files."""
        now, artifacts = datetime.now(UTC), self.folder / "work" / "artifacts"
        files = {path.name: path for path in artifacts.iterdir()}
        given = CertificateInput(
            "job", self.spec, self.runtime, self.proposal.plan, report, files, now, now, attempts=report.resumptions + 1
        )
        return issue_certificate(given, self.service)

    @property
    def service(self) -> Settings:
        """Whose key signs certificates."""
        return Settings(data_dir=self.folder / "service")


def tls_files(folder: Path) -> tuple[Path, Path, Path]:
    """A server's certificate for 127.0.0.1, its key, and the root that signed it."""
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("root", "server")]
    now = datetime.now(UTC)

    def made(subject: x509.Name, of: ec.EllipticCurvePrivateKey, number: int, extension: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(names[0], subject, of.public_key(), number, now, now + timedelta(days=1))
        return builder.add_extension(extension, critical=False).sign(root_key, hashes.SHA256()).public_bytes(Encoding.PEM)

    paths = folder / "server.pem", folder / "server.key", folder / "ca.pem"
    paths[0].write_bytes(made(names[1], key, 2, x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])))
    paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    paths[2].write_bytes(made(names[0], root_key, 1, x509.BasicConstraints(ca=True, path_length=None)))
    return paths


def until(holds: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
