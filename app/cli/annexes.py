r"""``annex``: what an assessment of data protection and a registry of deployments ask of a certificate, in one command."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import ValidationError

from zetadp.app.certificates.log.evidence import PROOFS_FILE, REVOCATIONS_FILE, Evidence
from zetadp.app.cli.certify import KEYS_FILE, beside, read_keys, write_page
from zetadp.app.cli.console import Exit, clear_errors, fail, out
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.mechanisms.errors import InvalidParameter


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(annex)


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
    evidence = Evidence(beside(file, None, PROOFS_FILE), beside(file, None, REVOCATIONS_FILE))
    try:
        told = registry.Publication.model_validate(yaml.safe_load(publication.read_text(encoding="utf-8")))
        return registry.registry_entry(file.read_bytes(), read_keys(keys), told, folder=file.parent, evidence=evidence)
    except ValidationError as invalid:
        fail(f"{publication}: {summary(field_errors(invalid.errors(), None))}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves
    except yaml.YAMLError as invalid:
        fail(f"{publication}: expected YAML", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves
    except InvalidParameter as refused:
        fail(f"{file}: {refused}", Exit.FAILED)
        raise AssertionError from refused  # fail() leaves
