r"""Pretending about plans, times, histories and keys, signed as well as an operator or a thief can: every try has to be refused.

``python -m benchmarks.pretending [TRIES]``: each kind 1000 times, seeded, against a reader who trusts the service's keys, two of three
witnesses and one time-stamping authority. Exits with 1 if one is believed, or if what nobody touched isn't.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.app.announced_harness import Announcing, Authority
from tests.app.certificate_kinds import BASELINE
from tests.app.certificates_harness import lied, run_of
from tests.app.test_certificate_witnesses import split_views
from tests.app.witness_harness import serving
from zetadp.app.certificates.facts.announced import AnnouncedFacts
from zetadp.app.certificates.facts.report import Status
from zetadp.app.certificates.issuing.issue import issue_certificate
from zetadp.app.certificates.log.checkpoint import log_key, origin_of
from zetadp.app.certificates.log.evidence import Evidence, Signed, check_evidence
from zetadp.app.certificates.log.merkle_proofs import Proofs, encode
from zetadp.app.certificates.log.revocation_list import Reason
from zetadp.app.certificates.log.revocations import revoke, signed_revocations
from zetadp.app.certificates.log.trust import Trust
from zetadp.app.certificates.log.witness import Witness
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, rotate, signing_key
from zetadp.app.certificates.verification.opening import CertificateUnreadable, open_certificate
from zetadp.app.certificates.verification.verify import check_form, read_statement
from zetadp.app.kit.database import now
from zetadp.app.kit.settings import Settings
from zetadp.app.worker.witnessing import kept_and_witnessed

TRIES, SEED, PLANS = 1000, 20261126, 12
ASKED = ("log", "plan_logged", "time_stamps", "witnesses", "revocation")

Try = Callable[[random.Random], bool]
"""Whether one try is believed."""


class Reader:
    """Somebody who is shown a certificate with proofs, and believes it if everything that is asked for is proved."""

    def __init__(self, keys: PublicKeySet, trust: Trust, revocations: Callable[[], bytes]) -> None:
        self.keys, self._trust, self._revocations = keys, trust, revocations

    def believes(self, envelope: bytes, proofs: bytes) -> bool:
        return self.proved(envelope, proofs) is not None

    def proved(self, envelope: bytes, proofs: bytes) -> tuple[str, ...] | None:
        """What is proved of the entries and of the time, in words; None if the certificate isn't believed."""
        try:
            opened = open_certificate(envelope)
            if any(check.status is not Status.PASSED for check in check_form(opened, self.keys)):
                return None
            signed = Signed(opened.content, read_statement(envelope), opened.key_ids)
        except CertificateUnreadable:
            return None
        found = list(check_evidence(signed, self.keys, Evidence(proofs, self._revocations()), self._trust))
        outcomes = {check.name: check.status for check in found}
        if any(outcomes.get(name) is not Status.PASSED for name in ASKED):
            return None
        return tuple(check.detail for check in found if check.name in ASKED[:3])


class Scene:
    """A service with honest certificates, its clock and witnesses, and a reader."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        clock = Authority(folder / "clock")
        witnesses: list[Witness] = []
        for number in range(3):
            (folder / str(number)).mkdir()
            (folder / str(number) / "logs").write_text("")
            witnesses.append(Witness(folder / str(number), f"w{number}.example.org", folder / str(number) / "logs"))
        lines = [f"{stack.enter_context(serving(witness))} {witness.key.text}" for witness in witnesses]
        (folder / "witnesses").write_text("\n".join(lines))
        self.folder, self.run = folder, run_of(BASELINE, folder / "files")
        self.asked: dict[str, object] = {"time_stamps": stack.enter_context(clock.serving()), "witnesses": folder / "witnesses"}
        self.house = Announcing(Settings.model_validate({"data_dir": folder / "data", **self.asked}), self.run)
        known = jwks(self.house.settings)
        for number in range(3):
            (folder / str(number) / "logs").write_text(log_key(origin_of(known.keys[0]), known.keys[0]).text)
        self.made = [self._certified() for _ in range(PLANS)]
        self.listed = signed_revocations(self.house.settings)
        trust = Trust(authorities=(clock.pem,), witnesses=tuple(one.key for one in witnesses), least_witnesses=2)
        self.reader = Reader(known, trust, lambda: self.listed)
        self._owner = Ed25519PrivateKey.generate()

    def _certified(self) -> tuple[AnnouncedFacts, bytes, bytes]:
        job_id, announced = self.house.began()
        envelope, certificate_id = self.house.ended(job_id, announced)
        kept_and_witnessed(self.house.settings, self.house.database)
        return announced, envelope, encode(self.house.proofs(certificate_id))

    def tampered(self, chosen: random.Random) -> bool:
        """One byte of certificate or proofs is another one, and something else is proved.

        A changed name makes a witness a stranger, whose signature is worth nothing; two others may be left. Nothing else may come of it.
        """
        _, *texts = chosen.choice(self.made)
        before = self.reader.proved(*texts)
        which = chosen.randrange(2)
        place = chosen.randrange(len(texts[which]) - 1)
        texts[which] = texts[which][:place] + bytes([texts[which][place] ^ chosen.randrange(1, 256)]) + texts[which][place + 1 :]
        return self.reader.proved(*texts) not in (before, None)

    def replayed(self, chosen: random.Random) -> bool:
        """A run under a plan that was logged for another one, with that one's proofs."""
        (_, envelope, own), (announced, _, others) = chosen.sample(self.made, 2)
        forged = lied(envelope, self.house.settings, {"announced": announced.model_dump(mode="json", exclude_none=True)})
        first, second = Proofs.model_validate_json(own), Proofs.model_validate_json(others)
        given = Proofs(certificate=first.certificate, plan=second.plan, time_stamps=second.time_stamps)
        return self.reader.believes(chosen.choice([envelope, forged]), encode(given))

    def back_dated(self, chosen: random.Random) -> bool:
        """Signed by the service's own key today, about a run that ended before its plan was stamped, trained before, or had another."""
        announced, envelope, proofs = chosen.choice(self.made)
        earlier = (now() - timedelta(seconds=chosen.uniform(200, 10**7))).strftime("%Y-%m-%dT%H:%M:%SZ")
        lies: list[dict[str, object]] = [
            {"job.finished": earlier},
            {"environment.training_seconds": chosen.randrange(500, 10**7)},
            {"announced.index": chosen.choice([one for one in range(2 * PLANS) if one != announced.index])},
            {"announced.number": chosen.randrange(1, PLANS + 1), "job.id": "another"},
            {"announced.head_size": chosen.randrange(1, 3 * PLANS), "job.finished": earlier},
        ]
        return self.reader.believes(lied(envelope, self.house.settings, chosen.choice(lies)), proofs)

    def split(self, chosen: random.Random) -> bool:
        """Two histories, each shown to whichever witness suits: both have two of three."""
        return min(split_views(chosen, self._owner, Path(tempfile.mkdtemp(dir=self.folder)))) >= 2

    def stolen(self) -> Try:
        """A thief has the key, and the service has found out: what they sign from then on, with a log of their own, by an honest clock."""
        content, old = (self.folder / "data" / "keys" / "0001.pem").read_bytes(), signing_key(self.house.settings)
        rotate(self.house.settings)
        with self.house.database.writing() as session:
            revoke(session, self.house.settings, old.public.kid, Reason.SUPERSEDED)
        self.listed, self.reader.keys = signed_revocations(self.house.settings), jwks(self.house.settings)
        (self.folder / "thief" / "keys").mkdir(parents=True, mode=0o700)
        copy = self.folder / "thief" / "keys" / "0001.pem"
        copy.write_bytes(content)
        copy.chmod(0o600)
        thief = Announcing(Settings.model_validate({"data_dir": self.folder / "thief", **self.asked}), self.run)

        def attempt(chosen: random.Random) -> bool:
            announced, _, proofs = chosen.choice(self.made)
            if chosen.random() < 0.9:  # the service's own proofs under what the thief signs
                other = replace(self.run, job_id=f"stolen-{chosen.random()}", announced=announced, finished=now())
                return self.reader.believes(issue_certificate(other, thief.settings), proofs)
            envelope, certificate_id = thief.ended(*thief.began())
            kept_and_witnessed(thief.settings, thief.database)
            return self.reader.believes(envelope, encode(thief.proofs(certificate_id)))

        return attempt


def main(tries: int = TRIES) -> int:
    """Print a line for each kind of pretending; the exit code."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        scene = Scene(Path(name), stack)
        untouched = all(scene.reader.believes(envelope, proofs) for _, envelope, proofs in scene.made)
        sys.stdout.write(f"{PLANS} honest certificates: {'believed' if untouched else 'NOT BELIEVED'}\n")
        attempts: dict[str, Try] = {
            "changed bytes": scene.tampered,
            "plans of other runs": scene.replayed,
            "back-dating by the service's own key": scene.back_dated,
            "split views, three witnesses": scene.split,
        }
        failures = sum(_counted(name, attempt, tries) for name, attempt in attempts.items()) + (not untouched)
        failures += _counted("a superseded key in a thief's hands", scene.stolen(), tries)
    return 1 if failures else 0


def _counted(name: str, attempt: Try, tries: int) -> int:
    chosen, began = random.Random(SEED), time.process_time()  # noqa: S311 (the same tries every time)
    believed = sum(attempt(chosen) for _ in range(tries))
    milliseconds = 1000 * (time.process_time() - began) / tries
    sys.stdout.write(f"{name}: {believed} of {tries} believed, {milliseconds:.1f} ms each\n")
    sys.stdout.flush()
    return believed


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else TRIES))
