r"""Secure sums over Flower's own server, on this machine: sites from their command line, one of which is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.trainer.federation_by_hand import FLOWER, Federation, until
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.words.reading import Reading
from zetadp.trainer.request import RESULT
from zetadp.trainer.specs.report import RunReport

ROUNDS, KILLED_AT = 12, 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FLOWER / "bin" / "flower-superlink").exists(), reason="Flower isn't installed: make build/flower/.installed"),
]


def test_four_sites_add_up_while_one_is_killed(tmp_path: Path) -> None:
    secure = {"kind": "secure", "dropouts": 1, "colluding": 1}
    federation = Federation(tmp_path, 4, steps=ROUNDS, reproducible=True, seed=5, aggregation=secure)
    with federation.sites() as sites:
        running = federation.coordinator()
        until(lambda: federation.charged("a") >= KILLED_AT)
        sites["b"].send_signal(signal.SIGKILL)
        sites["b"].wait()
        sites["b"] = federation.site("b")
        assert running.wait(300.0) == 0, (tmp_path / "coordinator.log").read_text()
    report = RunReport.model_validate_json((tmp_path / "work" / RESULT).read_bytes())
    assert (report.event, report.steps_released) == (federation.proposal.plan.event, ROUNDS)
    for record in report.sites:
        charged = federation.charged(record.name)
        assert record.arrived <= charged <= ROUNDS
        assert charged == ROUNDS if record.name != "b" else charged >= KILLED_AT - 1
    envelope = Envelope.model_validate_json(federation.certificate(report))
    reading = Reading(Statement.model_validate_json(envelope.content).predicate)
    assert "and sends integers under masks that come off only in a sum" in reading.trust
    assert "as long as at least 2 of any 3 of the 4 nodes are honest" in reading.trust
