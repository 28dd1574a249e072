r"""``rehearse``: a whole federation on one machine, of a recipe or a spec whose data are public, before hospitals take part in it."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, Final, final

import typer
from pydantic import TypeAdapter, ValidationError

from zetadp import accountants
from zetadp.app.cli.console import Exit, clear_errors, fail, out, read_json
from zetadp.app.kit.field_errors import field_errors, summary
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.numerics.rounding import text_up
from zetadp.process import child_command
from zetadp.trainer.data import data_set_facts
from zetadp.trainer.recipes import recipe
from zetadp.trainer.request import REQUEST, RESULT, TrainingRequest
from zetadp.trainer.sites.agreements import agree
from zetadp.trainer.sites.flower_processes import program
from zetadp.trainer.sites.frames import LOOK_SECONDS
from zetadp.trainer.sites.keys import load_key, make_key, public_text
from zetadp.trainer.sites.proposal import Proposal
from zetadp.trainer.sites.settings import SiteSettings, read_settings
from zetadp.trainer.specs.algorithms.federated import FederatedZetaDpSgd
from zetadp.trainer.specs.algorithms.federation import FEDERATION_VARIABLE, MOST_SITES
from zetadp.trainer.specs.base import RuntimeSpec
from zetadp.trainer.specs.report import Failed, RunReport, SitesStanding, Stage, TrainingEvent

BUDGET: Final = 100.0
"""Epsilon of each made-up site's ledger: rehearsals are about the rest."""
OWN: Final = ("table", "uploaded")
"""Kinds of data that people bring."""
COORDINATOR: Final = "coordinator"
SITES_LOG: Final = "sites.log"
END_SECONDS: Final = 180.0
_EVENTS: Final[TypeAdapter[TrainingEvent]] = TypeAdapter(TrainingEvent)


def rehearse(
    of: Annotated[str, typer.Argument(help="A recipe's name, or a JSON file with a federated_zeta_dp_sgd spec, of public data.")],
    sites: Annotated[int, typer.Option(min=2, max=MOST_SITES, help="Among how many sites the data are dealt.")] = 3,
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of the spec's.")] = None,
    output: Annotated[Path, typer.Option("--output", help="A new folder, for keys, settings, ledgers and files.")] = Path("rehearsal"),
    flower: Annotated[Path | None, typer.Option(help="The folder of Flower's environment; this user's if absent.")] = None,
) -> None:
    """Run a federation over Flower on this machine: keys, settings, agreements, a process for each site, and a coordinator."""
    with clear_errors():
        asked, folder = _asked(of), output.absolute()
        if folder.exists():
            raise InvalidParameter("output", "a folder that isn't there yet", str(output))
        _ = program(flower, "python")
        folder.mkdir(parents=True)
        try:
            proposal = _prepared(folder, asked, sites, rounds, flower)
        except BaseException:
            rmtree(folder)  # nothing was started: its keys are of no use, and the next try needs the folder's name
            raise
        out.print(f"{sites} sites and a coordinator in {output}", markup=False)
        commands = {site.name: _site_command(folder / f"{site.name}.yaml") for site in proposal.federation.sites}
        with _processes(commands, folder) as running:
            _coordinate(folder, proposal, running)
        _tell(folder, proposal)


def _asked(of: str) -> FederatedZetaDpSgd:
    found = recipe(of)
    spec = read_json(Path(of), FederatedZetaDpSgd) if found is None else found.spec
    if not isinstance(spec, FederatedZetaDpSgd):
        raise InvalidParameter("recipe", "one of federated_zeta_dp_sgd", spec.algorithm)
    if spec.data.kind in OWN:
        raise InvalidParameter("data", "a public data set: a rehearsal protects nobody", spec.data.kind)
    return spec


def _prepared(folder: Path, asked: FederatedZetaDpSgd, sites: int, rounds: int | None, flower: Path | None) -> Proposal:
    """Keys, settings and agreements in the folder, and what was agreed on."""
    names = [f"site-{number}" for number in range(1, sites + 1)]
    keys = {name: public_text(make_key(folder / name / "site.pem")) for name in names}
    spec = _dealt(asked, keys, public_text(make_key(folder / f"{COORDINATOR}.pem")), rounds)
    proposal = Proposal.of(spec, spec.plan())
    (folder / "proposal.json").write_text(proposal.model_dump_json(indent=2) + "\n")
    _write_settings(folder, proposal, flower)
    for name in names:
        settings = read_settings(SiteSettings, folder / f"{name}.yaml")
        agree(proposal, settings, load_key(settings.key_file))
    return proposal


def _dealt(spec: FederatedZetaDpSgd, keys: dict[str, str], coordinator: str, rounds: int | None) -> FederatedZetaDpSgd:
    """The spec with its data at so many sites."""
    changes: dict[str, Any] = {
        "nodes": len(keys),
        "transport": "flower",
        "federation": {
            "name": "rehearsal",
            "coordinator": coordinator,
            "sites": [{"name": name, "key": key} for name, key in keys.items()],
        },
        "declared_units": spec.units(data_set_facts(spec.data)),
        "audit": None,
    }
    try:
        return FederatedZetaDpSgd.model_validate(dict(spec) | changes | ({} if rounds is None else {"steps": rounds}))
    except ValidationError as invalid:
        fail(f"the data can't be dealt so: {summary(field_errors(invalid.errors(), None, 'spec'))}", Exit.USAGE)
        raise AssertionError from invalid  # fail() leaves


def _write_settings(folder: Path, proposal: Proposal, flower: Path | None) -> None:
    """JSON is YAML too."""
    address = f"127.0.0.1:{free_port()}"
    shared = {"insecure": True} | ({} if flower is None else {"flower": str(flower.absolute())})
    spec, names = proposal.spec, [site.name for site in proposal.federation.sites]
    budget = {"epsilon": BUDGET, "delta": spec.privacy.delta, "adjacency": spec.privacy.adjacency.value, "unit": spec.privacy.unit}
    _write(folder / f"{COORDINATOR}.yaml", {"key": f"{COORDINATOR}.pem", "listen": address, "first_seconds": 300.0, **shared})
    for number, site in enumerate(proposal.federation.sites):
        one = {
            "name": site.name,
            "superlink": address,
            "state": site.name,
            "data": spec.data.model_dump(mode="json"),
            "share": {"number": number, "sites": len(names), "seed": spec.distribution_seed},
            "sites": {other.name: other.key for other in proposal.federation.sites},
            "budget": budget,
            "allows_seeds": True,
        }
        _write(folder / f"{site.name}.yaml", one | shared)


def _write(path: Path, settings: dict[str, Any]) -> None:
    path.write_text(json.dumps(settings, indent=2) + "\n")


def free_port() -> int:
    """Where nothing listens on this machine now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _site_command(settings: Path) -> list[str]:
    return child_command("zetadp.trainer.site", str(settings))


@contextmanager
def _processes(commands: Mapping[str, list[str]], folder: Path) -> Generator[dict[str, subprocess.Popen[bytes]]]:
    """Run while the context is entered, by site; what they say goes into one log."""
    with (folder / SITES_LOG).open("ab") as log:
        found: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name, command in commands.items():
                found[name] = subprocess.Popen(command, stdout=log, stderr=log)
            yield found
        finally:
            for process in found.values():
                process.terminate()
            for process in found.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)
                process.kill()
                process.wait()


def _coordinate(folder: Path, proposal: Proposal, sites: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """The process that a service's worker would start, beside the processes of the sites."""
    work = folder / "run"
    work.mkdir()
    request = TrainingRequest(spec=proposal.spec, runtime=RuntimeSpec(device="cpu", threads=1), plan=proposal.plan)
    (work / REQUEST).write_text(request.model_dump_json())
    command = child_command("zetadp.trainer.child", str(work))
    environment = os.environ | {FEDERATION_VARIABLE: str(folder / f"{COORDINATOR}.yaml")}
    watch = _Watch(sites, folder / SITES_LOG)
    reason = f"its process ended; {folder / 'coordinator.log'} says why"
    with (
        (folder / "coordinator.log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment) as running,
    ):
        assert running.stdout is not None
        try:
            for line in _lines(running.stdout.fileno(), watch.look):
                event = _event(line)
                if isinstance(event, SitesStanding):
                    watch.begun()
                if isinstance(event, Failed):
                    reason = event.reason
                for text in _said(event):
                    out.print(text, markup=False)
            code = running.wait()
        finally:
            running.kill()
    if code:
        fail(f"the run failed: {reason}", Exit.FAILED)


@final
class _Watch:
    """Tells which site's process ended, once; in the first round, which waits long for all of them, that ends the rehearsal."""

    def __init__(self, sites: Mapping[str, subprocess.Popen[bytes]], log: Path) -> None:
        self._running, self._log = dict(sites), log
        self._is_first = True

    def begun(self) -> None:
        """The first round is over."""
        self._is_first = False

    def look(self) -> None:
        for name in [name for name, process in self._running.items() if process.poll() is not None]:
            told = f"the process of {name} ended with status {self._running.pop(name).returncode}; {self._log} says why"
            if self._is_first:
                fail(f"the run failed: {told}", Exit.FAILED)
            out.print(told, markup=False)


def _lines(source: int, look: Callable[[], None]) -> Iterator[bytes]:
    """Whole lines as they come, until the other end is closed; looks in between."""
    rest = b""
    while True:
        look()
        if not select.select([source], [], [], LOOK_SECONDS)[0]:
            continue
        if not (part := os.read(source, 2**16)):
            break
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _event(line: bytes) -> TrainingEvent:
    try:
        return _EVENTS.validate_json(line)
    except ValidationError as invalid:
        fail(f"the coordinator's process wrote what is no event: {line[:200].decode(errors='replace').strip()}", Exit.FAILED)
        raise AssertionError from invalid  # fail() leaves


def _said(event: TrainingEvent) -> Iterator[str]:
    if isinstance(event, Stage):
        yield event.doing
    elif isinstance(event, SitesStanding):
        missing = ", ".join(site.name for site in event.sites if not site.answered)
        yield f"round {event.round} of {event.rounds}: {'all sites answered' if not missing else f'without {missing}'}"


def _tell(folder: Path, proposal: Proposal) -> None:
    report = RunReport.model_validate_json((folder / "run" / RESULT).read_bytes())
    for site in report.sites:
        charged = "an unknown number" if site.charged is None else site.charged
        sent = f"{site.sent_bytes} bytes of integers"
        out.print(f"{site.name}: {site.arrived} of {proposal.plan.steps} rounds counted, {charged} charged, {sent}", markup=False)
    if report.metrics is not None:
        out.print(", ".join(f"{name} {value:.3f}" for name, value in report.metrics.items()), markup=False)
    privacy = proposal.spec.privacy
    if proposal.spec.reproducible:
        out.print("no guarantee: the noise follows from a seed", markup=False)
        return
    epsilon = text_up(accountants.profile(report.event).epsilon(privacy.delta).upper, 6)
    each = f"each {privacy.unit} ({privacy.adjacency.value})"
    out.print(
        f"for sites with keys of their own this would be epsilon {epsilon} at delta {privacy.delta:g} for {each} of each site", markup=False
    )
    out.print("here one user has all keys and data: a rehearsal protects nobody, and no certificate is made", markup=False)
