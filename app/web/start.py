r"""The page for whoever is new here: from a first figure to a verified certificate. A test runs every line that it shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.web.rendering import page

router = APIRouter()

USUAL = "http://127.0.0.1:8000"
"""Where a service is that was started without settings."""


@final
@dataclass(frozen=True)
class Step:
    """One thing to do: what for, the lines to type, and what they give."""

    name: str
    title: str
    before: str
    lines: str
    after: str


STEPS = (
    Step(
        "serve",
        "Start the service",
        "With its one worker, from the folder that zetadp is in and with its Python. `make serve` does the same.",
        "python -m app serve --with-worker",
        "It prints its address and, the first time, an admin key: keep it, it is shown this once. Go on in a second terminal.",
    ),
    Step(
        "profile",
        "Ask what some noise guarantees",
        "Gaussian noise of standard deviation 2 on a sum that one record can move by 1. No key is needed.",
        """curl -s {address}/v1/profiles -H 'content-type: application/json' -d '{
  "event": {"kind": "release", "mechanism": {"kind": "gaussian", "std": 2.0,
            "sensitivity": {"l2": 1.0, "adjacency": "add_remove", "unit": "record"}}},
  "epsilons": [1.0], "deltas": [1e-5]}'""",
        "Each answer is an interval whose upper end is the guarantee. [The calculator](/calculators/gaussian?std=2) adds plots.",
    ),
    Step(
        "key",
        "Show your key",
        "Commands find it in the environment. On these pages it goes behind the button at the top.",
        "export ZETADP_KEY=zdp_...\nexport ZETADP_ADDRESS={address}",
        "",
    ),
    Step(
        "submit",
        "Train privately",
        "A small network on handwritten digits, for a few steps. The service works out the noise and what it will cost before it starts.",
        "python -m app submit --recipe digits --set spec.steps=20 --watch --json > job.json",
        "Meanwhile the page of [jobs](/jobs) shows it with the epsilon that it has spent. [The form there](/jobs/new) sends one too.",
    ),
    Step(
        "certificate",
        "Take its certificate",
        "With the model, the service's public keys, and the proof that the certificate is in the log.",
        """JOB=$(python -c 'import json; print(json.load(open("job.json"))["id"])')
python -m app certificate "$JOB" --folder result""",
        "It prints what was done and what that guarantees, in words.",
    ),
    Step(
        "verify",
        "Verify it offline",
        "Get the public keys once, over a channel that you trust; from then on nobody has to be asked.",
        """curl -s {address}/.well-known/jwks.json > keys-i-trust.json
python -m app verify result/certificate.json --keys keys-i-trust.json""",
        "Signature, digests of the files, every figure recomputed. [The page of certificates](/certificates) needs no command line.",
    ),
)


@router.get("/start", response_class=HTMLResponse)
def read_start(request: Request) -> HTMLResponse:
    """Getting started, with the address at which this service was asked."""
    asked = str(request.base_url).rstrip("/")
    address = asked if re.fullmatch(r"https?://[A-Za-z0-9.:-]+", asked) else USUAL
    steps = [(step, step.lines.replace("{address}", address)) for step in STEPS]
    return page("start.html", "Getting started", current="/start", modules=("core.js", "start.js"), steps=steps)
