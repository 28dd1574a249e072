r"""Changes of single bytes of a certificate in both forms, of its proof of inclusion and of the list of revoked keys: every one is refused.

``python -m benchmarks.tampering``: 10 000 changes of each, seeded, and how long they took. Exits with 1 if one is accepted, or if what
nobody touched isn't.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.app.certificates_harness import finished_run
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.issuing.issue import issue_certificate
from zetadp.app.certificates.log import journal
from zetadp.app.certificates.log.entries import CERTIFICATE
from zetadp.app.certificates.log.evidence import REVOKED, Evidence, Signed, check_evidence
from zetadp.app.certificates.log.merkle_proofs import encode
from zetadp.app.certificates.log.revocations import signed_revocations
from zetadp.app.certificates.log.service import proofs_of
from zetadp.app.certificates.log.storing import store_certificate
from zetadp.app.certificates.signing.envelope import Envelope
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks
from zetadp.app.certificates.verification.opening import jws_of, open_certificate
from zetadp.app.certificates.verification.verify import read_statement, verify
from zetadp.app.kit.database import Database, now
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.jobs import JobRow

CHANGES = 10_000
SEED = 20260102
LOG_SIZE = 1000


def accepted(original: bytes, check: Callable[[bytes], str], changes: int, chosen: random.Random) -> int:
    """How many of so many changed texts are valid. The final newline isn't changed: without it a certificate is the same."""
    found = 0
    for _ in range(changes):
        place, other = chosen.randrange(len(original) - 1), chosen.randrange(1, 256)
        found += check(original[:place] + bytes([original[place] ^ other]) + original[place + 1 :]) == "valid"
    return found


def main(changes: int = CHANGES) -> int:
    """Print a line for each kind of file; the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = Settings(data_dir=folder)
        guaranteed = issue_certificate(finished_run(folder / "files"), settings)
        keys, proof = jwks(settings), _logged(settings, guaranteed)
        listed = signed_revocations(settings)
        cases: dict[str, tuple[bytes, Callable[[bytes], str]]] = {
            "DSSE envelope": (guaranteed, lambda text: _verdict(text, keys)),
            "JWS": (jws_of(Envelope.model_validate_json(guaranteed), settings), lambda text: _verdict(text, keys)),
            "proof of inclusion": (proof, lambda text: _standing(guaranteed, keys, Evidence(text, listed))),
            "list of revoked keys": (listed, lambda text: _standing(guaranteed, keys, Evidence(proof, text))),
        }
        failures = 0
        for title, (original, check) in cases.items():
            untouched = check(original)
            began = time.perf_counter()
            found = accepted(original, check, changes, random.Random(SEED))  # noqa: S311 (the same changes every time)
            seconds = time.perf_counter() - began
            sys.stdout.write(
                f"{title}: {len(original)} bytes, untouched {untouched}; {found} of {changes} changes accepted, "
                f"{seconds:.1f} s, {1000 * seconds / changes:.2f} ms each\n"
            )
            failures += found + (untouched != "valid")
    return 1 if failures else 0


def _verdict(text: bytes, keys: PublicKeySet) -> str:
    return verify(text, keys, None).verdict


def _standing(certificate: bytes, keys: PublicKeySet, evidence: Evidence) -> str:
    """Of log and revoked keys alone: the figures of a certificate that nobody touched needn't be recomputed each time."""
    opened = open_certificate(certificate)
    signed = Signed(opened.content, read_statement(certificate), opened.key_ids)
    statuses = {check.name: check.status for check in check_evidence(signed, keys, evidence)}
    return "valid" if statuses.get("log") is statuses.get(REVOKED) is Status.PASSED else "invalid"


def _logged(settings: Settings, envelope: bytes) -> bytes:
    """The proof of inclusion of a certificate in the middle of a log of ``LOG_SIZE``."""
    database = Database(settings)
    database.migrate()
    with database.writing() as session:
        session.add(JobRow(id="job-1", state="succeeded", created=now(), document={}))
        for number in range(LOG_SIZE - 1):
            if number == LOG_SIZE // 2:
                session.flush()
                certificate_id = store_certificate(session, settings, "job-1", envelope, now())
            journal.append(session, CERTIFICATE, f"other-{number}", json.dumps(number).encode(), now())
    with database.reading() as session:
        proof = encode(proofs_of(session, settings, certificate_id))
    database.close()
    return proof


if __name__ == "__main__":
    raise SystemExit(main())
