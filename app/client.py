r"""The Python client of the service; the command line is built on it.

with Client("http://127.0.0.1:8000") as client:
    client.calibrate(CalibrationRequest(event=event, target=Target(epsilon=1.0, delta=1e-5))).std
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, final
from uuid import uuid4

import httpx2
from pydantic import BaseModel, TypeAdapter

from zetadp.app.access.resources import CLOSED, Closed
from zetadp.app.calculators.batches import BATCH_LINE, BatchLine, BatchRequest
from zetadp.app.calculators.calibrations import Calibration, CalibrationRequest, Sweep, SweepRequest
from zetadp.app.calculators.schemas import Profile, ProfileRequest
from zetadp.app.certificates.facts.report import VerificationReport
from zetadp.app.certificates.signing.keys import PublicKeySet
from zetadp.app.jobs.calculation import Calculation
from zetadp.app.jobs.events import Artifact, JobEventRecord
from zetadp.app.jobs.resources import ArtifactList, ExecutorList, Job, JobPage, JobSubmission, LabelsChange, MeasuresPage
from zetadp.app.kit.client_errors import AnswerLost, ClientError, RequestRefused, ServiceUnreachable
from zetadp.app.ledgers.entries import EntryPage, EntryRecord
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.requests import CommitRequest, ProjectionRequest, ReservationRequest
from zetadp.app.ledgers.resources import Balance, Ledger, LedgerPage, Projection, Reservation
from zetadp.app.recipes.schemas import RecipeEntry
from zetadp.app.tables.job_states import Action
from zetadp.app.uploads.client_data import DataCalls

_Model = TypeVar("_Model", bound=BaseModel)

RECONNECT_SECONDS = 1.0
PAUSES_SECONDS = (0.5, 1.5)
"""Before a submission that wasn't answered is sent for the second and the third time."""
_RECIPES: TypeAdapter[tuple[RecipeEntry, ...]] = TypeAdapter(tuple[RecipeEntry, ...])

__all__ = ["AnswerLost", "Client", "ClientError", "RequestRefused", "ServiceUnreachable"]


@final
class Client:
    r"""A connection to one service.

    Args:
      address: like ``http://127.0.0.1:8000``.
      key: ``zdp_<id>_<secret>``; without one only the open routes answer.
      timeout_seconds: how long one answer may take; calibrations of long trainings take seconds.
    Attributes:
      data: the calls for your own files and the data sets made from them.
    Raises:
      ServiceUnreachable, RequestRefused: from every method; AnswerLost, a ServiceUnreachable, once a request was sent.
    """

    def __init__(self, address: str, key: str | None = None, timeout_seconds: float = 120.0) -> None:
        self._address = address.rstrip("/")
        self._timeout_seconds = timeout_seconds
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http = httpx2.Client(base_url=self._address, timeout=timeout_seconds, follow_redirects=False, headers=headers)
        self.data = DataCalls(self._answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_alive(self) -> bool:
        """Whether the service answers."""
        try:
            return self._http.get("/livez").status_code == 200
        except httpx2.HTTPError:
            return False

    def profile(self, request: ProfileRequest) -> Profile:
        """A privacy profile."""
        return self._post("/v1/profiles", request, Profile)

    def profiles(self, requests: Sequence[ProfileRequest]) -> Iterator[BatchLine]:
        """Up to 1000 profiles, each as soon as it is computed; closing the iterator ends the work."""
        body = BatchRequest(requests=tuple(requests)).model_dump_json(exclude_none=True)
        headers = {"content-type": "application/json"}
        with self._http.stream("POST", "/v1/profiles/batch", content=body, headers=headers) as response:
            if response.status_code != 200:
                response.read()
                self._checked(response)
            for line in _lines(response):
                yield BATCH_LINE.validate_json(line)

    def calibrate(self, request: CalibrationRequest) -> Calibration:
        """The least noise that meets a target, or the largest value of another parameter."""
        return self._post("/v1/calibrations", request, Calibration)

    def sweep(self, request: SweepRequest) -> Sweep:
        """A calibration for each of many targets."""
        return self._post("/v1/calibrations/sweep", request, Sweep)

    def calculate(self, calculation: Calculation, idempotency_key: str | None = None) -> Job:
        """Submit a calculation that takes too long for an immediate answer; ``job`` has its result once it has succeeded.

        Sent again as by ``submit``.
        """
        return self._submitted("/v1/calculations", calculation.model_dump_json(exclude_none=True), idempotency_key)

    def submit(self, submission: JobSubmission, idempotency_key: str | None = None) -> Job:
        """Submit a training job. Each call has an Idempotency-Key, a fresh one if none is given.

        If the connection breaks or no answer comes, the request is sent again with the same key, so that one call makes one job.
        """
        # With its nulls: a network may have a field that must be given and may be null.
        return self._submitted("/v1/jobs", submission.model_dump_json(), idempotency_key)

    def recipes(self) -> tuple[RecipeEntry, ...]:
        """Every recipe, with what is proven about it and whether the service has its data set."""
        return _RECIPES.validate_json(self._checked(self._send("GET", "/v1/recipes")).content)

    def recipe(self, name: str) -> JobSubmission:
        """A recipe as the body of a job."""
        return self._get(f"/v1/recipes/{name}", JobSubmission)

    def job(self, job_id: str) -> Job:
        """One job."""
        return self._get(f"/v1/jobs/{job_id}", Job)

    def jobs(self, cursor: str | None = None) -> JobPage:
        """A page of jobs, newest first."""
        return self._get("/v1/jobs" if cursor is None else f"/v1/jobs?cursor={cursor}", JobPage)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job."""
        return self._act(job_id, Action.CANCEL)

    def pause(self, job_id: str) -> Job:
        """Stop a job at a checkpoint until it is resumed."""
        return self._act(job_id, Action.PAUSE)

    def resume(self, job_id: str) -> Job:
        """Continue a paused job from its checkpoint."""
        return self._act(job_id, Action.RESUME)

    def retry(self, job_id: str) -> Job:
        """Run a failed or cancelled job again, from its checkpoint."""
        return self._act(job_id, Action.RETRY)

    def label(self, job_id: str, labels: dict[str, str]) -> Job:
        """Replace a job's labels with these."""
        body = LabelsChange(labels=labels).model_dump_json().encode()
        sent = self._send("PATCH", f"/v1/jobs/{job_id}/labels", body, {"content-type": "application/json"})
        return Job.model_validate_json(self._checked(sent).content)

    def measures(self, job_id: str) -> Iterator[JobEventRecord]:
        """Progress with the epsilon spent, and metrics, so far."""
        after: int | None = 0
        while after is not None:
            page = self._get(f"/v1/jobs/{job_id}/metrics?after={after}", MeasuresPage)
            yield from page.measures
            after = page.next

    def log(self, job_id: str, after: int = 0) -> Iterator[JobEventRecord]:
        """The part of the job's log that may be shown, from event ``after`` on, then live until the job's end; reconnects without loss."""
        return self._followed(job_id, "logs", after)

    def hardware(self) -> ExecutorList:
        """The live workers."""
        return self._get("/v1/hardware", ExecutorList)

    def events(self, job_id: str, after: int = 0) -> Iterator[JobEventRecord]:
        """A job's history from event ``after`` on, then live until its end; reconnects without loss."""
        return self._followed(job_id, "events", after)

    def _act(self, job_id: str, action: Action) -> Job:
        return Job.model_validate_json(self._checked(self._send("POST", f"/v1/jobs/{job_id}/{action}")).content)

    def _followed(self, job_id: str, path: str, after: int) -> Iterator[JobEventRecord]:
        number = after
        while True:
            before = number
            try:
                for record in self._stream(job_id, path, number):
                    number = record.number
                    yield record
            except httpx2.TransportError as error:
                if not self.is_alive():
                    raise ServiceUnreachable(self._address, str(error)) from error
            if number == before:
                # Asked only now: a job that was tried again has ended once before its end.
                if self.job(job_id).state.is_final:
                    return
                time.sleep(RECONNECT_SECONDS)

    def artifacts(self, job_id: str) -> tuple[Artifact, ...]:
        """The files of a finished job."""
        return self._get(f"/v1/jobs/{job_id}/artifacts", ArtifactList).artifacts

    def download(self, job_id: str, name: str, folder: Path) -> Path:
        """Save one of the job's files atomically, and return its path."""
        path = folder / name
        unfinished = folder / f".{name}.new"
        with self._http.stream("GET", f"/v1/jobs/{job_id}/artifacts/{name}") as response:
            if response.status_code != 200:
                response.read()
                self._checked(response)
            with unfinished.open("wb") as file:
                for piece in response.iter_bytes():
                    file.write(piece)
        unfinished.replace(path)
        return path

    def certificate(self, certificate_id: str, form: str = "dsse") -> bytes:
        """The signed certificate as an envelope (``dsse``) or a compact JWS (``jws``), or a readable page (``html``, ``pdf``)."""
        return self._checked(self._send("GET", f"/v1/certificates/{certificate_id}?form={form}")).content

    def proofs(self, certificate_id: str, size: int | None = None) -> bytes:
        """The proofs that a certificate is in the log of this size, or of its current size, and its plan was before it ran."""
        query = "" if size is None else f"?size={size}"
        return self._checked(self._send("GET", f"/v1/certificates/{certificate_id}/proofs{query}")).content

    def log_head(self) -> bytes:
        """The signed head of the log of certificates."""
        return self._checked(self._send("GET", "/v1/log")).content

    def log_checkpoint(self) -> str:
        """The log's head as text, with the witnesses' signatures."""
        return self._checked(self._send("GET", "/v1/log/checkpoint")).text

    def log_tile(self, place: str) -> bytes:
        """A tile of the log, or a bundle of its entries."""
        return self._checked(self._send("GET", f"/v1/log/tile/{place}")).content

    def consistency(self, first: int) -> bytes:
        """The proof that the log of size ``first`` is the beginning of the current one."""
        return self._checked(self._send("GET", f"/v1/log/consistency?first={first}")).content

    def revocations(self) -> bytes:
        """The signed list of revoked keys."""
        return self._checked(self._send("GET", "/.well-known/zetadp-revocations.jws")).content

    def verify(self, envelope: bytes) -> VerificationReport:
        """The service's own verification of an envelope."""
        response = self._send("POST", "/v1/certificates/verify", envelope, {"content-type": "application/json"})
        return VerificationReport.model_validate_json(self._checked(response).content)

    def keys(self) -> PublicKeySet:
        """The public keys that the service signs with."""
        return self._get("/.well-known/jwks.json", PublicKeySet)

    def create_ledger(self, definition: LedgerDefinition, idempotency_key: str | None = None) -> Ledger:
        """Make a ledger."""
        return self._post_text("/v1/ledgers", definition.model_dump_json(), Ledger, _key(idempotency_key))

    def ledgers(self, cursor: str | None = None) -> LedgerPage:
        """A page of ledgers, newest first."""
        return self._get("/v1/ledgers" if cursor is None else f"/v1/ledgers?cursor={cursor}", LedgerPage)

    def ledger(self, ledger_id: str) -> Ledger:
        """One ledger, with its balance."""
        return self._get(f"/v1/ledgers/{ledger_id}", Ledger)

    def user_balance(self, ledger_id: str, user: str) -> Balance:
        """What a user has left on a ledger that protects each user."""
        return self._get(f"/v1/ledgers/{ledger_id}/users/{user}", Balance)

    def close_ledger(self, ledger_id: str, idempotency_key: str | None = None) -> Ledger:
        """Close a ledger for ever: it admits nothing more."""
        return self._post_text(f"/v1/ledgers/{ledger_id}/close", "", Ledger, _key(idempotency_key))

    def reserve(self, ledger_id: str, request: ReservationRequest, idempotency_key: str | None = None) -> Reservation:
        """Set a spend aside before its noise is drawn."""
        return self._post_text(f"/v1/ledgers/{ledger_id}/reservations", request.model_dump_json(), Reservation, _key(idempotency_key))

    def reservation(self, ledger_id: str, reservation_id: str) -> Reservation:
        """One reservation."""
        return self._get(f"/v1/ledgers/{ledger_id}/reservations/{reservation_id}", Reservation)

    def commit(self, ledger_id: str, reservation_id: str, released: Spent | None = None, idempotency_key: str | None = None) -> Reservation:
        """Count all of a reservation, or the part that was really released, as spent."""
        body = CommitRequest(released=released).model_dump_json()
        return self._post_text(f"/v1/ledgers/{ledger_id}/reservations/{reservation_id}/commit", body, Reservation, _key(idempotency_key))

    def approve(self, ledger_id: str, reservation_id: str, idempotency_key: str | None = None) -> Reservation:
        """Agree to what another key reserved, where a ledger's rules ask for that."""
        return self._post_text(f"/v1/ledgers/{ledger_id}/reservations/{reservation_id}/approve", "", Reservation, _key(idempotency_key))

    def release(self, ledger_id: str, reservation_id: str, idempotency_key: str | None = None) -> Reservation:
        """Free a reservation of which nothing was or will be released."""
        return self._post_text(f"/v1/ledgers/{ledger_id}/reservations/{reservation_id}/release", "", Reservation, _key(idempotency_key))

    def project(self, ledger_id: str, request: ProjectionRequest) -> Projection:
        """How many more spends or jobs like this fit."""
        return self._post_text(f"/v1/ledgers/{ledger_id}/projections", request.model_dump_json(), Projection, None)

    def history(self, ledger_id: str) -> Iterator[EntryRecord]:
        """Every entry of a ledger, oldest first."""
        cursor: int | None = 0
        while cursor is not None:
            page = self._get(f"/v1/ledgers/{ledger_id}/entries?limit=1000&cursor={cursor}", EntryPage)
            yield from page.entries
            cursor = page.next

    def _stream(self, job_id: str, path: str, after: int) -> Iterator[JobEventRecord]:
        headers = {"Last-Event-ID": str(after)}
        timeout = httpx2.Timeout(30.0, read=60.0)  # the service sends a comment at least every 15 s
        with self._http.stream("GET", f"/v1/jobs/{job_id}/{path}", headers=headers, timeout=timeout) as response:
            if response.status_code != 200:
                response.read()
                self._checked(response)
            is_closed = False
            for line in _lines(response):
                if line.startswith(b"event:"):
                    is_closed = line.removeprefix(b"event:").strip().decode() == CLOSED
                elif line.startswith(b"data:"):
                    content = line.removeprefix(b"data:")
                    if is_closed:
                        raise RequestRefused(401, "The stream was closed.", Closed.model_validate_json(content).reason)
                    yield JobEventRecord.model_validate_json(content)

    def _submitted(self, path: str, text: str, key: str | None) -> Job:
        key = uuid4().hex if key is None else key
        pauses, was_lost = iter(PAUSES_SECONDS), False
        while True:
            try:
                return self._post_text(path, text, Job, _key(key))
            except ServiceUnreachable as failure:
                was_lost = was_lost or isinstance(failure, AnswerLost)
                if (pause := next(pauses, None)) is not None:
                    time.sleep(pause)
                    continue
                if was_lost:
                    raise AnswerLost(failure.address, failure.reason, key) from failure
                raise

    def _get(self, path: str, kind: type[_Model]) -> _Model:
        return kind.model_validate_json(self._checked(self._send("GET", path)).content)

    def _post(self, path: str, body: BaseModel, kind: type[_Model], headers: dict[str, str] | None = None) -> _Model:
        return self._post_text(path, body.model_dump_json(exclude_none=True), kind, headers)

    def _post_text(self, path: str, text: str, kind: type[_Model], headers: dict[str, str] | None) -> _Model:
        sent = self._send("POST", path, text.encode(), {"content-type": "application/json", **(headers or {})})
        return kind.model_validate_json(self._checked(sent).content)

    def _answer(
        self, method: str, path: str, content: bytes | Iterable[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> bytes:
        return self._checked(self._send(method, path, content, headers)).content

    def _send(
        self, method: str, path: str, content: bytes | Iterable[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        try:
            return self._http.request(method, path, content=content, headers=headers)
        except httpx2.ReadTimeout as error:
            raise AnswerLost(self._address, f"it took the request, and {self._timeout_seconds:g} s passed") from error
        except (httpx2.WriteTimeout, httpx2.ReadError, httpx2.WriteError, httpx2.CloseError, httpx2.RemoteProtocolError) as error:
            raise AnswerLost(self._address, f"the connection broke ({str(error) or type(error).__name__})") from error
        except httpx2.HTTPError as error:
            raise ServiceUnreachable(self._address, str(error) or type(error).__name__) from error

    @staticmethod
    def _checked(response: httpx2.Response) -> httpx2.Response:
        if response.is_success:
            return response
        try:
            problem = response.json()
        except ValueError:
            problem = {}
        raise RequestRefused(
            response.status_code, str(problem.get("title", f"HTTP {response.status_code}.")), str(problem.get("detail", ""))
        )


def _key(idempotency_key: str | None) -> dict[str, str]:
    return {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}


def _lines(response: httpx2.Response) -> Iterator[bytes]:
    """Ended by a line feed, as in newline-delimited JSON and our events: ``iter_lines`` also ends one at U+2028 inside a string."""
    rest = b""
    for chunk in response.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest
