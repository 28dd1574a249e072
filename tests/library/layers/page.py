"""The handbook's page of layers, ``docs/layers.md``: its text for what was found.

``python -m tests.library.layers.page PACKAGE ...`` writes it.

A package's part is replaced; the parts of others stay as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tests.library.layers.packages import PACKAGES
from tests.library.layers.torch_layers import CASES
from tests.library.layers.trying import TRAINS, Case, verdict

PAGE = Path(__file__).parents[3] / "docs" / "layers.md"
ALL: dict[str, Callable[[], dict[str, Case]]] = {"torch": lambda: CASES, **PACKAGES}


def imported(package: str) -> Any:
    """The package; torchvision also where it was built for other devices, whose operations nothing here calls."""
    if package in ("torchvision", "transformers"):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            with suppress(RuntimeError):  # it has them
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _libraries.append(library)
    return import_module(package)


_libraries: list[Any] = []
"""Kept: what a library defines goes with it."""


def part(package: str) -> str:
    """What is found for a package's layers, as its part of the page."""
    imported(package)
    found = {name: verdict(case) for name, case in ALL[package]().items()}
    trains = ", ".join(f"`{name}`" for name, words in sorted(found.items()) if words == TRAINS)
    refused = "\n".join(f"| `{name}` | {words.replace('|', '/')} |" for name, words in sorted(found.items()) if words != TRAINS)
    table = f"\n| refused | why |\n| --- | --- |\n{refused}\n" if refused else ""
    return f"## {package} {version(package).split('+')[0]}\n\nTrain: {trains}.\n{table}"


def documented(package: str) -> str:
    """The package's part of the page, as it is written; empty if there is none."""
    found = re.search(rf"^## {package} .*?(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return "" if found is None else found.group().strip() + "\n"


def main() -> None:
    """Writes the parts of the packages that are named."""
    for package in sys.argv[1:]:
        before, new, text = documented(package), part(package), PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text.replace(before.strip(), new.strip()) if before else f"{text.rstrip()}\n\n{new}", encoding="utf-8")


if __name__ == "__main__":
    main()
