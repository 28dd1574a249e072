r"""What runs in a calculating process: the routes that calculate, as an application of their own."""

from __future__ import annotations

import socket

import scipy.optimize  # noqa: F401 - loaded with all else before the first question: Renyi accounting needs it
from fastapi import FastAPI

from zetadp.app.calculators.calibrations import CalibrationRequest
from zetadp.app.calculators.limits import Calculators
from zetadp.app.calculators.router import comparisons as comparisons_router
from zetadp.app.calculators.router import create_calibration, create_profile
from zetadp.app.calculators.router import router as calculators_router
from zetadp.app.calculators.schemas import ProfileRequest
from zetadp.app.certificates.verification.apart import router as examinations_router
from zetadp.app.computing.process import answer_all
from zetadp.app.kit import problems
from zetadp.app.kit.settings import Settings
from zetadp.app.papers.router import router as papers_router


def application(settings: Settings) -> FastAPI:
    """Answers what the service hands on; who may ask was decided there."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.calculators = Calculators(settings)
    problems.install(app)
    for router in (calculators_router, papers_router, comparisons_router):
        app.include_router(router, prefix="/v1")
    app.include_router(examinations_router)
    return app


def run(line: socket.socket, settings: Settings, niceness: int) -> None:
    """As ``answer_all``, with these routes."""
    app = application(settings)
    calculators: Calculators = app.state.calculators

    def profile(body: bytes) -> tuple[str, bytes]:
        return create_profile.__name__, calculators.profile(ProfileRequest.model_validate_json(body)).model_dump_json().encode()

    def calibration(body: bytes) -> tuple[str, bytes]:
        return create_calibration.__name__, calculators.calibration(CalibrationRequest.model_validate_json(body)).model_dump_json().encode()

    shortcuts = {("POST", "/v1/profiles"): profile, ("POST", "/v1/calibrations"): calibration}
    answer_all(line, settings, niceness, app, shortcuts)
