r"""A federation over a provisioned NVFLARE: a server and two clients with certificates of their own, each as its startup kit starts it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.trainer.federation_by_hand import Federation, until, zetadp
from tests.trainer.nvflare_harness import NEEDS_NVFLARE, NVFLARE, environment_of, killed
from zetadp.app.cli.federation.rehearsal import free_port
from zetadp.trainer.request import RESULT
from zetadp.trainer.specs.report import RunReport

ROUNDS, LEAD = 4, "lead@example.org"
ROLES = ("project_admin", "org_admin", "lead", "member")

pytestmark = NEEDS_NVFLARE


class Provisioned:
    """The startup kits of a federation's server and clients, with zetadp's files in their ``local`` folders as the handbook has it."""

    def __init__(self, federation: Federation) -> None:
        self.federation, folder = federation, federation.folder
        self.environment = environment_of(federation) | {"HOME": str(folder)}
        parts = "workspace.WorkspaceBuilder", "static_file.StaticFileBuilder", "cert.CertBuilder", "signature.SignatureBuilder"
        arguments: list[dict[str, Any]] = [{"template_file": ["master_template.yml"]}, {"config_folder": "config"}, {}, {}]
        people = [
            {"name": "localhost", "type": "server", "org": "coordinator", "fed_learn_port": free_port()},
            *({"name": name, "type": "client", "org": name} for name in federation.names),
            {"name": LEAD, "type": "admin", "org": "coordinator", "role": "project_admin"},
        ]
        builders = [{"path": f"nvflare.lighter.impl.{part}", "args": args} for part, args in zip(parts, arguments, strict=True)]
        project = {"api_version": 3, "name": "hospitals", "description": "hospitals", "participants": people, "builders": builders}
        (folder / "project.yml").write_text(json.dumps(project))
        self._run("provision", "-p", "project.yml", "-w", "kits", "--force")
        self.kits = folder / "kits" / "hospitals" / "prod_00"
        for name in ("localhost", *federation.names):
            self._install(name)

    def _install(self, name: str) -> None:
        local, flare = self.kits / name / "local", self.federation.folder / "flare" / "local"
        shutil.copytree(flare / "custom", local / "custom")
        resources = json.loads((local / "resources.json.default").read_text())
        if name == "localhost":
            resources["class_allow_list"].append("zetadp_flare.")
        else:
            resources |= {"class_allow_list": ["zetadp_flare."], "allow_log_streaming": False}
            shutil.copyfile(flare / "privacy.json", local / "privacy.json")
            rights = {"submit_job": "any", "manage_job": "any", "view": "any", "operate": "any", "byoc": "none"}
            document = {"format_version": "1.0", "permissions": dict.fromkeys(ROLES, rights)}
            (local / "authorization.json").write_text(json.dumps(document))
        (local / "resources.json").write_text(json.dumps(resources))

    def log(self, name: str) -> str:
        """What a participant's processes have written so far."""
        return (self.federation.folder / f"{name}.nvflare").read_text()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The server and all clients."""
        found = list[subprocess.Popen[bytes]]()
        try:
            for name in ("localhost", *self.federation.names):
                with (self.federation.folder / f"{name}.nvflare").open("wb") as log:
                    command = ["bash", str(self.kits / name / "startup" / "sub_start.sh"), "--once"]
                    found.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True))
            until(lambda: all("Successfully registered client" in self.log(name) for name in self.federation.names))
            yield
        finally:
            for process in found:
                killed(process)

    def submit(self, job: Path) -> str:
        """By the lead; the job's number."""
        said = self._run("job", "submit", "-j", str(job), "--startup-kit", str(self.kits / LEAD))
        return said.split("job_id: ")[-1].split()[0]

    def abort(self, number: str) -> None:
        """By the lead."""
        self._run("job", "abort", number, "--force", "--startup-kit", str(self.kits / LEAD))

    def _run(self, *arguments: str) -> str:
        command = [str(NVFLARE / "bin" / "nvflare"), *arguments]
        found = subprocess.run(command, cwd=self.federation.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout


def other_job(folder: Path, executor: Mapping[str, Any], code: str | None) -> Path:
    """The federation's job with another executor, and nothing that filters results; with code of its own, if any."""
    job = folder / f"job-{executor['path']}"
    shutil.copytree(folder / "flare" / "job", job)
    client, server = job / "app" / "config" / "config_fed_client.json", job / "app" / "config" / "config_fed_server.json"
    document = json.loads(client.read_text())
    document["executors"][0]["executor"], document["task_result_filters"] = executor, []
    client.write_text(json.dumps(document))
    server.write_text(server.read_text().replace(str(folder / "relay"), str(folder / "nowhere")))
    if code is not None:
        (job / "app" / "custom").mkdir()
        (job / "app" / "custom" / "own.py").write_text(code)
    return job


def test_two_clients_with_certificates_end_a_run_and_refuse_other_parts_and_code(short: Path) -> None:
    folder, federation = short, Federation(short, 2, round_seconds=60, steps=ROUNDS, transport="nvflare")
    zetadp("nvflare", str(folder / "proposal.json"), "--relay", str(folder / "relay"), "--output", str(folder / "flare"))
    provisioned, ran = Provisioned(federation), folder / "ran"
    with federation.sites(), provisioned.running():
        trainer = "nvflare.app_common.np.np_trainer.NPTrainer"
        number = provisioned.submit(other_job(folder, {"path": trainer, "args": {}}, None))
        refused = f"Component '{trainer}' at config path 'executors.#1.executor' is not in allow_list"
        until(lambda: all(refused in provisioned.log(name) for name in federation.names))
        provisioned.abort(number)
        provisioned.submit(other_job(folder, {"path": "own.Own", "args": {}}, f"open({str(ran)!r}, 'w')"))
        until(lambda: all(f"{name}: NVFLARE_ERROR: BYOC not permitted" in provisioned.log("localhost") for name in federation.names))
        running = federation.coordinator()
        until((folder / "relay").exists)
        provisioned.submit(folder / "flare" / "job")
        assert running.wait(300.0) == 0, (folder / "coordinator.log").read_text()
    report = RunReport.model_validate_json((folder / "work" / RESULT).read_bytes())
    assert [(site.arrived, site.uncounted, site.charged) for site in report.sites] == [(ROUNDS, 0, ROUNDS)] * 2
    federation.certificate(report)
    assert not ran.exists()
