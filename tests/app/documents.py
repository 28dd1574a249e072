"""What the README and the handbook's pages hold: their links, headings and lines to type, read as a shell reads them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from zetadp.app.cli import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [README, *PAGES]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

BUILDING = (
    "import socket, runpy, sys; socket.socket.connect = None; sys.argv[0] = 'mkdocs'; runpy.run_module('mkdocs', run_name='__main__')"
)
"""MkDocs in a process that can't connect to anything."""

RECORDER = """#!{python} -IS
import json, sys
sys.stdin.read()
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv) + "\\n")
print("{{}}" if sys.argv[0].endswith("curl") else "ID")
"""
"""Stands in a shell's path for a program: it notes what it was called with, as the shell understood it."""
RECORDED = ("zetadp", "python", "python3", "pip", "curl", "make", "docker", "kubectl", "helm", "openssl", "model_signing")


@final
@dataclass(frozen=True)
class Call:
    """A program that a page's lines call, and its arguments."""

    program: str
    arguments: tuple[str, ...]


def build(folder: Path) -> None:
    """The handbook, as `make docs` builds it, in that folder."""
    done = building(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr


def building(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What MkDocs says and ends with."""
    command = [sys.executable, "-c", BUILDING, "build", "--config-file", str(configuration), "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def blocks(path: Path, language: str) -> list[str]:
    """The fenced code of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def calls(path: Path, folder: Path) -> list[Call]:
    """Every call in the page's shell blocks."""
    return typed([*blocks(path, "sh"), *blocks(path, "console")], folder)


def typed(lines: list[str], folder: Path) -> list[Call]:
    """Every call in these lines. A shell types them; only the programs are others."""
    noted = folder / "calls"
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in RECORDED:
        (programs / name).write_text(RECORDER.format(python=sys.executable, calls=str(noted)))
        (programs / name).chmod(0o700)
    script = "\n".join(["set -euo pipefail", *lines])
    environment = {**os.environ, "ZETADP_KEY": "zdp_...", "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = noted.read_text().splitlines() if noted.exists() else []
    called = [json.loads(line) for line in lines]
    return [Call(Path(program).name, tuple(arguments)) for program, *arguments in called]


def commands(path: Path) -> list[list[str]]:
    """Arguments of each ``zetadp`` that the page's sentences name; ``a|b`` and ``[--option]`` are all of them."""
    found: list[list[str]] = []
    for text in re.findall(r"`zetadp ([^`]+)`", path.read_text(encoding="utf-8")):
        words = re.sub(r"[\[\]]", "", text.partition(" | ")[0]).split()
        choices = [word.split("|") for word in words]
        longest = max(map(len, choices))
        found += [[one[min(index, len(one) - 1)] for one in choices] for index in range(longest)]
    return found


def understand(arguments: list[str], *, whole: bool = True) -> None:
    """Fails unless the command line has such a command and such options; ``whole``: and nothing that it needs is missing."""
    import typer.main

    command: Any = typer.main.get_command(app)
    names, rest = ["zetadp"], list(arguments)
    while hasattr(command, "resolve_command") and rest and not rest[0].startswith("-"):
        name, command, rest = command.resolve_command(command.context_class(command), rest)
        names.append(name)
    if rest == ["--help"] or not (rest or whole):
        return
    try:
        command.make_context(" ".join(names), rest)
    except Exception as refused:
        if whole or type(refused).__name__ != "MissingParameter":
            raise


def extras(arguments: Sequence[str]) -> set[str]:
    """Extras of this project that ``pip install`` is asked for: a page names one with the project, as pip wants it."""
    install, *packages = arguments
    assert install == "install", arguments
    named = [re.fullmatch(r"zetadp\[([a-z0-9,-]+)\]", package) for package in packages]
    return {extra for one in named if one is not None for extra in one[1].split(",")}


def anchors(path: Path) -> set[str]:
    """Names that links to the page's headings have."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def links(path: Path) -> list[tuple[str, str]]:
    """(target, heading) of every link and picture that is no address elsewhere."""
    text = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text)
    return [(target, heading) for target, heading in found if not re.match(r"[a-z]+:", target)]
