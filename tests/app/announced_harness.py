r"""Trainings whose plans are logged before they end, without a service's processes; and a time-stamping authority of the tests' own."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sqlalchemy.orm import Session

from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.issuing.issue import CertificateInput, issue_certificate
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.log.merkle_proofs import Proofs, encode
from zetadp.app.certificates.log.revocations import signed_revocations
from zetadp.app.certificates.log.service import proofs_of
from zetadp.app.certificates.log.storing import store_certificate
from zetadp.app.certificates.log.time_stamps import stamp_request
from zetadp.app.jobs.attempts import Attempt, Attempts, T
from zetadp.app.jobs.document import TrainingDocument
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import JobEventRow, JobRow
from zetadp.app.worker.announcing import announce
from zetadp.trainer import OwnModule


@final
class Authority:
    """A time-stamping authority (RFC 3161) with its own root, by the command ``openssl ts``; about 15 ms a stamp."""

    def __init__(self, folder: Path, name: str = "clock") -> None:
        folder.mkdir(parents=True)
        self._folder, began = folder, datetime.now(UTC) - timedelta(days=1)
        root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        root_name, own = _name(f"{name} root"), _name(name)

        def made(subject: x509.Name, of: ec.EllipticCurvePrivateKey, number: int, extension: x509.ExtensionType) -> x509.Certificate:
            builder = x509.CertificateBuilder(root_name, subject, of.public_key(), number, began, began + timedelta(days=3650))
            return builder.add_extension(extension, critical=True).sign(root_key, hashes.SHA256())

        root = made(root_name, root_key, 1, x509.BasicConstraints(ca=True, path_length=None))
        stamping = made(own, key, 2, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]))
        self.pem = (stamping.public_bytes(Encoding.PEM) + root.public_bytes(Encoding.PEM)).decode()
        (folder / "signer.pem").write_bytes(stamping.public_bytes(Encoding.PEM))
        (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        (folder / "settings").write_text(
            "[tsa]\ndefault_tsa=own\n[own]\nserial=serial\nsigner_cert=signer.pem\nsigner_key=key.pem\nsigner_digest=sha256\n"
            "default_policy=1.2.3.4.1\ndigests=sha256\ness_cert_id_alg=sha256\n"
        )

    def answer(self, question: bytes) -> bytes:
        """To a question in DER."""
        (self._folder / "question").write_bytes(question)
        command = ["openssl", "ts", "-reply", "-config", "settings", "-queryfile", "question", "-out", "answer"]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)
        return (self._folder / "answer").read_bytes()

    def stamp(self, text: str) -> str:
        """On this text, in base64."""
        return base64.b64encode(self.answer(stamp_request(text)[0])).decode()

    @contextmanager
    def serving(self) -> Generator[str]:
        """Over HTTP, under the address that this gives."""
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                answer = authority.answer(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                del format, args

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()


@final
class Unfenced:
    """Attempts that nobody fences, since no worker takes them away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def within(self, attempt: Attempt, write: Callable[[Session, JobRow], T]) -> T:
        with self._database.writing() as session:
            job = session.get(JobRow, attempt.job_id)
            assert job is not None
            return write(session, job)

    def reading(self, read: Callable[[Session], T]) -> T:
        with self._database.reading() as session:
            return read(session)

    def writing(self, write: Callable[[Session], None]) -> None:
        with self._database.writing() as session:
            write(session)


@final
class Announcing:
    """A service's database, log and keys, in which plans are logged, certificates stored and both proved."""

    def __init__(self, settings: Settings, run: CertificateInput) -> None:
        self.settings, self._run, self._jobs = settings, run, 0
        self.database = Database(settings)
        self.database.migrate()

    @property
    def attempts(self) -> Unfenced:
        """Its attempts."""
        return Unfenced(self.database)

    @property
    def newest(self) -> str:
        """The job that was made last."""
        return f"announced-{self._jobs}"

    def began(self, job_id: str | None = None, attempt: int = 1, run: CertificateInput | None = None) -> tuple[str, AnnouncedFacts]:
        """A job whose plan was logged; a new one, or another attempt."""
        given = run or self._run
        assert not isinstance(given.spec, OwnModule)
        document = TrainingDocument(spec=given.spec, runtime=given.runtime, plan=given.plan)
        if job_id is None:
            self._jobs += 1
            job_id = self.newest
            with self.database.writing() as session:
                session.add(JobRow(id=job_id, state="running", created=now(), document=document.model_dump(mode="json")))
        fields = {"timeout_seconds": None, "ran_seconds": 0.0, "memory_bytes": None, "charge": None}
        of = Attempt.model_validate({"job_id": job_id, "number": attempt, "holder": "h", "started": now(), "document": document} | fields)
        attempts: Attempts = Unfenced(self.database)  # pyright: ignore[reportAssignmentType]
        return job_id, announce(of, document, attempts, self.settings)

    def trained(self, job_id: str, attempt: int) -> None:
        """A process of this attempt began to train."""
        with self.database.writing() as session:
            fields = {"event": "started", "resumed_from_step": 0}
            session.add(JobEventRow(job_id=job_id, number=attempt, attempt=attempt, kind="started", time=now(), data=fields))

    def ended(self, job_id: str, announced: AnnouncedFacts, run: CertificateInput | None = None) -> tuple[bytes, str]:
        """Its certificate, stored, and that one's id."""
        finished = now() + timedelta(seconds=10)
        given = replace(run or self._run, job_id=job_id, announced=announced, finished=finished)
        envelope = issue_certificate(given, self.settings)
        with self.database.writing() as session:
            return envelope, store_certificate(session, self.settings, job_id, envelope, now())

    def proofs(self, certificate_id: str, size: int | None = None) -> Proofs:
        with self.database.reading() as session:
            return proofs_of(session, self.settings, certificate_id, size)

    def evidence(self, proofs: Proofs) -> Evidence:
        return Evidence(encode(proofs), signed_revocations(self.settings))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
