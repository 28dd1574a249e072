r"""A server of S3's protocol for the tests: moto's, in a process of its own.

moto needs an older ``python-dateutil`` than the versions that are tested here, so it has an environment of its own, which
``make build/moto/.installed`` makes. ``ZETADP_TEST_MOTO`` names the Python of another one.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
    "AWS_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": "",
}
SERVER = """
import logging, sys
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
import boto3
host, port = server.get_host_and_port()
keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "x", "region_name": "us-east-1"}
boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys).create_bucket(Bucket="tests")
print(port, flush=True)
sys.stdin.read()
"""


def python_with_moto() -> str | None:
    """The interpreter that has moto; None where there is none."""
    named, made = os.environ.get("ZETADP_TEST_MOTO"), Path(__file__).parents[2] / "build" / "moto" / "bin" / "python"
    return named or (str(made) if made.exists() else None)


@contextmanager
def s3_server() -> Generator[str]:
    """The endpoint of a server with one bucket, ``tests``. Where there is no moto the test is skipped."""
    python = python_with_moto()
    if python is None or find_spec("obstore") is None:
        pytest.skip("no moto (make build/moto/.installed), or no obstore (pip install 'zetadp[s3]')")
    with subprocess.Popen([python, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None  # it is a pipe
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            assert port, "moto's server has ended"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stdin.close()  # at which it ends, as it does with this process
            server.wait()


@contextmanager
def credentials(endpoint: str) -> Generator[None]:
    """The environment of a process that uses this server."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": endpoint}).items():
            patch.setenv(name, value)
        yield


def fresh_url() -> str:
    """A place in the bucket that nobody else uses."""
    return f"s3://tests/{uuid.uuid4().hex}"
