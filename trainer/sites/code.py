r"""The digest of the source that decides what a site draws and what it costs; not of what was compiled of it, nor of the libraries."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("zetadp.accountants", "zetadp.mechanisms", "zetadp.trainer")
SUFFIXES = (".py", ".c", ".h")


@cache
def code_digest() -> str:
    """SHA-256 of the paths and contents of all source files below ``PACKAGES``, in the order of their paths."""
    whole = hashlib.sha256()
    for name in PACKAGES:
        found = find_spec(name)
        for folder in (found.submodule_search_locations or ()) if found is not None else ():
            files = (path for path in Path(folder).rglob("*") if path.suffix in SUFFIXES)
            for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
                inside = f"{name}/{path.relative_to(folder).as_posix()}"
                whole.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {inside}\n".encode())
    return whole.hexdigest()
