r"""``certificate-keys``: signing keys, for the operator. ``log``: the log of certificates, for readers.
``witness``: for whoever vouches that a service shows everybody the same log. ``annex``: what an assessment of data protection and a
registry of deployments ask of a certificate, in one command.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import ValidationError

from zetadp.app.access.audit_log import AuditLog, local_event
from zetadp.app.certificates.errors import CertificateError, SigningKeyNotFound
from zetadp.app.certificates.log.checkpoint import CheckpointRefused, log_key, open_checkpoint, origin_of
from zetadp.app.certificates.log.merkle_proofs import ConsistencyProof, ProofRefused, SignedHead, check_consistency, encode, read_proof
from zetadp.app.certificates.log.notes import NoteRefused
from zetadp.app.certificates.log.revocation_list import Reason, Revocation
from zetadp.app.certificates.log.revocations import revocations
from zetadp.app.certificates.log.revocations import revoke as revoke_key
from zetadp.app.certificates.log.tiles import entries_in, places, read_entries
from zetadp.app.certificates.log.tree import leaf_hash, root_over
from zetadp.app.certificates.log.witness import LARGEST_REQUEST, Witness, log_keys
from zetadp.app.certificates.signing.keys import jwks
from zetadp.app.certificates.signing.keys import rotate as rotate_key
from zetadp.app.cli.certify import KEYS_FILE, evidence_beside, read_keys, write_page
from zetadp.app.cli.console import DEFAULT_ADDRESS, Address, AsJson, Exit, clear_errors, fail, out, print_json
from zetadp.app.cli.processes import read_settings
from zetadp.app.client import Client
from zetadp.app.kit.database import Database
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.app.kit.settings import Settings
from zetadp.app.tables.tenants import DEFAULT_TENANT
from zetadp.mechanisms.errors import InvalidParameter

key_commands = typer.Typer(
    name="certificate-keys", help="List, rotate and revoke the keys that sign certificates, on the service's machine.", no_args_is_help=True
)
log_commands = typer.Typer(name="log", help="The log of certificates: keep a head and check that the log only grew.", no_args_is_help=True)

SigningKeyId = Annotated[str, typer.Argument(help="Id of the key, as `certificate-keys list` shows it.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(key_commands)
    app.add_typer(log_commands)
    app.command()(witness)
    app.command()(annex)


@key_commands.command(name="list")
def list_keys(as_json: AsJson = False) -> None:
    """List every signing key, newest first, and show which one signs."""
    with _operating() as (settings, _, _):
        keys, listed = jwks(settings).keys, revocations(settings)
    ended = {one.kid: one for one in listed.revocations}
    signs = next((key.kid for key in keys if key.kid not in ended), None)
    if as_json:
        listed = [{"kid": key.kid, "signs": key.kid == signs, "revoked": _document(ended, key.kid)} for key in keys]
        out.print(json.dumps(listed, indent=2), markup=False)
        return
    for key in keys:
        found = ended.get(key.kid)
        state = f"revoked {found.time:%Y-%m-%d %H:%M} UTC as {found.reason}" if found else "signs" if key.kid == signs else "published"
        out.print(f"{key.kid}  {state}", markup=False)


@key_commands.command()
def rotate() -> None:
    """Add a key that signs from now on, also in running processes. The others stay published: what they signed stays valid."""
    with _operating() as (settings, _, audit):
        key = rotate_key(settings)
        audit.record(local_event(DEFAULT_TENANT, "-", "certificate-keys rotate", key.kid))
    out.print(f"key {key.kid} signs from now on; send readers the new {KEYS_FILE}", markup=False)


# One key id in 64 starts with a dash.
@key_commands.command(context_settings={"ignore_unknown_options": True})
def revoke(
    key_id: SigningKeyId,
    reason: Annotated[
        Reason, typer.Option(help="compromised: don't trust anything it signed. superseded, ceased: what is in the log by now stays valid.")
    ],
) -> None:
    """Revoke a key for good. It stays published as revoked; a new one is made if it was the last."""
    with _operating() as (settings, database, audit):
        with database.writing() as session:
            found = revoke_key(session, settings, key_id, reason)
        audit.record(local_event(DEFAULT_TENANT, "-", "certificate-keys revoke", f"{key_id} {reason}"))
    stands = "nothing that it signed" if reason is Reason.COMPROMISED else f"what is among the log's first {found.log_size} entries"
    out.print(f"key {key_id} is revoked as {reason}: {stands} stays valid", markup=False)


@log_commands.command()
def head(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to save it, for `log check --since`.")] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Print the log's signed head: its size and root. Keep one: then nobody can change unnoticed what it covers."""
    with clear_errors(), _clear_refusals(), Client(address) as client:
        signed = read_proof(client.log_head(), SignedHead)
        found, _ = open_checkpoint(signed.checkpoint, client.keys())
        if output is not None:
            output.write_bytes(encode(signed))
        if as_json:
            print_json(found)
        else:
            out.print(f"{found.origin}: {found.size} entries, root {found.root}", markup=False)


@log_commands.command()
def check(
    since: Annotated[Path, typer.Option(help="A head that `log head -o` saved.")],
    keys: Annotated[Path | None, typer.Option(help=f"Public keys you trust (JWKS); {KEYS_FILE} next to the head if absent.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to save the new head.")] = None,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Get the service's current log, and check here that it has only grown since the head that you kept."""
    with clear_errors(), _clear_refusals(), Client(address) as client:
        trusted = read_keys(keys or since.parent / KEYS_FILE)
        old, _ = open_checkpoint(read_proof(since.read_bytes(), SignedHead).checkpoint, trusted)
        present, _ = open_checkpoint(read_proof(client.log_head(), SignedHead).checkpoint, trusted)
        if present.size < old.size:
            fail(f"the log has {present.size} entries, and had {old.size}: entries were removed", Exit.FAILED)
        proof = read_proof(client.consistency(old.size), ConsistencyProof)
        new, _ = check_consistency(old, proof, trusted)
        if output is not None:
            output.write_bytes(encode(SignedHead(checkpoint=proof.checkpoint)))
        out.print(f"the log only grew: {old.size} entries then, {new.size} now, root {new.root}", markup=False)


@log_commands.command()
def keys(address: Address = DEFAULT_ADDRESS) -> None:
    """Print the log's keys as witnesses need them, one a line: the newest first."""
    with clear_errors(), Client(address) as client:
        known = client.keys()
        for key in known.keys:
            out.print(log_key(origin_of(known.keys[-1]), key).text, markup=False)


@log_commands.command()
def read(
    keys: Annotated[Path | None, typer.Option(help="Public keys you trust (JWKS); those that the service gives if absent.")] = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: AsJson = False,
) -> None:
    """Read all of the log, check it against its head, and say which plans have no certificate; some of them may still run."""
    with clear_errors(), _clear_refusals(), Client(address) as client:
        found, _ = open_checkpoint(client.log_checkpoint(), client.keys() if keys is None else read_keys(keys))
        try:
            entries = [entry for place in places(found.size) for entry in entries_in(client.log_tile(f"entries/{place.text}"))]
        except ValueError as error:
            fail(str(error), Exit.FAILED)
            raise AssertionError from error  # fail() leaves
        root = root_over([leaf_hash(entry) for entry in entries])
        if (len(entries), root.hex()) != (found.size, found.root):
            fail(f"the log's {len(entries)} entries have the root {root.hex()}, its head says {found.size} and {found.root}", Exit.FAILED)
        told = read_entries(entries)
        if as_json:
            out.print(json.dumps(asdict(told), indent=2), markup=False)
        else:
            out.print(
                f"keys: {keys or 'of the service itself, since no --keys were given: it may show you a log and keys made for you'}",
                markup=False,
            )
            out.print(f"{told.plans} plans of {len(told.data_sets)} data sets, {told.certificates} certificates", markup=False)
            out.print(f"{told.unannounced} certificates are of plans that weren't logged before", markup=False)
            for tag, count in told.uncertified.items():
                out.print(f"data set {tag}: {count} of {told.data_sets[tag]} plans have no certificate, or none yet", markup=False)
        if told.problems:
            fail("\n".join(told.problems), Exit.FAILED)


@log_commands.command()
def cosign() -> None:
    """Ask the witnesses (ZETADP_WITNESSES) to sign the log's present head; on the service's machine."""
    from zetadp.app.certificates.log.cosignatures import WitnessesUnreadable
    from zetadp.app.worker.witnessing import kept_and_witnessed

    with _operating() as (settings, database, _):
        try:
            signed = kept_and_witnessed(settings, database)
        except WitnessesUnreadable as unreadable:
            fail(str(unreadable), Exit.USAGE)
            raise AssertionError from unreadable  # fail() leaves
    out.print(f"{signed.count} witnesses signed the head of {signed.head.size} entries", markup=False)
    if signed.count < settings.least_witnesses:
        raise typer.Exit(int(Exit.FAILED))


def witness(
    name: Annotated[str, typer.Option(help="The name it signs under, such as witness.example.org; it never changes.")],
    logs: Annotated[Path, typer.Option(help="A file with the keys of the logs it knows, one a line, as `zetadp log keys` prints them.")],
    folder: Annotated[Path, typer.Option(help="Where its key and what it signed last are kept.")] = Path("zetadp-witness"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8100,
) -> None:
    """Run a witness of logs: it signs a log's head if the log only grew, and never a second history.

    It prints its own key, which operators and readers need. Losing its folder, or putting an older copy in its place, makes it forget what
    it signed, and then it would sign another history: keep it, and give a new witness a new name and key.
    """
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    with clear_errors():
        try:
            log_keys(logs.read_text())
            own = Witness(folder, name, logs)
        except NoteRefused as refused:
            fail(str(refused), Exit.USAGE)
            raise AssertionError from refused  # fail() leaves

        async def add_checkpoint(request: Request) -> Response:
            received = bytearray()
            async for piece in request.stream():
                received += piece
                if len(received) > LARGEST_REQUEST:
                    return Response("the request is too long\n", 413)
            answer = await run_in_threadpool(own.add_checkpoint, bytes(received))
            return Response(answer.text, answer.status, media_type=answer.content_type)

        out.print(own.key.text, markup=False)
        served = Starlette(routes=[Route("/add-checkpoint", add_checkpoint, methods=["POST"])])
        uvicorn.run(served, host=host, port=port, log_level="warning")


@contextmanager
def _clear_refusals() -> Generator[None]:
    try:
        yield
    except CheckpointRefused as refused:
        fail(f"the head {refused}", Exit.FAILED)
    except ProofRefused as refused:
        fail(str(refused), Exit.FAILED)


def _document(ended: Mapping[str, Revocation], key_id: str) -> object:
    found = ended.get(key_id)
    return None if found is None else found.model_dump(mode="json")


@contextmanager
def _operating() -> Generator[tuple[Settings, Database, AuditLog]]:
    with clear_errors():
        settings = read_settings()
        database = Database(settings)
        try:
            database.migrate()
            audit = AuditLog(database)
            try:
                yield settings, database, audit
            finally:
                audit.close()
        except CertificateError as refused:
            fail(str(refused), Exit.NOT_FOUND if isinstance(refused, SigningKeyNotFound) else Exit.FAILED)
        finally:
            database.close()


def annex(
    file: Annotated[Path, typer.Argument(help="The certificate: a DSSE envelope or a compact JWS.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the annex: a name that ends in .html or .pdf.")],
    keys: Annotated[Path | None, typer.Option(help=f"Public keys you trust (JWKS); {KEYS_FILE} next to the certificate if any.")] = None,
    publication: Annotated[
        Path | None, typer.Option(help="YAML with what only the publisher knows, for an entry of the OpenDP Deployments Registry.")
    ] = None,
    entry: Annotated[Path | None, typer.Option(help="Where to write that entry, a draft.")] = None,
) -> None:
    """Write the annex of a data protection assessment, offline, in plain words; and, if asked, an entry for the registry of deployments."""
    from zetadp.app.certificates.page.annex import annex_of

    if (publication is None) != (entry is None):
        fail("annex: give --publication and --entry together, or neither", Exit.USAGE)
    if publication is not None and entry is not None:
        with clear_errors():
            entry.write_text(_entry(file, keys or file.parent / KEYS_FILE, publication), encoding="utf-8")
        out.print(f"{entry}", markup=False)
    write_page(file, output, keys, annex_of)


def _entry(file: Path, keys: Path, publication: Path) -> str:
    # Above this layer: found by its name, as what other people's software needs is.
    registry = import_module("zetadp.integrations.deployments_registry")
    evidence = evidence_beside(file)
    try:
        told = registry.Publication.model_validate(yaml.safe_load(publication.read_text(encoding="utf-8")))
        return registry.registry_entry(file.read_bytes(), read_keys(keys), told, folder=file.parent, evidence=evidence)
    except ValidationError as invalid:
        fail(f"{publication}: {summary(field_errors(invalid.errors(), None, 'file'))}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves
    except yaml.YAMLError as invalid:
        fail(f"{publication}: expected YAML", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves
    except InvalidParameter as refused:
        fail(f"{file}: {refused}", Exit.FAILED)
        raise AssertionError from refused  # fail() leaves
