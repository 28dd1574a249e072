r"""Networks, each built by a short function from the value that describes it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.models.complex_mlp import ComplexMlpNetwork, build

__all__ = ["ComplexMlpNetwork", "build"]


def __getattr__(name: str) -> object:
    # The API imports the specs beside this file and never builds a network: torch is loaded with the first name asked for.
    if name in __all__:
        return getattr(import_module("trainer.models.complex_mlp"), name)
    raise AttributeError(name)
