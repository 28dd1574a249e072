r"""Certificates over HTTP: read one in the requested form, verify one, and get the keys that signed them."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, final

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from zetadp.app.access.caller import Caller, requires
from zetadp.app.access.scopes import Scope
from zetadp.app.certificates.facts.report import VerificationReport
from zetadp.app.certificates.facts.schema import MEDIA_TYPE as SCHEMA
from zetadp.app.certificates.facts.schema import statement_schema
from zetadp.app.certificates.log.evidence import Evidence, Signed
from zetadp.app.certificates.log.router import database_of, settings_of
from zetadp.app.certificates.log.service import own_evidence
from zetadp.app.certificates.log.storing import stored_envelope
from zetadp.app.certificates.page.html import content_security_policy, html_of
from zetadp.app.certificates.page.rendering import rendered
from zetadp.app.certificates.policy.reading import operators_policy
from zetadp.app.certificates.policy.schema import Policy, policy_schema
from zetadp.app.certificates.signing.envelope import MAXIMUM_BYTES, MEDIA_TYPE, PAYLOAD_TYPE, Envelope
from zetadp.app.certificates.signing.jws import MEDIA_TYPE as JOSE
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks
from zetadp.app.certificates.verification.apart import examined_apart
from zetadp.app.certificates.verification.opening import jws_of, open_certificate
from zetadp.app.certificates.verification.verify import read_statement, reported
from zetadp.app.kit.database import Database
from zetadp.app.kit.settings import Settings

router = APIRouter(tags=["certificates"])

HTML, PDF = "text/html", "application/pdf"


class Form(StrEnum):
    """The form in which a certificate is sent; all forms hold the same statement."""

    DSSE = "dsse"
    JWS = "jws"
    HTML = "html"
    PDF = "pdf"


_OF_TYPE = {MEDIA_TYPE: Form.DSSE, "application/json": Form.DSSE, JOSE: Form.JWS, HTML: Form.HTML, PDF: Form.PDF}
_SENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The certificate in the requested form.",
        "content": {
            JOSE: {"schema": {"type": "string", "description": "A compact JWS (RFC 7515)."}},
            HTML: {"schema": {"type": "string"}},
            PDF: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_EXAMPLE = json.dumps({"payload": "e30=", "payloadType": PAYLOAD_TYPE, "signatures": [{"keyid": "A" * 43, "sig": "A" * 86 + "=="}]})
_VERIFIED: dict[str, Any] = {
    "required": True,
    "description": "The certificate's bytes as they were saved: a DSSE envelope or a compact JWS. They may have any Content-Type.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": _EXAMPLE}},
}


@final
class DsseResponse(JSONResponse):
    """A DSSE envelope, byte by byte as it is stored."""

    media_type = MEDIA_TYPE

    def render(self, content: bytes) -> bytes:
        return content


async def _body(request: Request) -> bytes:
    """The unchanged body, at most one byte more than the largest envelope: its layout is part of what is verified."""
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > MAXIMUM_BYTES:
            break
    return bytes(received)


def _form(request: Request, form: Annotated[Form | None, Query(description="Takes precedence over the header Accept.")] = None) -> Form:
    """The form requested by name, or the first of the types that the client accepts; DSSE if it accepts anything."""
    if form is not None:
        return form
    accepted = (part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(","))
    return next((_OF_TYPE[kind] for kind in accepted if kind in _OF_TYPE), Form.DSSE)


@router.get(
    "/v1/certificates/schema",
    response_class=Response,
    responses={200: {"description": "A JSON Schema.", "content": {SCHEMA: {"schema": {"type": "object"}}}}},
)
def get_certificate_schema() -> Response:
    """The JSON Schema (2020-12) of what a certificate signs: an in-toto statement with a privacy certificate as its predicate."""
    return JSONResponse(statement_schema(), media_type=SCHEMA)


@router.get(
    "/v1/certificates/{certificate_id}",
    response_class=DsseResponse,
    response_model=Envelope,
    responses=_SENT,
)
def get_certificate(
    certificate_id: str,
    database: Annotated[Database, Depends(database_of)],
    settings: Annotated[Settings, Depends(settings_of)],
    caller: Annotated[Caller, Depends(requires(Scope.SUBMIT))],
    form: Annotated[Form, Depends(_form)],
) -> Response:
    """One certificate, as a DSSE envelope or a compact JWS around the same in-toto statement, or as a page or PDF to read.

    Choose the form with `form` or with the header Accept. Save a signed form's bytes unchanged; their layout is verified too.
    """
    with database.reading() as session:
        envelope = stored_envelope(session, certificate_id, caller.tenant)
    headers = {"vary": "Accept"}
    if form in (Form.HTML, Form.PDF):
        document = rendered(envelope, jwks(settings), _evidence(envelope, database, settings))
        if form is Form.PDF:
            from zetadp.app.certificates.page.pdf import pdf_of  # a tenth of a second to import, and few ask for it

            shown = {"content-disposition": f'inline; filename="certificate-{certificate_id}.pdf"'}
            return Response(pdf_of(document), media_type=PDF, headers=headers | shown)
        policy = {"content-security-policy": content_security_policy(), "referrer-policy": "no-referrer"}
        return Response(html_of(document), media_type=HTML, headers=headers | policy)
    if form is Form.JWS:
        return Response(jws_of(Envelope.model_validate_json(envelope), settings), media_type=JOSE, headers=headers)
    return DsseResponse(envelope, headers=headers)


@router.post("/v1/certificates/verify", response_model=VerificationReport, openapi_extra={"requestBody": _VERIFIED})
async def verify_certificate(
    request: Request,
    body: Annotated[bytes, Depends(_body)],
    database: Annotated[Database, Depends(database_of)],
    settings: Annotated[Settings, Depends(settings_of)],
) -> VerificationReport | Response:
    """Verify a certificate (DSSE or JWS) against this service's keys, revocations and log, and recompute its figures.

    Always 200: the report's `verdict` is the answer, and `policy` what the operator's policy says of it, if there is one. Files aren't
    checked here; `zetadp verify` compares their digests offline, with keys that the reader trusts.
    """
    # Nothing here computes: that is for a thread, or a process apart.
    keys = await to_thread.run_sync(jwks, settings)
    examination = await examined_apart(request, body, keys, settings)
    if isinstance(examination, Response):
        return examination

    def report() -> VerificationReport:
        # Nothing is looked up for what a stranger wrote.
        is_ours = examination.is_signed and examination.states is not None
        return reported(examination, body, keys, _evidence(body, database, settings) if is_ours else None, operators_policy(settings))

    return await to_thread.run_sync(report)


def _evidence(certificate: bytes, database: Database, settings: Settings) -> Evidence:
    """What the service knows about a certificate that its own keys signed, and whose statement can be read."""
    opened, statement = open_certificate(certificate), read_statement(certificate)
    with database.reading() as session:
        return own_evidence(session, settings, Signed(opened.content, statement, opened.key_ids))


@router.get("/v1/policy")
def get_policy(settings: Annotated[Settings, Depends(settings_of)]) -> Policy | None:
    """The operator's policy: which trainings this service accepts, and what it demands of certificates. Null without one."""
    return operators_policy(settings)


@router.get(
    "/v1/policy/schema",
    response_class=Response,
    responses={200: {"description": "A JSON Schema.", "content": {SCHEMA: {"schema": {"type": "object"}}}}},
)
def get_policy_schema() -> Response:
    """The JSON Schema (2020-12) of a policy, for `zetadp verify --policy` and for the operator's own."""
    return JSONResponse(policy_schema(), media_type=SCHEMA)


@router.get("/.well-known/jwks.json")
def get_public_keys(settings: Annotated[Settings, Depends(settings_of)]) -> PublicKeySet:
    """Every public key that this service has signed certificates with, including revoked ones, newest first (RFC 7517)."""
    return jwks(settings)
