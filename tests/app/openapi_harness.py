r"""The service's own description, which is made once a process, and every operation that is in it, by its tag.

Tests have operations as parameters. They take them from the table below, because making the description takes over a second of
every process that collects the tests; ``test_openapi_fuzz_jobs.py`` shows that the table is complete.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zetadp.app.kit.settings import Settings
from zetadp.app.main import create_app

OPERATIONS = {
    "calculators": (
        "POST /v1/profiles",
        "POST /v1/profiles/batch",
        "POST /v1/calibrations",
        "POST /v1/calibrations/sweep",
        "GET /v1/dp-sgd",
        "GET /v1/gaussian",
        "GET /v1/complex-gaussian",
        "GET /v1/laplace",
        "POST /v1/meanings",
        "GET /v1/conversions",
        "POST /v1/conversions",
        "POST /v1/noise-shapes",
        "GET /v1/mechanisms",
        "GET /v1/events",
        "GET /v1/mechanisms/{kind}/proof",
        "GET /v1/accountants",
        "GET /v1/algorithms",
        "GET /v1/proofs",
        "GET /v1/proofs/{name}",
    ),
    "papers": (
        "GET /v1/papers",
        "GET /v1/papers/{paper}",
        "POST /v1/compare/complex_gaussian",
        "POST /v1/compare/zeta_dp_means",
        "POST /v1/compare/zeta_dp_lipschitz",
        "POST /v1/compare/zeta_dp_sgd_step",
        "POST /v1/compare/spectral",
        "POST /v1/compare/layers",
        "POST /v1/compare/spectral_training",
        "POST /v1/compare/classic_gaussian",
        "POST /v1/compare/spof",
        "POST /v1/compare/dp_sgd_laplace",
        "POST /v1/compare/functional_mechanism",
        "POST /v1/compare/environmental_noise",
        "POST /v1/compare/taylor",
        "POST /v1/compare/operation_counts",
        "POST /v1/compare/constant_selection",
        "POST /v1/compare/training",
        "GET /v1/errata",
        "GET /v1/errata/{row}",
    ),
    "recipes": (
        "GET /v1/recipes",
        "GET /v1/recipes/{name}",
    ),
    "jobs": (
        "POST /v1/jobs",
        "GET /v1/jobs",
        "GET /v1/jobs/{job_id}",
        "POST /v1/jobs/{job_id}/cancel",
        "POST /v1/jobs/{job_id}/pause",
        "POST /v1/jobs/{job_id}/resume",
        "POST /v1/jobs/{job_id}/retry",
        "PATCH /v1/jobs/{job_id}/labels",
        "GET /v1/jobs/{job_id}/artifacts",
        "GET /v1/jobs/{job_id}/artifacts/{name}",
        "GET /v1/jobs/{job_id}/events",
        "GET /v1/jobs/{job_id}/logs",
        "GET /v1/jobs/{job_id}/metrics/stream",
        "GET /v1/jobs/{job_id}/metrics",
        "GET /v1/hardware",
        "POST /v1/calculations",
    ),
    "ledgers": (
        "POST /v1/ledgers",
        "GET /v1/ledgers",
        "GET /v1/ledgers/{ledger_id}",
        "POST /v1/ledgers/{ledger_id}/close",
        "GET /v1/ledgers/{ledger_id}/users/{user}",
        "POST /v1/ledgers/{ledger_id}/reservations",
        "GET /v1/ledgers/{ledger_id}/reservations",
        "GET /v1/ledgers/{ledger_id}/reservations/{reservation_id}",
        "POST /v1/ledgers/{ledger_id}/reservations/{reservation_id}/commit",
        "POST /v1/ledgers/{ledger_id}/reservations/{reservation_id}/release",
        "GET /v1/ledgers/{ledger_id}/entries",
        "GET /v1/ledgers/{ledger_id}/verification",
        "POST /v1/ledgers/{ledger_id}/reservations/{reservation_id}/approve",
        "POST /v1/ledgers/{ledger_id}/projections",
    ),
    "data": (
        "POST /v1/uploads",
        "GET /v1/uploads",
        "GET /v1/uploads/{upload_id}",
        "DELETE /v1/uploads/{upload_id}",
        "POST /v1/data-sets",
        "GET /v1/data-sets",
        "GET /v1/data-sets/{data_set_id}",
        "DELETE /v1/data-sets/{data_set_id}",
        "GET /v1/data-sets/{data_set_id}/manifest",
    ),
    "certificates": (
        "GET /v1/certificates/schema",
        "GET /v1/certificates/{certificate_id}",
        "POST /v1/certificates/verify",
        "GET /v1/policy",
        "GET /v1/policy/schema",
        "GET /.well-known/jwks.json",
        "GET /v1/log",
        "GET /v1/log/checkpoint",
        "GET /v1/log/tile/entries/{place}",
        "GET /v1/log/tile/{level}/{place}",
        "GET /v1/log/consistency",
        "GET /v1/certificates/{certificate_id}/proofs",
        "GET /.well-known/zetadp-revocations.jws",
    ),
    "access": (
        "POST /v1/keys",
        "GET /v1/keys",
        "POST /v1/keys/{key_id}/rotate",
        "DELETE /v1/keys/{key_id}",
        "GET /v1/audit-log",
    ),
    "operations": ("GET /metrics",),
    "health": (
        "GET /livez",
        "GET /readyz",
    ),
}
"""Method and path of every operation."""


@cache
def document() -> dict[str, Any]:
    """What the service says of itself; of its settings only ``open_calculators`` changes it. Nobody changes what is returned."""
    with TemporaryDirectory() as folder:
        return create_app(Settings(data_dir=Path(folder))).openapi()


def described() -> dict[str, tuple[str, ...]]:
    """The operations in the document, by their tag."""
    found: dict[str, tuple[str, ...]] = {}
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            (tag,) = operation["tags"]
            found[tag] = (*found.get(tag, ()), f"{method.upper()} {path}")
    return found
