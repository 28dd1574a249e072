r"""Every algorithm's own example, cut short, sent to a real service with a real worker: trained, certified, and verified offline."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.app.jobs_harness import serving, settings, stream, working
from tests.selection import chosen
from zetadp.app.certificates.facts.report import Status, VerificationReport
from zetadp.app.certificates.page.plain import describe
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.certificates.verification.verify import read, verify
from zetadp.trainer import ALGORITHMS

pytest.importorskip("torch")

NAMES = [known.algorithm_name() for known in ALGORITHMS]
OF_EACH_KIND = ["spof"]
"""A release at once; the walk over the command line trains step by step."""
UNPROTECTED = {"non_private", "spof_printed", "dp_sgd_laplace_printed", "obfuscation"}


STEPS = 5
PATIENCE_SECONDS = 240.0
"""Between two events of a job: a child that loads torch on a busy machine says nothing for a while."""


class Ended(NamedTuple):
    """What a job left, and what a reader finds of it offline."""

    job: dict[str, Any]
    folder: Path
    keys: PublicKeySet
    report: VerificationReport


def shorter(example: Any) -> Any:
    """The same, with few steps and each part of a comparison at one budget."""
    if isinstance(example, list):
        return [shorter(part) for part in example]
    if not isinstance(example, dict):
        return example
    kept = {name: shorter(value) for name, value in example.items() if name != "epsilons"}
    return kept | {name: min(kept[name], STEPS) for name in kept if name == "steps" or name.endswith("_steps")}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    of = settings(tmp_path_factory.mktemp("service"))
    with serving(of) as found, working(of, child="real"):
        found.timeout = PATIENCE_SECONDS
        yield found


@pytest.fixture(scope="module", params=chosen(NAMES, OF_EACH_KIND))
def ended(request: pytest.FixtureRequest, client: httpx2.Client, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The example of one algorithm, as the service shows it but shorter, run to its end, with everything that it left."""
    shown = {entry["name"]: entry["example"] for entry in client.get("/v1/algorithms").json()}
    submission = {"spec": shorter(shown[request.param]), "runtime": {"threads": 1}}
    job_id = client.post("/v1/jobs", json=submission).json()["id"]
    assert [event.data["state"] for event in stream(client, job_id) if event.kind == "state"][-1] == "succeeded"
    folder = tmp_path_factory.mktemp("left")
    for artifact in client.get(f"/v1/jobs/{job_id}/artifacts").json()["artifacts"]:
        (folder / artifact["name"]).write_bytes(client.get(f"/v1/jobs/{job_id}/artifacts/{artifact['name']}").content)
    keys = PublicKeySet.model_validate_json(client.get("/.well-known/jwks.json").content)
    report = verify((folder / "certificate.json").read_bytes(), keys, folder)
    return Ended(client.get(f"/v1/jobs/{job_id}").json(), folder, keys, report)


def test_its_certificate_verifies_with_every_file_that_it_left(ended: Ended) -> None:
    assert ended.report.verdict == "valid", ended.report.checks
    compared = {check.name for check in ended.report.checks if check.name.startswith("file ") and check.status is Status.PASSED}
    # The data manifest stays with the service: it opens the commitment to the training data.
    assert compared >= {f"file {path.name}" for path in ended.folder.iterdir()} - {"file certificate.json", "file data-manifest.json"}


def test_it_is_told_to_be_private_or_not(ended: Ended) -> None:
    text = describe(read((ended.folder / "certificate.json").read_bytes()))
    assert ("THERE IS NO PRIVACY GUARANTEE" in text) == (ended.job["algorithm"] in UNPROTECTED)
    assert (ended.job["progress"]["epsilon"] == "Infinity") == (ended.job["algorithm"] in UNPROTECTED)


def test_a_changed_model_is_caught(ended: Ended, tmp_path: Path) -> None:
    envelope = (ended.folder / "certificate.json").read_bytes()
    names = [subject["name"] for subject in json.loads(base64.b64decode(json.loads(envelope)["payload"]))["subject"]]
    model = next(name for name in names if name.endswith("model.safetensors"))
    (tmp_path / model).write_bytes(b"another model")
    assert verify(envelope, ended.keys, tmp_path).verdict == "invalid"
