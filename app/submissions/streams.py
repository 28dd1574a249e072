r"""A job's history, log and figures as server-sent events while it runs; the figures also as one answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, final

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from zetadp.app.access.resources import CLOSED, Closed
from zetadp.app.access.watch import KeyWatch, key_watch
from zetadp.app.jobs.events import HISTORY, LOG, MEASURES
from zetadp.app.jobs.resources import MeasuresPage
from zetadp.app.kit.database import UNAVAILABLE
from zetadp.app.submissions.lifecycle import job_service
from zetadp.app.submissions.service import EVENTS_PER_READ, JobService
from zetadp.app.submissions.tails import Tails

Service = Annotated[JobService, Depends(job_service)]
JobId = Annotated[str, Path(max_length=64, description="Id of the job.")]
LastEventId = Annotated[str | None, Header(description="The last event seen; the stream continues after it.")]

RETRY_SECONDS = 0.5
"""Between two tries while the database doesn't answer."""

router = APIRouter(prefix="/jobs", tags=["jobs"])


def _start_of_stream(job_id: JobId, service: Service, last_event_id: LastEventId = None) -> int:
    # A dependency, since an error can't become a response any more once the stream has begun.
    return service.checked_event_number(job_id, "0" if last_event_id is None else last_event_id)


@final
class Follower:
    """One open stream of one job."""

    def __init__(
        self,
        job_id: JobId,
        service: Service,
        request: Request,
        number: Annotated[int, Depends(_start_of_stream)],
        watch: Annotated[KeyWatch, Depends(key_watch)],
    ) -> None:
        self._job_id = job_id
        self._service = service
        self._tails: Tails = request.app.state.tails
        self._number = number
        self._watch = watch

    async def events(self, kinds: Sequence[str]) -> AsyncIterator[ServerSentEvent]:
        """Events of these kinds, until the job or the key has ended. An outage of the database only delays them."""
        while True:
            try:
                if await self._watch.has_ended():
                    yield ServerSentEvent(event=CLOSED, data=Closed())
                    return
                batch = await self._tails.next(self._service, self._job_id, self._number, kinds)
            except UNAVAILABLE:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for event in batch.events:
                yield event
            self._number = batch.number
            if batch.is_complete:
                return


Following = Annotated[Follower, Depends(Follower)]


@router.get("/{job_id}/events", response_class=EventSourceResponse, summary="Follow a job (server-sent events)")
async def stream_events(following: Following) -> AsyncIterator[ServerSentEvent]:
    """Every event from the beginning, or after `Last-Event-ID`; ends after the event of the job's final state.

    If the key is revoked or expires meanwhile, the stream ends within seconds with an event `closed` that says so.
    """
    async for event in following.events(HISTORY):
        yield event


@router.get("/{job_id}/logs", response_class=EventSourceResponse, summary="Follow a job's log (server-sent events)")
async def stream_log(following: Following) -> AsyncIterator[ServerSentEvent]:
    """Lines of the training process's log, restricted to those that can't hold a data value: where in the code, which error or warning.

    At most 1000 lines per attempt. From the beginning, or after `Last-Event-ID`; ends with the job.
    """
    async for event in following.events(LOG):
        yield event


@router.get("/{job_id}/metrics/stream", response_class=EventSourceResponse, summary="Follow a job's figures (server-sent events)")
async def stream_metrics(following: Following) -> AsyncIterator[ServerSentEvent]:
    """Progress with the epsilon spent so far, and metrics on held-out records; from the beginning, or after `Last-Event-ID`."""
    async for event in following.events(MEASURES):
        yield event


@router.get("/{job_id}/metrics", summary="Read a job's figures so far")
def read_job_metrics(job_id: JobId, service: Service, after: Annotated[int, Query(ge=0, le=10**15)] = 0) -> MeasuresPage:
    """Progress with the epsilon spent so far, and metrics on held-out records, oldest first; continue after `next`."""
    records, _ = service.events(job_id, after, MEASURES)
    return MeasuresPage(measures=tuple(records), next=records[-1].number if len(records) == EVENTS_PER_READ else None)
