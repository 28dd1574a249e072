r"""``key``, ``flower``, ``nvflare`` and ``propose``."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from zetadp.app.cli.console import Exit, JsonFile, clear_errors, fail, out, read_json
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.sites.flare_job import write_flare
from zetadp.trainer.sites.flower_processes import default_folder, make_environment, version
from zetadp.trainer.sites.keys import load_key, make_key, public_text
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd


def key(
    file: Annotated[Path, typer.Argument(help="Where the private key is, or will be: a site's is site.pem in its state.")],
) -> None:
    """Print the public key of a coordinator or a site, and make the private one if the file doesn't exist."""
    with clear_errors():
        found = load_key(file) if file.exists() else make_key(file)
    out.print(public_text(found), markup=False)


def flower(
    into: Annotated[Path | None, typer.Option(help="The folder; one for this user if absent, where sites and coordinators look.")] = None,
) -> None:
    """Install Flower in an environment of its own, since its libraries must be older than ours."""
    folder = default_folder() if into is None else into
    with clear_errors():
        try:
            make_environment(folder)
        except subprocess.CalledProcessError as error:
            fail(f"Flower {version()} couldn't be installed into {folder}: pip ended with {error.returncode}", Exit.FAILED)
    out.print(f"Flower {version()} is in {folder}", markup=False)


def nvflare(
    proposal: JsonFile,
    relay: Annotated[Path, typer.Option(help="The socket of that name in the coordinator's settings, where NVFLARE's server runs.")],
    output: Annotated[Path, typer.Option("--output", help="A new folder.")] = Path("flare"),
) -> None:
    """Write an NVFLARE job that asks a proposal's sites, and what its server and its clients need in their folder `local`."""
    with clear_errors():
        asked = read_json(proposal, Proposal)
        if asked.spec.transport != "nvflare":
            raise InvalidParameter("transport", "'nvflare'", asked.spec.transport)
        write_flare(asked.federation, relay.absolute(), output)
    out.print(f"{output}: job is for the server; local/custom and local/privacy.json are for every client", markup=False)


def propose(
    spec: JsonFile,
    output: Annotated[Path, typer.Option("--output", help="Where the proposal is written.")] = Path("proposal.json"),
) -> None:
    """Write what all sites must agree to: SPEC is the JSON of a federated_zeta_dp_sgd spec with "transport": "flower" or "nvflare"."""
    with clear_errors():
        found = read_json(spec, FederatedZetaDpSgd)
        if found.federation is None:
            raise InvalidParameter("transport", "'flower' or 'nvflare', with a federation", found.transport)
        proposal = Proposal.of(found, found.plan())
        output.write_text(proposal.model_dump_json(indent=2) + "\n")
    out.print(f"{output}: proposal {proposal.digest}", markup=False)
