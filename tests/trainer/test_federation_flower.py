r"""A federation over Flower's own server, on this machine: sites from their command line; they and the coordinator are killed."""

from __future__ import annotations

import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.trainer.federation_by_hand import FLOWER, Federation, tls_files, until, zetadp
from tests.trainer.federation_harness import DATA
from zetadp.app.certificates.facts.statement import Statement
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.cli.federation.rehearsal import free_port
from zetadp.trainer import load_train
from zetadp.trainer.request import RESULT
from zetadp.trainer.sites import frames
from zetadp.trainer.sites.flower import bundles
from zetadp.trainer.sites.flower_line import FlowerLine
from zetadp.trainer.sites.flower_processes import start_node
from zetadp.trainer.sites.forms import form_of
from zetadp.trainer.sites.keys import make_key
from zetadp.trainer.sites.local_line import listening
from zetadp.trainer.sites.record import checked_statements
from zetadp.trainer.sites.settings import CoordinatorSettings, SiteSettings
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


def _status(port: int, path: str, body: bytes) -> int:
    try:
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", body), timeout=30.0)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def _line(folder: Path, port: int, settings: Mapping[str, object]) -> FlowerLine:
    make_key(folder / "key.pem")
    given = {"key": folder / "key.pem", "listen": f"127.0.0.1:{port}", "flower": FLOWER}
    return FlowerLine(CoordinatorSettings.model_validate(given | settings), folder / "flower", lambda: None)


def test_a_server_gives_and_takes_messages_of_nobody_that_shows_no_key(tmp_path: Path) -> None:
    port = free_port()
    with _line(tmp_path, port, {"insecure": True}):
        # In protobuf: a field of bytes, with the parts of an empty request for messages.
        parts = bundles.joined([b""])
        body = b"\x0a" + bytes([len(parts)]) + parts
        for path in (bundles.NODE_PULL, bundles.NODE_PUSH, bundles.RELAY_PULL, bundles.RELAY_PUSH):
            assert _status(port, path, body) == 401
            assert _status(port, path, b"\x0a\x09" + (2**40).to_bytes(8, "big") + b"!") == 400
            assert _status(port, path, b"no protobuf") == 400


def _received(asked: socket.socket) -> tuple[socket.socket, bytes | None]:
    connection, _ = asked.accept()
    return connection, frames.receive(connection, lambda _head: 100)


def test_a_node_with_a_key_that_ends_before_it_answers_gets_its_message_again(tmp_path: Path) -> None:
    key, port, site = ec.generate_private_key(ec.SECP256R1()), free_port(), tmp_path / "s"
    openssh, ssh = serialization.PrivateFormat.OpenSSH, serialization.PublicFormat.OpenSSH
    (tmp_path / "node").write_bytes(key.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption()))
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "a.pub").write_bytes(key.public_key().public_bytes(serialization.Encoding.OpenSSH, ssh))
    certificate, private, root = tls_files(tmp_path)
    budget = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add_remove", "unit": "record"}
    given = {"name": "a", "superlink": f"127.0.0.1:{port}", "state": tmp_path, "data": DATA, "budget": budget, "flower": FLOWER}
    settings = SiteSettings.model_validate(given | {"root_certificate": root, "node_key": tmp_path / "node"})
    tls = {"certificate": certificate, "certificate_key": private, "root_certificate": root}
    with _line(tmp_path, port, tls | {"node_keys": tmp_path / "nodes"}) as line, listening(site, 4) as asked:
        asked.settimeout(60.0)
        node = start_node(settings, site, subprocess.DEVNULL)
        line.send(b"request")
        connection, found = _received(asked)
        assert found == b"request"
        assert node.stdin is not None
        with connection:
            node.stdin.close()  # as whoever started it ends it
            node.wait(30.0)
        again = start_node(settings, site, subprocess.DEVNULL)
        try:
            connection, found = _received(asked)
            assert found == b"request"
            with connection:
                frames.send(connection, b"answer")
                assert line.receive(60.0) == b"answer"
        finally:
            assert again.stdin is not None
            again.stdin.close()
            again.wait(30.0)
