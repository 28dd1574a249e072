r"""Flower's own processes, in an environment beside ours: which one, how it is made, and how SuperLink, relay and nodes are started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.parent import PR_SET_PDEATHSIG
from zetadp.trainer.sites.frames import LOOK_SECONDS
from zetadp.trainer.sites.settings import CoordinatorSettings, SiteSettings

FOLDER: Final = Path(__file__).parent / "flower"
REQUIREMENTS: Final = FOLDER / "requirements.txt"
START_SECONDS: Final = 120.0

_WITH_PARENT: Final = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, 9)
sys.exit(4) if os.getppid() != int(sys.argv[1]) else os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes the program that its arguments name, and dies with the process that started it."""

_PROJECT: Final = """\
[project]
name = "zetadp-relay"
version = "1.0.0"
description = "Passes messages between a coordinator and its sites"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "zetadp"

[tool.flwr.app.components]
serverapp = "zetadp_relay.relay:app"
clientapp = "zetadp_relay.relay:app"

[tool.flwr.app.config]
socket = ""
"""


def version() -> str:
    """The version of Flower that is used, as ``requirements.txt`` pins it."""
    line = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("flwr=="))
    return line.removeprefix("flwr==")


def default_folder() -> Path:
    """Where ``zetadp federation flower`` makes the environment."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "zetadp" / f"flower-{version()}"


def make_environment(folder: Path) -> None:
    """Makes Flower's environment: its libraries are pinned to versions that ours can't be. Raises OSError, CalledProcessError."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)  # noqa: S603 (our own command line)


def program(folder: Path | None, name: str) -> str:
    """A program of the environment. Raises InvalidParameter if there is no environment."""
    found = (default_folder() if folder is None else folder) / "bin" / name
    if not found.exists():
        raise InvalidParameter(
            "flower", "the folder of Flower's environment: `zetadp federation flower` makes it", str(found.parent.parent)
        )
    return str(found)


def start_node(settings: SiteSettings, socket: Path, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """The process that connects a site; it ends with its standard input."""
    options = ["--insecure"] if settings.insecure else []
    for name, path in (("--root-certificates", settings.root_certificate), ("--node-key", settings.node_key)):
        options += [] if path is None else [name, str(path)]
    assert settings.superlink is not None  # whoever starts it has looked
    command = [program(settings.flower, "python"), str(FOLDER / "node.py"), settings.superlink, str(socket), *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=_environment(settings.flower, settings.state))  # noqa: S603


def start_superlink(settings: CoordinatorSettings, folder: Path) -> subprocess.Popen[bytes]:
    r"""Flower's server, which dies with this process, and its relay's run.

    Args:
      folder: for Flower's own files and the log.
    Raises:
      InvalidParameter: Flower isn't installed, or its server doesn't start; its log says why.
      OSError: a file can't be written.
    """
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    assert settings.listen is not None  # whoever starts it has looked
    host, port = settings.listen.rsplit(":", 1)
    options = ["--insecure"]
    if settings.certificate is not None:
        options = ["--ssl-certfile", str(settings.certificate), "--ssl-keyfile", str(settings.certificate_key)]
        options += ["--ssl-ca-certfile", str(settings.root_certificate)]
    if settings.node_keys is not None:
        options.append("--enable-supernode-auth")
    command = [program(settings.flower, "python"), str(FOLDER / "superlink.py"), "--host", host, "--port", port, *options]
    command.append("--disable-runtime-dependency-installation")
    with (folder / "superlink.log").open("ab") as log:
        whole = [sys.executable, "-c", _WITH_PARENT, str(os.getpid()), *command]
        environment = _environment(settings.flower, folder)
        return subprocess.Popen(whole, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)  # noqa: S603 (our own command line)


def submit_relay(
    settings: CoordinatorSettings, folder: Path, socket: Path, superlink: subprocess.Popen[bytes], waited: Callable[[], None]
) -> None:
    r"""Has the server run the relay, which connects to ``socket``.

    Args:
      waited: called again and again while the server starts; what it raises ends the waiting.
    Raises:
      InvalidParameter: the server ended, or takes no run within two minutes.
    """
    app = folder / "app"
    (app / "zetadp_relay").mkdir(parents=True)
    (app / "pyproject.toml").write_text(_PROJECT)
    (app / "zetadp_relay" / "__init__.py").write_text('"""Relay."""\n')
    for name in ("relay.py", "bundles.py"):
        shutil.copyfile(FOLDER / name, app / "zetadp_relay" / name)
    assert settings.listen is not None  # whoever starts it has looked
    port = settings.listen.rsplit(":", 1)[1]
    trusted = "insecure = true" if settings.insecure else f'root-certificates = "{settings.root_certificate}"'
    (folder / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\n{trusted}\n')
    for key in sorted(settings.node_keys.iterdir()) if settings.node_keys is not None else ():
        _flwr(settings, folder, ["supernode", "register", str(key), "here"], superlink, waited)
    _flwr(settings, folder, ["run", str(app), "here", "--run-config", f'socket="{socket}"'], superlink, waited)


def _flwr(
    settings: CoordinatorSettings,
    folder: Path,
    arguments: Sequence[str],
    superlink: subprocess.Popen[bytes],
    waited: Callable[[], None],
) -> None:
    """Runs Flower's command until the server has taken it."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with (folder / "flwr.log").open("ab") as log:
            command = [program(settings.flower, "flwr"), *arguments]
            found = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(settings.flower, folder))  # noqa: S603
        while (code := found.poll()) is None:
            time.sleep(LOOK_SECONDS)
            try:
                waited()
            except BaseException:
                found.kill()
                found.wait()
                raise
        if code == 0:
            return
        if superlink.poll() is not None or time.monotonic() > deadline:
            last = (folder / ("flwr.log" if superlink.poll() is None else "superlink.log")).read_text(errors="replace").strip()[-500:]
            raise InvalidParameter("federation.listen", "an address where Flower's server starts", last)


def _environment(flower: Path | None, home: Path) -> dict[str, str]:
    """For Flower's processes: nothing of ours, no message to its makers, its files in a folder of its own, and its programs first."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("ZETADP_", "PYTHON", "VIRTUAL_ENV"))}
    home.mkdir(parents=True, exist_ok=True)
    found["PATH"] = f"{Path(program(flower, 'python')).parent}{os.pathsep}{found.get('PATH', os.defpath)}"
    return found | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
    }
