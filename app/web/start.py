r"""The page for new users: from a first figure to a verified certificate. A test runs every line that it shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from zetadp.app.web.rendering import page

router = APIRouter()

USUAL = "http://127.0.0.1:8000"
"""The address of a service that was started without settings."""


@final
@dataclass(frozen=True)
class Step:
    """One step: its purpose, the lines to type, and what they give."""

    name: str
    title: str
    before: str
    lines: str
    after: str


STEPS = (
    Step(
        "serve",
        "Start the service",
        "With one worker, from zetadp's folder and with its Python. `make serve` does the same.",
        "zetadp serve --with-worker",
        "It prints its address and, the first time, an admin key. Keep the key: it is shown only once. Continue in a second terminal.",
    ),
    Step(
        "profile",
        "Ask what noise guarantees",
        "Gaussian noise of standard deviation 2 on a sum that one record can move by 1. No key is needed.",
        """curl -s {address}/v1/profiles -H 'content-type: application/json' -d '{
  "event": {"kind": "release", "mechanism": {"kind": "gaussian", "std": 2.0,
            "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}},
  "epsilons": [1.0], "deltas": [1e-5]}'""",
        "Each answer is an interval whose upper end is the guarantee. [The calculator](/calculators/gaussian?std=2) answers "
        "the same question in a form, with plots.",
    ),
    Step(
        "key",
        "Set your key",
        "Commands read it from the environment. On these pages, enter it with the button at the top.",
        "export ZETADP_KEY=zdp_...\nexport ZETADP_ADDRESS={address}",
        "",
    ),
    Step(
        "submit",
        "Train privately",
        "A small network on handwritten digits, for a few steps. The service works out the noise and the cost before it starts.",
        "zetadp submit --recipe digits --set spec.steps=20 --watch --json > job.json",
        "Meanwhile the [jobs page](/jobs) shows the epsilon spent so far. You can also send a job with [the form there](/jobs/new).",
    ),
    Step(
        "certificate",
        "Get its certificate",
        "With the model, the service's public keys, and the proof that the certificate is in the log.",
        """JOB=$(python -c 'import json; print(json.load(open("job.json"))["id"])')
zetadp certificate "$JOB" --folder result""",
        "It prints what was done and what that guarantees, in words.",
    ),
    Step(
        "verify",
        "Verify it offline",
        "Get the public keys once, over a channel that you trust; after that you need nobody else.",
        """curl -s {address}/.well-known/jwks.json > keys-i-trust.json
zetadp verify result/certificate.json --keys keys-i-trust.json""",
        "It checks the signature and all digests and recomputes every figure. "
        "[The certificates page](/certificates) does it without a shell.",
    ),
)


@router.get("/start", response_class=HTMLResponse)
def read_start(request: Request) -> HTMLResponse:
    """Getting started, with the address under which the client reached this service."""
    asked = str(request.base_url).rstrip("/")
    address = asked if re.fullmatch(r"https?://[A-Za-z0-9.:-]+", asked) else USUAL
    steps = [(step, step.lines.replace("{address}", address)) for step in STEPS]
    return page("start.html", "Getting started", current="/start", modules=("core.js", "start.js"), steps=steps)
