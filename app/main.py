r"""The ASGI application: calculators, jobs, certificates and the documentation page. It never imports torch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from typing import Literal, final

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

from zetadp.accountants.calibration import Parameter
from zetadp.accountants.events import Event
from zetadp.accountants.notions.values import Notion, Target
from zetadp.app.access.caller import requires
from zetadp.app.access.gate import Gate
from zetadp.app.access.lifecycle import attached as access_attached
from zetadp.app.access.rates import Rates
from zetadp.app.access.record import RequestRecord
from zetadp.app.access.router import router as access_router
from zetadp.app.access.scopes import Scope
from zetadp.app.calculators.limits import Calculators
from zetadp.app.calculators.router import comparisons as comparisons_router
from zetadp.app.calculators.router import router as calculators_router
from zetadp.app.calculators.short_forms import ShortAnswer
from zetadp.app.certificates.log.router import router as certificate_log_router
from zetadp.app.certificates.router import router as certificates_router
from zetadp.app.computing.apart import Apart
from zetadp.app.computing.lifecycle import attached as computing_attached
from zetadp.app.jobs.executors import router as hardware_router
from zetadp.app.kit import openapi, tracing
from zetadp.app.kit import problems as errors
from zetadp.app.kit.compression import CATALOGUES, Compressed
from zetadp.app.kit.disconnects import Disconnects
from zetadp.app.kit.guard import BodyGuard, HostGuard
from zetadp.app.kit.settings import Settings
from zetadp.app.ledgers.ledger_definition import Spent
from zetadp.app.ledgers.router import router as ledgers_router
from zetadp.app.operations.lifecycle import attached as operations_attached
from zetadp.app.operations.measured import Measured
from zetadp.app.operations.metrics import Metrics
from zetadp.app.operations.router import router as operations_router
from zetadp.app.papers.router import router as papers_router
from zetadp.app.recipes.router import router as recipes_router
from zetadp.app.submissions.approvals import router as approvals_router
from zetadp.app.submissions.lifecycle import attached
from zetadp.app.submissions.projections import router as projections_router
from zetadp.app.submissions.router import calculations as calculations_router
from zetadp.app.submissions.router import router as jobs_router
from zetadp.app.submissions.streams import router as streams_router
from zetadp.app.uploads.data_set_definition import Source
from zetadp.app.uploads.lifecycle import attached as uploads_attached
from zetadp.app.uploads.router import data_sets as data_sets_router
from zetadp.app.uploads.router import router as uploads_router
from zetadp.app.web.handbook import PATH as HANDBOOK
from zetadp.app.web.handbook import Handbook
from zetadp.app.web.kept import Kept
from zetadp.app.web.router import STANDING
from zetadp.app.web.router import router as web_router
from zetadp.app.web.unknown import Unknown
from zetadp.mechanisms.base import Value
from zetadp.mechanisms.conventions import NoiseStatement
from zetadp.mechanisms.declared.runs import AnyRuns
from zetadp.trainer import AnyTrainingSpec
from zetadp.trainer.data import DataSpec
from zetadp.trainer.specs.descent import GradientOptimizer, Optimizer, Schedule
from zetadp.trainer.specs.findings.runs import AnyAudit
from zetadp.trainer.specs.models.layer_spec import LayerSpec, PlainLayer
from zetadp.trainer.specs.models.named_networks import ModelSpec, Written
from zetadp.trainer.specs.obfuscation.architectures import ProcessingLayer
from zetadp.trainer.specs.samplers import AnySampler
from zetadp.trainer.specs.strategy import AnyNoise
from zetadp.version import VERSION

DESCRIPTION = """
Privacy accounting, noise calibration and private training, with certificates that anyone can check.

* **Calculators** answer "what guarantee does this noise give?" and "how much noise does this guarantee need?" with upper bounds, and
  each answer carries its derivation if you ask for it.
* **Papers**: each printed formula and what is proven, with the ratio, a derivation and a counterexample. Findings are never guarantees.
* **Recipes** are the papers' experiments, ready to run, with the printed figures next to the proven ones.
* **Jobs** train privately on a worker and return a signed certificate.
* **Data**: upload your own files, make data sets from them and train on them; another tenant never sees them.
* **Ledgers** keep privacy budgets: reserve before the noise is drawn, commit what was released; a budget is never overspent.
* Noise is always given **per real component**: `std` is that of a complex coordinate's real and imaginary part, not of the whole.
"""

OPENAPI, CERTIFICATE_SCHEMA = "/openapi.json", "/v1/certificates/schema"
UNIONS: dict[str, object] = {
    "AuditSpec": AnyAudit,
    "CalibrationParameter": Parameter,
    "CorrelationSpec": AnyNoise,
    "DataSetSource": Source,
    "DataSpec": DataSpec,
    "Event": Event,
    "GradientOptimizerSpec": GradientOptimizer,
    "LayerSpec": LayerSpec,
    "ModelSpec": ModelSpec,
    "NoiseStatement": NoiseStatement,
    "Notion": Notion,
    "NotionTarget": Target,
    "OptimizerSpec": Optimizer,
    "PlainLayerSpec": PlainLayer,
    "ProcessingLayer": ProcessingLayer,
    "RunsSpec": AnyRuns,
    "SamplerSpec": AnySampler,
    "Schedule": Schedule,
    "ShortAnswer": ShortAnswer,
    "Spent": Spent,
    "TrainingSpec": AnyTrainingSpec,
    "WrittenModelSpec": Written,
}
"""The unions that the OpenAPI document describes once, by these names."""


@final
class Health(Value):
    """The process answers."""

    status: Literal["ok"] = "ok"
    version: str


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application for these settings, or for those of the environment."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with attached(app, chosen), access_attached(app, chosen), uploads_attached(app, chosen), operations_attached(app, chosen):
            async with computing_attached(app, chosen):
                yield

    tracing.configure("zetadp-service")
    app = FastAPI(
        title="zetadp",
        version=VERSION,
        description=DESCRIPTION,
        license_info=openapi.LICENCE,
        servers=openapi.SERVERS,
        openapi_tags=openapi.TAGS,
        generate_unique_id_function=openapi.operation_id,
        lifespan=lifespan,
        openapi_url=None,  # a route of ours has it
        docs_url=None,
        redoc_url=None,
        telemetry=tracing.of_requests(),
    )
    app.state.calculators = Calculators(chosen)
    app.state.metrics = Metrics()
    rates = Rates(chosen)
    calculating = [] if chosen.open_calculators else [Depends(requires(Scope.CALCULATE))]
    errors.install(app)
    app.add_api_route(OPENAPI, document, methods=["GET"], include_in_schema=False)
    app.add_api_route("/livez", live, methods=["GET"], tags=["health"], summary="Is the process alive?")
    for router in (calculators_router, papers_router, comparisons_router, recipes_router):
        app.include_router(router, prefix="/v1", dependencies=calculating)
    app.include_router(jobs_router, prefix="/v1")
    app.include_router(streams_router, prefix="/v1")
    app.include_router(hardware_router, prefix="/v1")
    app.include_router(calculations_router, prefix="/v1")
    app.include_router(ledgers_router, prefix="/v1")
    app.include_router(approvals_router, prefix="/v1")
    app.include_router(projections_router, prefix="/v1")
    app.include_router(uploads_router, prefix="/v1")
    app.include_router(data_sets_router, prefix="/v1")
    app.include_router(certificates_router)
    app.include_router(certificate_log_router)
    app.include_router(access_router, prefix="/v1")
    app.include_router(operations_router)
    app.include_router(web_router)
    app.router.default = Unknown(app.router.default)
    with as_file(files("zetadp.app").joinpath("web", "static")) as static:
        app.mount("/static", StaticFiles(directory=static), name="static")
    app.mount(HANDBOOK, Handbook(chosen.handbook_dir), name="handbook")
    openapi.describe(app, UNIONS)
    # From the inside out: what comes last sees a request first.
    app.add_middleware(Apart, chosen)
    app.add_middleware(Disconnects)
    app.add_middleware(Compressed)
    app.add_middleware(Kept, (*STANDING, OPENAPI, CERTIFICATE_SCHEMA, *(CATALOGUES if chosen.open_calculators else ())))
    app.add_middleware(BodyGuard)
    app.add_middleware(Gate, rates)
    app.add_middleware(HostGuard, chosen.allowed_hosts.split(","))
    app.add_middleware(RequestRecord, rates)
    app.add_middleware(Measured, app.state.metrics)
    return app


def document(request: Request) -> JSONResponse:
    """The OpenAPI document: made in a thread, since that takes seconds, and health checks don't wait for it."""
    return JSONResponse(request.app.openapi())


async def live() -> Health:
    """It is, if this is answered. It waits for nothing, not even for a thread."""
    return Health(version=VERSION)
