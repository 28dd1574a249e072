"""The service as a user meets it: started, sent a job, asked for a certificate, and that certificate checked and tampered with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from tests.app.forked import Command, run_command
from tests.app.jobs_harness import WAIT_SECONDS
from zetadp.app.kit.key_text import KeyText
from zetadp.trainer.recipes import DIGITS_DEMO

SHORT = {
    **DIGITS_DEMO.model_dump(mode="json", exclude_none=True),
    "steps": 5,
    "privacy": {"adjacency": "add_remove", "unit": "record", "delta": 1e-5, "noise_multiplier": 2.0},
}


def _run(*arguments, text="", code=0):
    done = run_command(*arguments, text=text)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A real service with a real worker on a free port; its address. The commands of these tests find its key in their environment."""
    key = KeyText.fresh().text
    environment = {
        **os.environ,
        "ZETADP_ADMIN_KEY": key,
        "ZETADP_DATA_DIR": str(tmp_path_factory.mktemp("service")),
        "ZETADP_LOG_LEVEL": "warning",
    }
    process = Command(tmp_path_factory.mktemp("streams"), "serve", "--port", "0", "--with-worker", env=environment)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ZETADP_KEY", key)
            yield process.first_line().removeprefix("zetadp is at ").strip()
        process.terminate()
        process.wait(WAIT_SECONDS)
    finally:
        process.kill()


@pytest.fixture(scope="module")
def job(service):
    text = json.dumps({"spec": SHORT, "labels": {"purpose": "walk"}})
    return json.loads(_run("submit", "-", "--watch", "--json", "--address", service, text=text).stdout)


@pytest.fixture(scope="module")
def folder(service, job, tmp_path_factory):
    path = tmp_path_factory.mktemp("result")
    _run("certificate", job["id"], "--folder", str(path), "--address", service)
    return path


def test_a_submitted_job_is_followed_to_its_end(job):
    assert (job["state"], job["progress"]["step"]) == ("succeeded", 5)
    assert job["certificate"] is not None


def test_a_finished_job_tells_every_metric_and_what_the_held_out_records_are(job):
    metrics = job["metrics"]
    assert metrics["held_out"] == "public"
    assert set(metrics["metrics"]) == {"accuracy", "roc_auc", "f1", "recall"}


# Eleven nodes; what a federated training is and what its certificate says is shown without them, too.
@pytest.mark.slow
def test_a_recipe_is_trained_federated_and_its_certificate_names_the_nodes(service, tmp_path):
    smaller = ("spec.data.patients=22", "spec.data.test_patients=2", "spec.data.slices=1", "spec.steps=2", "spec.expected_batch_size=2")
    changes = [part for change in (*smaller, "spec.records_per_user=4") for part in ("--set", change)]
    done = _run("submit", "--recipe", "mri_phantoms_federated", *changes, "--watch", "--json", "--address", service)
    job = json.loads(done.stdout)
    assert (job["state"], job["labels"]) == ("succeeded", {"recipe": "mri_phantoms_federated"})
    text = _run("certificate", job["id"], "--folder", str(tmp_path), "--address", service).stdout
    assert "Nodes: 11, each with units of its own." in text
    assert "Protected: each patient of the training data" in text
    assert json.loads(_run("verify", str(tmp_path / "certificate.json"), "--json").stdout)["verdict"] == "valid"


def test_status_tells_the_epsilon_spent(service, job):
    answer = json.loads(_run("status", job["id"], "--json", "--address", service).stdout)
    assert answer["progress"]["epsilon"] == job["progress"]["epsilon"] > 0


@pytest.mark.slow
def test_watching_a_finished_job_returns(service, job):
    assert job["state"] == "succeeded"
    _run("watch", job["id"], "--address", service)


def test_the_folder_holds_model_certificate_spec_and_keys(folder):
    assert {"model.safetensors", "certificate.json", "spec.json", "jwks.json"} <= {path.name for path in folder.iterdir()}


def test_the_certificate_verifies_offline(folder):
    # By the command itself, as any holder of the folder would start it.
    command = [sys.executable, "-m", "zetadp", "verify", str(folder / "certificate.json"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["verdict"] == "valid"


def test_verification_without_trusted_keys_says_whose_it_took(folder):
    assert "no --keys were given" in _run("verify", str(folder / "certificate.json")).stdout


def test_a_certificate_with_one_byte_changed_is_invalid(folder, tmp_path):
    content = bytearray((folder / "certificate.json").read_bytes())
    content[len(content) // 2] ^= 1
    forged = tmp_path / "certificate.json"
    forged.write_bytes(content)
    assert "NOT valid" in _run("verify", str(forged), "--keys", str(folder / "jwks.json"), code=1).stderr


def test_a_changed_model_is_invalid(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    model = bytearray((tmp_path / "model.safetensors").read_bytes())
    model[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(model)
    assert "FAIL file model.safetensors" in _run("verify", str(tmp_path / "certificate.json"), code=1).stdout


def _failed(service, spec):
    """What is said of a job whose data doesn't fit it."""
    done = run_command("submit", "-", "--watch", "--address", service, text=json.dumps({"spec": spec}))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.slow
def test_a_batch_larger_than_the_data_fails_by_name_when_a_worker_has_read_it(service):
    failed = _failed(service, {**SHORT, "expected_batch_size": 100_000})
    assert "expected_batch_size must be <= the 710 training records, got 100000" in failed.replace(":", "")


def test_a_target_that_no_noise_meets_fails_with_its_reason(service):
    privacy = {"adjacency": "add_remove", "unit": "record", "delta": 1e-30, "epsilon": 1e-30}
    assert "no noise in the searched range is proved to meet the target" in _failed(service, {**SHORT, "privacy": privacy})


def test_a_misspelled_field_is_refused_by_name_before_it_is_sent(service):
    done = _run("submit", "-", "--address", service, text=json.dumps({"spec": {**SHORT, "stepz": 5}}), code=2)
    assert "spec.stepz: there is no field with this name" in done.stderr


def test_an_unknown_job_has_its_own_exit_code(service):
    assert "there is no job" in _run("status", "0" * 32, "--address", service, code=4).stderr


def test_cancelling_a_finished_job_is_refused(service, job):
    assert "can't be cancelled" in _run("cancel", job["id"], "--address", service, code=1).stderr


@pytest.mark.slow
def test_watching_a_cancelled_job_has_its_own_exit_code(service):
    text = json.dumps({"spec": {**SHORT, "steps": 5000}})
    submitted = json.loads(_run("submit", "-", "--json", "--address", service, text=text).stdout)
    _run("cancel", submitted["id"], "--address", service)
    _run("watch", submitted["id"], "--address", service, code=5)


@pytest.mark.slow
def test_a_killed_service_takes_its_worker_with_it(tmp_path):
    environment = {**os.environ, "ZETADP_DATA_DIR": str(tmp_path), "ZETADP_LOG_LEVEL": "info"}
    command = [sys.executable, "-m", "zetadp", "serve", "--port", "0", "--with-worker"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
    _await(lambda: "worker_started" in (tmp_path / "log").read_text())
    process.kill()
    process.wait()
    _await(lambda: "worker_stopped" in (tmp_path / "log").read_text())


def _await(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"it didn't happen within {WAIT_SECONDS} s"
        time.sleep(0.1)
