r"""``data``: your own files and the data sets made from them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer

from zetadp.app.cli.console import DEFAULT_ADDRESS, Address, AsJson, Exit, JsonFile, Key, clear_errors, fail, out, print_json, read_json
from zetadp.app.client import Client, RequestRefused
from zetadp.app.uploads.data_set_definition import DataSetDefinition
from zetadp.app.uploads.resources import DataSet, Upload
from zetadp.trainer.data.formats import FormatName

SUFFIXES: dict[str, FormatName] = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".zip": "wav_zip",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".mat": "mat",
    ".nii": "nifti",
    ".nii.gz": "nifti",
}
"""The format assumed without ``--format``; the service checks the file and refuses it if it has another format."""

NAMES = ", ".join(get_args(FormatName))
DataSetId = Annotated[str, typer.Argument(help="Id of the data set, as `data list` shows it.")]

commands = typer.Typer(name="data", help="Upload files, make data sets from them, list and delete both.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(commands)


@commands.command()
def upload(
    file: Annotated[Path, typer.Argument(help="The file.")],
    format_: Annotated[str | None, typer.Option("--format", help=f"One of {NAMES}; guessed from the file's name if absent.")] = None,
    name: Annotated[str | None, typer.Option(help="A label; the file's name if absent.")] = None,
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Upload a file and show the arrays in it."""
    known = SUFFIXES.get("".join(file.suffixes[-2:]).lower()) or SUFFIXES.get(file.suffix.lower())
    found = next((one for one in get_args(FormatName) if one == format_), None) if format_ is not None else known
    if found is None:
        fail(f"format must be one of {NAMES} (--format), got {format_ or file.name!r}", Exit.USAGE)
        raise AssertionError  # fail() leaves
    with clear_errors(), Client(address, key) as client:
        made = client.data.upload(file, found, name)
    if as_json:
        print_json(made)
    else:
        _show_upload(made)


@commands.command(name="list")
def list_data(address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """List data sets and uploads, newest first."""
    with clear_errors(), Client(address, key) as client:
        data_sets, uploads = _all_data_sets(client), _all_uploads(client)
    if as_json:
        facts = {
            "data_sets": [one.model_dump(mode="json") for one in data_sets],
            "uploads": [one.model_dump(mode="json") for one in uploads],
        }
        out.print(json.dumps(facts, indent=2), markup=False)
        return
    for one in data_sets:
        _show(one)
    for one in uploads:
        _show_upload(one)


@commands.command()
def make(definition: JsonFile, address: Address = DEFAULT_ADDRESS, key: Key = None, as_json: AsJson = False) -> None:
    """Make a data set from uploads, as a JSON file defines it. Put the printed data into a training spec."""
    with clear_errors():
        asked = read_json(definition, DataSetDefinition)
        with Client(address, key) as client:
            made = client.data.make(asked)
    if as_json:
        print_json(made)
        return
    _show(made)
    out.print(f"  data: {made.data.model_dump_json()}", markup=False)


@commands.command()
def manifest(data_set_id: DataSetId, address: Address = DEFAULT_ADDRESS, key: Key = None) -> None:
    """Print a data set's manifest, whose SHA-256 certificates name, for somebody who may see which data were used."""
    with clear_errors(), Client(address, key) as client:
        sys.stdout.write(client.data.manifest(data_set_id).decode())


@commands.command()
def delete(
    wanted: Annotated[str, typer.Argument(metavar="ID", help="Id of a data set or an upload.")],
    address: Address = DEFAULT_ADDRESS,
    key: Key = None,
) -> None:
    """Delete a data set or an upload. Data sets made from an upload stay."""
    with clear_errors(), Client(address, key) as client:
        what = "data set"
        try:
            client.data.delete(wanted)
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            what = "upload"
            client.data.delete_upload(wanted)
    out.print(f"{what} {wanted} is deleted", markup=False)


def _all_data_sets(client: Client) -> list[DataSet]:
    found, page = [], client.data.data_sets()
    while True:
        found += page.data_sets
        if page.next is None:
            return found
        page = client.data.data_sets(page.next)


def _all_uploads(client: Client) -> list[Upload]:
    found, page = [], client.data.uploads()
    while True:
        found += page.uploads
        if page.next is None:
            return found
        page = client.data.uploads(page.next)


def _show(one: DataSet) -> None:
    facts = one.facts
    users = "" if facts.users is None else f", of {facts.users} of the unit {facts.user_unit!r}"
    out.print(
        f"data set {one.id}  {one.definition.name}  {facts.training_records} + {facts.test_records} records {facts.unit!r}{users}  "
        f"{one.bytes} bytes  {one.state}",
        markup=False,
    )


def _show_upload(one: Upload) -> None:
    arrays = ", ".join(f"{array.name} {list(array.shape)} {array.dtype}" for array in one.arrays[:8])
    more = f" and {len(one.arrays) - 8} more" if len(one.arrays) > 8 else ""
    out.print(f"upload {one.id}  {one.name}  {one.format}  {one.bytes} bytes  {arrays}{more}", markup=False)
