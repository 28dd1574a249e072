r"""Which routes calculate: their requests are answered by the calculating processes."""

from __future__ import annotations

import re

COMPARISONS = (
    "classic_gaussian",
    "complex_gaussian",
    "constant_selection",
    "dp_sgd_laplace",
    "environmental_noise",
    "functional_mechanism",
    "layers",
    "operation_counts",
    "spectral",
    "spectral_training",
    "spof",
    "taylor",
    "training",
    "zeta_dp_lipschitz",
    "zeta_dp_means",
    "zeta_dp_sgd_step",
)
BATCH = "/v1/profiles/batch"
PAPER = "/v1/papers/{paper}"

ROUTES = frozenset(
    {
        ("POST", "/v1/profiles"),
        ("POST", BATCH),
        ("POST", "/v1/calibrations"),
        ("POST", "/v1/calibrations/sweep"),
        ("POST", "/v1/conversions"),
        ("POST", "/v1/meanings"),
        ("POST", "/v1/noise-shapes"),
        ("GET", "/v1/conversions"),
        ("GET", "/v1/dp-sgd"),
        ("GET", "/v1/gaussian"),
        ("GET", "/v1/complex-gaussian"),
        ("GET", "/v1/laplace"),
        ("GET", "/v1/papers"),
        ("GET", PAPER),
        *(("POST", f"/v1/compare/{name}") for name in COMPARISONS),
    }
)
"""Method and path of each, as the OpenAPI document has them."""

_PAPER = re.compile(r"/v1/papers/[^/]+")


def calculating(method: str, path: str) -> str | None:
    """The path of the route that calculates for this request, as the document has it; None for every other.

    >>> calculating("POST", "/v1/profiles"), calculating("GET", "/v1/papers/spof"), calculating("GET", "/v1/jobs")
    ('/v1/profiles', '/v1/papers/{paper}', None)
    """
    template = PAPER if _PAPER.fullmatch(path) else path
    return template if (method, template) in ROUTES else None
