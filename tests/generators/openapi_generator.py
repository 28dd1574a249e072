"""Uses what openapi-generator generated for Python: profile, calibrate, submit, follow, fetch and verify.

It runs where that client's libraries are, with the service's address, a key and the requests; what it got goes to standard output.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def main(address: str, key: str, requests: dict[str, Any]) -> dict[str, Any]:
    """What the service answered."""
    client: Any = import_module("openapi_client")
    with client.ApiClient(client.Configuration(host=address, access_token=key)) as service:
        calculators, jobs, certificates = client.CalculatorsApi(service), client.JobsApi(service), client.CertificatesApi(service)
        profile = calculators.create_profile(client.ProfileRequest.from_dict(requests["profile"]))
        calibration = calculators.create_calibration(client.CalibrationRequest.from_dict(requests["calibration"]))
        short = calculators.account_dp_sgd(**requests["short"])
        job = jobs.submit_job(client.JobSubmission.from_dict(requests["job"]))
        followed = jobs.stream_events(job.id)
        ended = jobs.read_job(job.id)
        fetched = certificates.get_certificate_with_http_info(ended.certificate)
        report = certificates.verify_certificate(fetched.raw_data)
    return {
        "profile": profile.to_dict(),
        "calibration": calibration.to_dict(),
        "short": short.to_dict(),
        "followed": followed,
        "job": json.loads(ended.to_json()),
        "payload_type": json.loads(fetched.raw_data)["payloadType"],
        "report": report.to_dict(),
    }


if __name__ == "__main__":
    json.dump(main(sys.argv[1], sys.argv[2], json.load(sys.stdin)), sys.stdout)
