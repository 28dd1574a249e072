"""Which loops were compiled when the package was installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def compiled(name: str, loops: tuple[str, ...]) -> Any:
    """The C module of this name; None if there was no compiler, or if it is of an earlier version, which lacks a loop."""
    try:
        found = import_module(name)
    except ImportError:
        return None
    return found if all(hasattr(found, loop) for loop in loops) else None
