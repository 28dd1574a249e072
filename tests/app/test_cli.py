from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.app.forked import run_command
from tests.selection import thinned

SENSITIVITY = {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}
RELEASE = {"kind": "release", "mechanism": {"kind": "gaussian", "std": 1.0, "sensitivity": SENSITIVITY}}
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there


@pytest.fixture(scope="module")
def event_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "event.json"
    path.write_text(json.dumps(RELEASE))
    return str(path)


def test_profile_prints_json(event_file):
    done = run_command("profile", event_file, "--epsilon", "1", "--delta", "1e-5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gdp_mu"] == 1.0


def test_profile_reads_standard_input():
    assert "mu = 1.0" in run_command("profile", "-", text=json.dumps(RELEASE)).stdout


def test_calibrate_prints_the_noise(event_file):
    done = run_command("calibrate", event_file, "--epsilon", "1", "--delta", "1e-5", "--json")
    assert json.loads(done.stdout)["std"] == pytest.approx(3.730631634816, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "text", "code", "line"),
    thinned(
        [
            (
                ("profile", "-"),
                '{"kind": "release", "mechanism": {"kind": "gaussian"}}',
                2,
                "mechanism.std: this field is required, got nothing",
            ),
            (("profile", "-"), "not json", 2, "-: file: must be JSON"),
            (("profile", "/no/such/file"), "", 2, "/no/such/file: No such file or directory"),
            (("profile", "-", "--delta", "2"), json.dumps(RELEASE), 2, "deltas[0]: must be < 1, got 2.0"),
            (("calibrate", "-", "--epsilon", "1"), json.dumps(RELEASE), 2, "must be epsilon and delta together"),
            (
                ("calibrate", "-", "--epsilon", "1", "--delta", "1e-5", "--address", NOBODY),
                json.dumps(RELEASE),
                3,
                f"no service answers at {NOBODY}",
            ),
            (("status", "abc", "--address", NOBODY), "", 3, f"no service answers at {NOBODY}"),
            (("watch", "abc", "--address", NOBODY), "", 3, f"no service answers at {NOBODY}"),
            (("verify", "/no/such/certificate"), "", 2, "/no/such/certificate: No such file or directory"),
            (("verify", "a.json", "b.json", "--proofs", "proof"), "", 2, "--proofs are of one certificate, got 2"),
            (("verify", "docs"), "", 2, "docs: expected a certificate.json or certificate.jws in this folder or below it, got none"),
            (("serve", "--host", "here"), "", 2, "host must be an IPv4 address like 127.0.0.1, got 'here'"),
        ],
        every=4,
    ),
)
def test_mistakes_end_with_a_clear_line_and_a_code(arguments, text, code, line):
    done = run_command(*arguments, text=text)
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == code


def test_help_names_the_commands_and_exit_codes():
    # Started as a user starts it, and not forked.
    text = subprocess.run([sys.executable, "-m", "app", "--help"], capture_output=True, text=True, check=True).stdout
    commands = "serve worker demo recipes submit status watch cancel certificate verify calibrate profile keys"
    for word in (*commands.split(), "Exit codes"):
        assert word in text


@pytest.mark.parametrize(("command", "threads"), [("verify", "1"), ("worker", None)])
def test_a_verification_has_one_thread_and_other_commands_leave_their_children_free(command: str, threads: str | None) -> None:
    code = "import os, sys; import zetadp.app.__main__; sys.stdout.write(str(os.environ.get('OPENBLAS_NUM_THREADS')))"
    free = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    found = subprocess.run([sys.executable, "-c", code, command], env=free, capture_output=True, text=True, check=True, timeout=100)
    assert found.stdout == str(threads)
