"""Uses what openapi-python-client generated: profile, calibrate, submit, follow, fetch and verify.

It runs where that client's libraries are, with the service's address, a key and the requests; what it got goes to standard output.
"""

from __future__ import annotations

import io
import json
import sys
from importlib import import_module
from typing import Any


def _api(name: str) -> Any:
    return import_module(f"zetadp_client.api.{name}")


def main(address: str, key: str, requests: dict[str, Any]) -> dict[str, Any]:
    """What the service answered."""
    client: Any = import_module("zetadp_client")
    models: Any = import_module("zetadp_client.models")
    types: Any = import_module("zetadp_client.types")
    with client.AuthenticatedClient(base_url=address, token=key, raise_on_unexpected_status=True, timeout=120.0) as service:
        profile = _api("calculators.create_profile").sync(client=service, body=models.ProfileRequest.from_dict(requests["profile"]))
        calibration = _api("calculators.create_calibration").sync(
            client=service, body=models.CalibrationRequest.from_dict(requests["calibration"])
        )
        short = _api("calculators.account_dp_sgd").sync(client=service, **requests["short"])
        job = _api("jobs.submit_job").sync(client=service, body=models.JobSubmission.from_dict(requests["job"]))
        followed = _api("jobs.stream_events").sync(client=service, job_id=job.id)
        ended = _api("jobs.read_job").sync(client=service, job_id=job.id)
        fetched = _api("certificates.get_certificate").sync_detailed(client=service, certificate_id=ended.certificate)
        report = _api("certificates.verify_certificate").sync(client=service, body=types.File(payload=io.BytesIO(fetched.content)))
    return {
        "profile": profile.to_dict(),
        "calibration": calibration.to_dict(),
        "short": short.to_dict(),
        "followed": followed,
        "job": ended.to_dict(),
        "payload_type": fetched.parsed.payload_type,
        "report": report.to_dict(),
    }


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2], json.load(sys.stdin)), sys.stdout)
