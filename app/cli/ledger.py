r"""``ledger``: make a budget, reserve, commit, release, show it, and check its history."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from zetadp.app.cli.console import (
    DEFAULT_ADDRESS,
    Address,
    AsJson,
    Exit,
    JsonFile,
    Key,
    OptionalJsonFile,
    clear_errors,
    error,
    fail,
    out,
    print_json,
    read_json,
)
from zetadp.app.client import Client
from zetadp.app.kit.client_errors import RequestRefused
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.app.ledgers.entries import EntryRecord
from zetadp.app.ledgers.errors import LedgerDamaged
from zetadp.app.ledgers.export import as_csv, entries_in, spend_rows
from zetadp.app.ledgers.ledger_definition import LedgerDefinition, Spent
from zetadp.app.ledgers.requests import ProjectionRequest, ReservationRequest
from zetadp.app.ledgers.resources import Balance, Head, Ledger, Reservation
from zetadp.app.ledgers.verification.replay import ChainReport, verify_history

RENEWED = "somebody whose data stay for k periods is protected by k such budgets together"

LedgerId = Annotated[str, typer.Argument(help="Id of the ledger.")]
ReservationId = Annotated[str, typer.Argument(help="Id of the reservation.")]
Once = Annotated[str | None, typer.Option("--idempotency-key", help="If sent again with the same request, nothing happens twice.")]

_SPENT: TypeAdapter[Spent] = TypeAdapter(Spent)

ledger = typer.Typer(name="ledger", help="Privacy budgets: reserve, commit, release, and check the history.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (create, reserve, approve, commit, release, close, project, history, export, verify):
        ledger.command()(command)
    ledger.command("list")(list_ledgers)
    ledger.command("show")(show)
    app.add_typer(ledger)


def create(definition: JsonFile, once: Once = None, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Make a ledger: DEFINITION is a JSON file like the body of POST /v1/ledgers."""
    with clear_errors(), Client(address, key) as client:
        _print_ledger(client.create_ledger(read_json(definition, LedgerDefinition), once), as_json=as_json)


def list_ledgers(address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """List ledgers, newest first."""
    with clear_errors(), Client(address, key) as client:
        cursor: str | None = None
        while True:
            page = client.ledgers(cursor)
            for found in page.ledgers:
                if as_json:
                    print_json(found, indent=None)
                else:
                    out.print(f"{found.id}  {found.state}  {found.definition.name}", markup=False)
            for damaged in page.damaged:
                error.print(f"{damaged}  DAMAGED: what is stored of it can't be used; see ledger verify", markup=False)
            if (cursor := page.next) is None:
                return


def show(
    ledger_id: LedgerId,
    user: Annotated[str | None, typer.Option(help="Show this user's balance, if each user has one.")] = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Print what is committed, reserved and left."""
    with clear_errors(), Client(address, key) as client:
        if user is None:
            _print_ledger(client.ledger(ledger_id), as_json=as_json)
            return
        balance = client.user_balance(ledger_id, user)
        if as_json:
            print_json(balance)
        else:
            _print_balance(balance)


def reserve(
    ledger_id: LedgerId,
    request: JsonFile,
    once: Once = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Set a spend aside before its noise is drawn: REQUEST is a JSON file like the body of POST /v1/ledgers/{id}/reservations."""
    with clear_errors(), Client(address, key) as client:
        _print_reservation(client.reserve(ledger_id, read_json(request, ReservationRequest), once), as_json=as_json)


def commit(
    ledger_id: LedgerId,
    reservation_id: ReservationId,
    released: Annotated[
        Path | None, typer.Option(help="A JSON file with the smaller event or number that was really released; all of it if absent.")
    ] = None,
    once: Once = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Count a reservation as spent: all of it, or what was really released."""
    with clear_errors(), Client(address, key) as client:
        part = None if released is None else _read_spent(released)
        _print_reservation(client.commit(ledger_id, reservation_id, part, once), as_json=as_json)


def approve(
    ledger_id: LedgerId,
    reservation_id: ReservationId,
    once: Once = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Agree to what another key reserved, where the ledger's rules ask for that."""
    with clear_errors(), Client(address, key) as client:
        _print_reservation(client.approve(ledger_id, reservation_id, once), as_json=as_json)


def release(
    ledger_id: LedgerId,
    reservation_id: ReservationId,
    once: Once = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Free a reservation of which nothing was or will be released."""
    with clear_errors(), Client(address, key) as client:
        _print_reservation(client.release(ledger_id, reservation_id, once), as_json=as_json)


def close(ledger_id: LedgerId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Close a ledger for ever: it admits nothing more; open reservations can still be settled."""
    with clear_errors(), Client(address, key) as client:
        _print_ledger(client.close_ledger(ledger_id), as_json=as_json)


def project(
    ledger_id: LedgerId,
    spend: OptionalJsonFile = None,
    job: Annotated[str | None, typer.Option(help="Trainings like this job's, instead of a file.")] = None,
    user: Annotated[str | None, typer.Option(help="For this user, if each user has a balance.")] = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Print how many more spends like SPEND fit, a JSON file with an event or a number."""
    with clear_errors(), Client(address, key) as client:
        if (spend is None) == (job is None):
            fail("project: give a file with a spend, or a job with --job", Exit.USAGE)
        asked = ProjectionRequest(spend=None if spend is None else _read_spent(spend), job=job, user=user)
        found = client.project(ledger_id, asked)
        if as_json:
            print_json(found)
        elif found.separately is None:
            out.print("unlimited: it costs nothing", markup=False)
        else:
            together = "" if found.together is None else f"; {found.together} in a single reservation"
            out.print(f"{found.separately} more, one after the other{together}", markup=False)


def history(ledger_id: LedgerId, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Print every entry, oldest first."""
    with clear_errors(), Client(address, key) as client:
        for entry in client.history(ledger_id):
            if as_json:
                print_json(entry, indent=None)
            else:
                out.print(_line(entry), markup=False)


def export(
    ledger_id: LedgerId,
    file: Annotated[Path, typer.Argument(help="Where to write it; - for standard output.")] = Path("-"),
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Write every reservation as CSV: when, by which key, for what, its state, and its share of the budget."""
    with clear_errors(), Client(address, key) as client:
        rows = spend_rows(entries_in(entry.text for entry in client.history(ledger_id)))
        text = "".join(f"{row.model_dump_json()}\n" for row in rows) if as_json else as_csv(rows)
        if str(file) == "-":
            typer.echo(text, nl=False)
        else:
            file.write_text(text, encoding="utf-8")


def verify(
    ledger_id: LedgerId,
    head: Annotated[
        str | None, typer.Option(metavar="NUMBER:SHA256", help="An entry that you noted earlier; the history must still contain it.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="Most processor time; what isn't reached is told as not checked.")] = math.inf,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Download the history and check it here: every digest, every rule, and the balance recomputed from the entries."""
    with clear_errors(), Client(address, key) as client:
        noted = None if head is None else _head(head)
        before = _served(client, ledger_id)
        read = verify_history(ledger_id, ((entry.text, entry.sha256) for entry in client.history(ledger_id)), noted, seconds)
        problems = (*read.problems, *_differences(read, _served(client, ledger_id), before))
        report = ChainReport.model_validate({**dict(read), "verdict": "broken" if problems else read.verdict, "problems": problems})
        if as_json:
            print_json(report)
        else:
            _print_report(report)
        if report.verdict == "broken":
            fail(f"ledger {ledger_id} is NOT sound", Exit.FAILED)
        if report.verdict == "incomplete":
            fail(f"ledger {ledger_id} is NOT verified: not everything was checked within {seconds:g} s", Exit.FAILED)


def _print_report(report: ChainReport) -> None:
    for problem in report.problems:
        out.print(f"FAIL {problem}", markup=False)
    if report.further_problems:
        out.print(f"FAIL {report.further_problems} further problems aren't named", markup=False)
    if report.not_read:
        out.print(f"NOT CHECKED {report.not_read} entries weren't read within the limit", markup=False)
    if report.not_recomputed:
        numbers = ", ".join(map(str, report.first_not_recomputed))
        more = ", ..." if report.not_recomputed > len(report.first_not_recomputed) else ""
        words = f"{report.not_recomputed} prices weren't recomputed within the limit: of entries {numbers}{more}"
        out.print(f"NOT CHECKED {words}", markup=False)
    out.print(f"{report.entries} entries; note the last one: {report.head.number}:{report.head.sha256}", markup=False)
    if report.balance is not None:
        _print_balance(report.balance)
    out.print(f"verdict: {report.verdict}", markup=False)


def _served(client: Client, ledger_id: str) -> Ledger | None:
    """What the service tells of the ledger; None if it can't use what it has stored."""
    try:
        return client.ledger(ledger_id)
    except RequestRefused as refusal:
        if refusal.title != LedgerDamaged.problem.title:
            raise
        return None


def _differences(report: ChainReport, served: Ledger | None, before: Ledger | None) -> list[str]:
    """Where the service's answer disagrees with the ledger's entries; compares nothing if it changed meanwhile or wasn't read whole."""
    if served is None or before is None:
        return ["ledger: the service can't use what it has stored beside its entries"]
    if before.head != served.head or report.not_read:
        return []
    found: list[str] = []
    if served.head != report.head:
        found.append(f"ledger: the service tells of entry {served.head.number}:{served.head.sha256} as the last")
    if served.balance != report.balance or served.users != report.users:
        found.append("ledger: the service tells another balance than its entries")
    return found


def _head(text: str) -> Head:
    number, sign, sha256 = text.partition(":")
    if not (sign and number.isascii() and number.isdigit() and len(sha256) == 64):
        fail(f"--head must be NUMBER:SHA256 with 64 hexadecimal digits, got {text!r}", Exit.USAGE)
    return Head(number=int(number), sha256=sha256)


def _read_spent(path: Path) -> Spent:
    """An event or a number from a JSON file, with the name of the field that it fills."""
    import sys

    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    try:
        return _SPENT.validate_json(text)
    except ValidationError as invalid:
        fail(f"{path}: {summary(field_errors(invalid.errors(), None, 'file'))}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def _print_ledger(found: Ledger, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    about = found.definition
    out.print(f"ledger {found.id}  {found.state}  {about.name}", markup=False)
    protects = "the data set as a whole" if about.protects == "data_set" else f"each {about.unit}, {found.users} charged so far"
    out.print(f"budget {about.budget.kind}, {about.adjacency}, unit {about.unit}; protects {protects}", markup=False)
    if found.balance is not None:
        _print_balance(found.balance)
    if found.renews_at is not None:
        out.print(f"renews at {found.renews_at:%Y-%m-%d %H:%M:%S} UTC: {RENEWED}", markup=False)
    out.print(f"last entry {found.head.number}:{found.head.sha256}", markup=False)


def _print_balance(balance: Balance) -> None:
    for use in balance.limits:
        figures = f"committed {use.committed!r}, reserved {use.reserved!r}, remaining {use.remaining!r} of {use.limit!r}"
        out.print(f"{use.quantity}: {figures}", markup=False)


def _print_reservation(found: Reservation, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    lapses = "" if found.expires is None else f"; at {found.expires:%Y-%m-%d %H:%M:%S} UTC it counts as {found.then}"
    purpose = "" if found.purpose is None else f"; for {found.purpose}"
    purpose += "" if found.approved_by is None else f"; approved by key {found.approved_by}"
    out.print(f"reservation {found.id}  {found.state}{lapses}{purpose}", markup=False)
    if found.left_out:
        out.print(f"left out, must not be part of the release: {', '.join(found.left_out)}", markup=False)


def _line(entry: EntryRecord) -> str:
    about = getattr(entry.act, "reservation", "")
    return f"{entry.number:6d}  {entry.time:%Y-%m-%d %H:%M:%S}  {entry.act.kind:10s}  {about or '-':32s}  {entry.sha256}"
