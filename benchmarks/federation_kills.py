r"""A federation over Flower on this machine, left alone or killed at random moments, and what ledgers, statements and certificate say.

    python -m benchmarks.federation_kills [--sites 11] [--rounds 500] [--seed 5] [--server-kills 10] [--node-kills 50] [--minutes 60]

With ``--seed`` the noise has a seed, and the model must be the simulation's to the bit where no answer was lost. Each kill is SIGKILL, of
the coordinator, or of a site's process or the process that connects it, whatever they are at; none is killed after ``--minutes``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.federation_rounds import descendants
from tests.trainer.federation_by_hand import Federation
from zetadp import accountants
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import verify
from zetadp.trainer import load_train
from zetadp.trainer.request import RESULT
from zetadp.trainer.sites.agreements import ledger_of
from zetadp.trainer.sites.messages import digest
from zetadp.trainer.sites.record import read_line
from zetadp.trainer.sites.settings import SiteSettings, read_settings
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.report import RunReport

Processes = dict[str, subprocess.Popen[bytes]]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _killed(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def _charged(federation: Federation) -> int:
    return sum(federation.charged(name) for name in federation.names)


def _progressed(federation: Federation, seconds: float) -> None:
    """Waits until some site has charged a round more, and then a random part of a second: mostly in the middle of a round."""
    before, deadline = _charged(federation), time.monotonic() + seconds
    while _charged(federation) == before and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(random.random())  # noqa: S311 (moments, not secrets)


def _kill(federation: Federation, sites: Processes, running: subprocess.Popen[bytes], what: str) -> subprocess.Popen[bytes]:
    if what == "server":
        _killed(running)
        return federation.coordinator()
    name = random.choice(federation.names)  # noqa: S311
    connecting = [pid for pid in descendants(sites[name].pid) if pid != sites[name].pid]
    if connecting and random.random() < 0.5:  # noqa: S311
        os.kill(connecting[-1], signal.SIGKILL)
    else:
        _killed(sites[name])
        sites[name] = federation.site(name)
    return running


def _check(federation: Federation, report: RunReport, artifacts: Path) -> None:
    stated = [read_line(line) for line in (artifacts / "statements.jsonl").read_bytes().splitlines()]
    steps, overspent, reused = federation.proposal.plan.steps, 0, 0
    for name in federation.names:
        ledger = ledger_of(read_settings(SiteSettings, federation.folder / f"{name}.yaml"))
        charged = ledger.charged(federation.proposal.digest)
        with closing(sqlite3.connect(federation.folder / name / "ledger.sqlite")) as connection:
            answered = dict(connection.execute("SELECT round, statement FROM rounds").fetchall())
        own = [one for one in stated if one.statement.site == name]
        # What anybody got of a round is what the ledger says was drawn for it: one answer, charged.
        reused += sum(answered.get(one.statement.round) != digest(one.found.header) for one in own)
        overspent += charged > steps or len(answered) != charged
        (record,) = (site for site in report.sites if site.name == name)
        lost = sum(statement is None for statement in answered.values())
        _say(f"  {name}: {charged} charged, {record.arrived} counted, {record.uncounted} late, {lost} drawn or begun and lost")
    payloads = [one.statement.payload for one in stated]
    reused += len(payloads) - len(set(payloads))
    _say(f"overspent at {overspent} sites; noise reused {reused} times in {len(stated)} statements")


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser()
    for name, default in (
        ("--sites", 11),
        ("--rounds", 500),
        ("--seed", None),
        ("--server-kills", 0),
        ("--node-kills", 0),
        ("--minutes", 60),
        ("--round-seconds", 60),
    ):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zetadp-") as place:
        privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "epsilon": 8.0}
        seeded = {} if options.seed is None else {"reproducible": True, "seed": options.seed}
        sampling = {"declared_units": 1400, "expected_batch_size": 60}
        changes = {"nodes": options.sites, "steps": options.rounds, "privacy": privacy, **sampling, **seeded}
        federation = Federation(Path(place), options.sites, checkpoint_seconds=5.0, round_seconds=options.round_seconds, **changes)
        due = ["server"] * options.server_kills + ["node"] * options.node_kills
        random.shuffle(due)
        began, kills = time.monotonic(), dict.fromkeys(("server", "node"), 0)
        with federation.sites() as sites:
            running = federation.coordinator()
            while running.poll() is None:
                if due and _charged(federation) and time.monotonic() - began < 60.0 * options.minutes:
                    _progressed(federation, 120.0)
                    if running.poll() is None:
                        kills[what := due.pop()] += 1
                        _say(f"{time.monotonic() - began:.0f} s, {_charged(federation)} charges: kills {kills}")
                        running = _kill(federation, sites, running, what)
                else:
                    time.sleep(0.2)
            seconds = time.monotonic() - began
        result = federation.folder / "work" / RESULT
        if running.returncode or not result.exists():
            _say((federation.folder / "coordinator.log").read_text()[-3000:])
            sys.exit(1)
        report, artifacts = RunReport.model_validate_json(result.read_bytes()), federation.folder / "work" / "artifacts"
        _say(f"{options.sites} sites, {options.rounds} rounds in {seconds:.0f} s, {kills['server']} server and {kills['node']} node kills")
        _check(federation, report, artifacts)
        plain = FederatedZetaDpSgd.model_validate(dict(federation.spec) | {"transport": "simulated", "federation": None})
        plan = plain.plan()
        simulated = load_train(plain)(
            plain, plan, federation.runtime, federation.folder / "plain", report=lambda _event: None, should_stop=lambda: False
        )
        for what, one in (("Flower", report), ("simulation", simulated)):
            accuracy = (one.metrics or {}).get("accuracy")
            _say(f"  {what}: epsilon {accountants.profile(one.event).epsilon(plan.delta).upper!r}, accuracy {accuracy}")
        models = [(folder / "model.safetensors").read_bytes() for folder in (artifacts, federation.folder / "plain" / "artifacts")]
        _say(f"  the models are {'equal to the bit' if models[0] == models[1] else 'different'}")
        certificate = federation.certificate(report)
        found = verify(certificate, jwks(federation.service), artifacts)
        told = [check.detail for check in found.checks if check.name == "sites" or check.status == "failed"]
        _say(f"the certificate is {found.verdict}; {json.dumps(told)}")


if __name__ == "__main__":
    main()
