r"""Networks, each built by a short function from the value that describes it."""

from __future__ import annotations

from trainer.models.complex_mlp import ComplexMlpNetwork, build

__all__ = ["ComplexMlpNetwork", "build"]
