r"""The pages of jobs: a list, a form, and one job followed live. They get all tenant data from the API."""

from __future__ import annotations

import json
import re

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from zetadp.app.jobs.events import HISTORY
from zetadp.app.jobs.resources import HIGHEST_PRIORITY, LONGEST_TIMEOUT
from zetadp.app.submissions.router import ALGORITHM_NAMES, ID_PATTERN
from zetadp.app.tables.job_states import JobState
from zetadp.app.web.layers import LAYERS
from zetadp.app.web.rendering import page
from zetadp.trainer.data.formats import FORMATS

router = APIRouter()


@router.get("/jobs", response_class=HTMLResponse)
def list_jobs() -> HTMLResponse:
    """A tenant's jobs, newest first."""
    return page(
        "jobs.html",
        "Jobs",
        current="/jobs",
        modules=("core.js", "jobs.js"),
        states=[state.value for state in JobState],
        algorithms=ALGORITHM_NAMES,
    )


@router.get("/jobs/new", response_class=HTMLResponse)
def new_job() -> HTMLResponse:
    """The form for a new job."""
    hours = f"{LONGEST_TIMEOUT / 3600.0:.0f}"
    return page(
        "submit.html",
        "New job",
        current="/jobs",
        modules=("core.js", "submit.js"),
        priority=HIGHEST_PRIORITY,
        hours=hours,
        formats=tuple(FORMATS),
        layers=json.dumps(LAYERS),
    )


@router.get("/jobs/compare", response_class=HTMLResponse)
def compare_jobs() -> HTMLResponse:
    """Several runs on the same axes; the address names them."""
    return page("compare.html", "Compare runs", current="/jobs", modules=("core.js", "compare.js"))


@router.get("/jobs/{job_id}", response_class=HTMLResponse)
def read_job(job_id: str) -> HTMLResponse:
    """One job's page. Only the API tells whether the job exists, and only to its tenant."""
    if re.fullmatch(ID_PATTERN, job_id) is None:
        return page("missing.html", "Not found", current="/jobs", status=404, what="job", name=job_id)
    return page("job.html", "Job", current="/jobs", modules=("core.js", "job.js"), job=job_id, kinds=HISTORY)
