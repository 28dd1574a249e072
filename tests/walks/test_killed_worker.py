r"""The whole way with the real training child: a worker is killed in mid-job, and the next one finishes the job from its checkpoint."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest

from tests.app.jobs_harness import kill, serving, settings, spec, stream, working

pytest.importorskip("torch")


@pytest.mark.slow
def test_job_of_a_killed_worker_finishes_from_its_checkpoint_and_is_certified(tmp_path: Path) -> None:
    of = settings(tmp_path)
    steps = 200
    with serving(of) as client:
        request = {"spec": spec(steps=steps, expected_batch_size=256), "runtime": {"checkpoint_seconds": 0.2, "threads": 1}}
        job_id = client.post("/v1/jobs", json=request).json()["id"]
        with working(of, child="real") as first:
            checkpoint = next(event for event in stream(client, job_id) if event.kind == "checkpoint")
            kill(first)
        with working(of, child="real"):
            events = list(stream(client, job_id, checkpoint.number))
        job = client.get(f"/v1/jobs/{job_id}").json()
        envelope = client.get(job["links"]["certificate"]).json()
    assert events[-1].data["state"] == "succeeded", job["failure"]
    resumed = [event for event in events if event.kind == "started"]
    assert [event.attempt for event in resumed] == [2]
    assert 0 < resumed[0].data["resumed_from_step"] < steps
    certified = json.loads(b64decode(envelope["payload"]))["predicate"]
    assert (certified["plan"]["steps"], certified["run"]["steps_released"]) == (steps, steps)
    assert (certified["job"]["attempts"], certified["job"]["resumptions"]) == (2, 1)
