r"""Certificates with a confidential machine's report beside them, their verification, and the kernel that is asked for reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import final

from tests.app.announced_harness import Announcing
from zetadp.app.certificates.facts.confidential import REPORT_FILE
from zetadp.app.certificates.facts.report import VerificationReport
from zetadp.app.certificates.facts.tpm import qualifying_data
from zetadp.app.certificates.issuing.confidential import PROVIDERS
from zetadp.app.certificates.issuing.issue import CertificateInput
from zetadp.app.certificates.log.machine_evidence import facts_of
from zetadp.app.certificates.log.merkle_proofs import Proofs
from zetadp.app.certificates.log.service import head_of
from zetadp.app.certificates.policy.schema import Policy
from zetadp.app.certificates.signing.digests import code_manifest, sha256_of
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.verification.verify import verify
from zetadp.app.jobs.attempts import Attempts
from zetadp.app.kit.settings import Settings
from zetadp.app.worker import completion


@final
@dataclass(frozen=True)
class Certified:
    """A certificate, its proofs, and the report that it names."""

    envelope: bytes
    proofs: Proofs
    content: bytes


@final
@dataclass(frozen=True)
class Certifying:
    """Makes certificates of one run in one house, each with a report by a machine of this provider's."""

    house: Announcing
    run: CertificateInput
    folder: Path
    provider: str

    def __call__(self, report: Callable[[bytes], bytes], head: str | None = None) -> Certified:
        """With what the machine reports on the code and the head of the plan, or another head."""
        job_id, announced = self.house.began()
        with self.house.database.reading() as session:
            own = sha256_of(head_of(session, self.house.settings, announced.head_size).text.encode())
        content = report(qualifying_data(sha256_of(code_manifest()), head or own))
        (path := self.folder / REPORT_FILE).write_bytes(content)
        facts = facts_of(PROVIDERS[self.provider](content))
        given = replace(self.run, confidential=facts, artifacts={**self.run.artifacts, REPORT_FILE: path})
        envelope, certificate_id = self.house.ended(job_id, announced, given)
        return Certified(envelope, self.house.proofs(certificate_id), content)


def policy_of(machines: dict[str, object]) -> Policy:
    limits = {"largest_epsilon": "100", "largest_delta": "0.1"}
    return Policy.model_validate({"name": "test", "unit": ("record",), "adjacency": ("add_remove",), "machines": machines} | limits)


def verified(house: Announcing, given: Certified, policy: Policy | None = None, envelope: bytes | None = None) -> VerificationReport:
    evidence = replace(house.evidence(given.proofs), machine_report=given.content)
    return verify(envelope or given.envelope, jwks(house.settings), None, evidence, policy)


def is_met(report: VerificationReport) -> bool:
    assert report.policy is not None
    return next(rule.is_met for rule in report.policy.rules if rule.name == "machines")


def asked(house: Announcing, folder: Path | None) -> completion.Machine:
    """What a worker gets that asks for a report in this folder."""
    _, announced = house.began()
    attempts: Attempts = house.attempts  # pyright: ignore[reportAssignmentType]
    return completion.machine_said(attempts, Settings(data_dir=house.settings.data_dir, confidential=folder), announced)


@final
class Kernel:
    """Plays the kernel's folder for reports: a place for each question, whose answer follows from what is written there."""

    def __init__(self, provider: str, answer: Callable[[bytes], bytes]) -> None:
        self.provider, self.generation, self.answer = provider, "1", answer

    @contextmanager
    def asking(self, folder: Path) -> Generator[Path]:
        place = folder / "place"
        place.mkdir()
        for name in ("inblob", "outblob"):
            os.mkfifo(place / name)
        for name, text in (("provider", self.provider), ("generation", self.generation)):
            (place / name).write_text(f"{text}\n")

        def answer() -> None:
            (place / "outblob").write_bytes(self.answer((place / "inblob").read_bytes()))

        Thread(target=answer, daemon=True).start()
        yield place
