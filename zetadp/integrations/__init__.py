r"""Bridges to other people's software. Each is imported by its own name, and needs that software only then.

``opacus_history`` and ``model_card`` need nothing else.
"""

from __future__ import annotations


def missing(package: str, extra: str) -> ImportError:
    """The error for a package that isn't installed, with the line that installs it."""
    return ImportError(f"this needs {package}, which isn't installed: pip install 'zetadp[{extra}]'", name=package)


__all__ = ["missing"]
