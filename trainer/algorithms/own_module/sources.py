r"""The source files of the caller's program: what a certificate names of the code that a training ran beside ours."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import ModuleType

from zetadp.trainer.durable import write_atomically

OWN = "zetadp"
"""Our own code has a manifest of its own."""

INSTALLED = {"site-packages", "dist-packages"}
"""Folders of what is installed, of whatever environment."""

SECTIONS = (
    "# the module: the source of its classes and its structure, the source of loss, optimizer and schedule; dashes where there is none",
    "# every Python source file, outside Python and what is installed, that the program had loaded when an attempt began or ended",
    "# what is installed of which the classes and functions of the first part are",
)


def write_code_list(path: Path, code: str, modules: set[str]) -> None:
    r"""Writes the list of a run's code, with what earlier attempts found where it is there already.

    Args:
      code: the lines of its first section.
      modules: names of those that define what ``code`` is about.
    """
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    parts = (set(code.splitlines()), source_files(), distributions(modules))
    lines: list[str] = []
    for number, (title, found) in enumerate(zip(SECTIONS, parts, strict=True)):
        earlier = _section(before, title) if number else set[str]()
        lines += [title, *sorted(found | earlier)]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def _section(lines: list[str], title: str) -> set[str]:
    if title not in lines:
        return set()
    after = lines[lines.index(title) + 1 :]
    end = next((number for number, line in enumerate(after) if line.startswith("#")), len(after))
    return set(after[:end])


def source_files() -> set[str]:
    """A line for every module that the program has loaded from a source file of no installed package: the file's digest, and its name."""
    found: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != OWN and (path := _source(module)) is not None:
            found.add(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}")
    return found


def distributions(modules: set[str]) -> set[str]:
    """A line for every installed distribution that these modules belong to: its name and version."""
    found: set[str] = set()
    for module in modules:
        for name in _distributions().get(module.partition(".")[0], ()):
            try:
                found.add(f"{name}=={version(name)}")
            except PackageNotFoundError:
                continue
    return found


def _source(module: ModuleType | None) -> Path | None:
    """Its file, if it is source and outside the folders of Python and of what is installed."""
    given = getattr(module, "__file__", None)
    if not isinstance(given, str) or not given.endswith(".py"):
        return None
    folder = os.path.dirname(given)
    # Thousands of modules are in few folders; to resolve each one's path would take longer than a short training.
    if os.path.isabs(folder) and _is_installed(folder) and not os.path.islink(given):
        return None
    path = Path(given).resolve()
    return path if path.is_file() and not _is_installed(str(path.parent)) else None


@cache
def _is_installed(folder: str) -> bool:
    path = Path(folder).resolve()
    return bool(INSTALLED & set(path.parts)) or any(path.is_relative_to(of_python) for of_python in _python())


@cache
def _python() -> tuple[Path, ...]:
    return tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())
