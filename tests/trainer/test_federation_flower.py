r"""A federation over Flower's own server, on this machine: sites from their command line; they and the coordinator are killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.trainer.federation_by_hand import FLOWER, Federation, until, zetadp
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.words.reading import Reading
from zetadp.trainer import load_train
from zetadp.trainer.request import RESULT
from zetadp.trainer.sites.forms import form_of
from zetadp.trainer.sites.record import checked_statements
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.report import RunReport

ROUNDS, KILLED_AT = 12, 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FLOWER / "bin" / "flower-superlink").exists(), reason="Flower isn't installed: make build/flower/.installed"),
]


def _check_certificate(federation: Federation, report: RunReport) -> None:
    """The run is certified, and its certificate names every site's last statement."""
    envelope = Envelope.model_validate_json(federation.certificate(report))
    reading = Reading(Statement.model_validate_json(envelope.content).predicate)
    line = next(line for line in reading.done() if line.startswith("Sites: "))
    assert all(f"by its last statement, {record.statement}, it had charged {ROUNDS}" in line for record in report.sites)
    assert "simulated" not in reading.trust


def test_three_sites_by_hand_survive_kills_and_equal_the_simulation(tmp_path: Path) -> None:
    federation = Federation(tmp_path, steps=ROUNDS, reproducible=True, seed=5)
    with federation.sites() as sites:
        running = federation.coordinator()
        until(lambda: federation.charged("a") >= KILLED_AT)
        # The coordinator dies between two rounds or in one, whatever it is at; then a site does, once it has answered what it was asked.
        running.send_signal(signal.SIGKILL)
        running.wait()
        until(lambda: all(federation.all_answered(name) for name in federation.names))
        sites["b"].send_signal(signal.SIGKILL)
        sites["b"].wait()
        sites["b"] = federation.site("b")
        running = federation.coordinator()
        assert running.wait(300.0) == 0, (tmp_path / "coordinator.log").read_text()
    report = RunReport.model_validate_json((tmp_path / "work" / RESULT).read_bytes())
    assert report.event == federation.proposal.plan.event
    artifacts = tmp_path / "work" / "artifacts"
    records, gaps = checked_statements(
        federation.proposal.federation.sites,
        federation.proposal.digest,
        ROUNDS,
        form_of(federation.proposal.plan, report.parameters),
        (artifacts / "statements.jsonl").read_bytes(),
    )
    assert records == report.sites
    for record in records:
        # Nothing was drawn for twice, and every answer of every attempt counts.
        assert (record.arrived, record.uncounted, record.charged) == (ROUNDS, 0, ROUNDS)
        assert federation.charged(record.name) == ROUNDS
    assert gaps == ()
    said = zetadp("statements", str(tmp_path / "proposal.json"), str(artifacts / "statements.jsonl"))
    charged = f"by the last {records[0].charged} of {ROUNDS} rounds charged, and maybe more since"
    assert f"a: {records[0].arrived} statements that counted, 0 that didn't; {charged}" in said
    _check_certificate(federation, report)
    plain = FederatedZetaDpSgd.model_validate(dict(federation.spec) | {"transport": "simulated", "federation": None})
    load_train(plain)(plain, plain.plan(), federation.runtime, tmp_path / "plain", report=lambda _event: None, should_stop=lambda: False)
    assert (artifacts / "model.safetensors").read_bytes() == (tmp_path / "plain" / "artifacts" / "model.safetensors").read_bytes()
