r"""Copies of a record that share its one clipped gradient. Free of torch."""

from __future__ import annotations

from typing import Annotated, Self, final

from pydantic import Field, Strict, model_validator

from zetadp.mechanisms.base import Value
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.data import DataSetFacts


@final
class Augmentation(Value):
    r"""In every step each sampled record is there as ``copies`` random variants, whose mean gradient is clipped once.

    The variants are functions of their own record and of randomness that nobody knows, so one record still moves the sum by at most the
    bound, and the guarantee is the same with any number of copies (De, Berrada, Hayes, Smith and Balle 2022, arXiv:2204.13650, section
    3.2, augmentation multiplicity). A step takes as many times longer. Records are images, (channels, height, width).

    Attributes:
      copies: of each record.
      shift: each variant is moved by up to so many pixels along both axes, what is missing filled by reflection.
      flip: half of the variants are mirrored, left to right.
      phase: each variant is multiplied by a random number of modulus 1; of complex records.
    Raises:
      InvalidParameter: no two variants would differ.
    """

    copies: Annotated[int, Strict(), Field(ge=2, le=64)]
    shift: Annotated[int, Strict(), Field(ge=0, le=1000)] = 0
    flip: Annotated[bool, Strict()] = False
    phase: Annotated[bool, Strict()] = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.shift or self.flip or self.phase):
            raise InvalidParameter("augmentation", "with a shift, a flip or a phase: the copies wouldn't differ", "none of them")
        return self

    def check(self, facts: DataSetFacts) -> None:
        """Raises InvalidParameter if the records have no such variants."""
        if facts.task != "classification":
            raise InvalidParameter("augmentation", "absent for a reconstruction: its targets would have to move as well", facts.task)
        if (self.shift or self.flip) and len(facts.shape) != 3:
            raise InvalidParameter("augmentation", "of images (channels, height, width) where it shifts or flips", facts.shape)
        if self.shift and self.shift >= min(facts.shape[1:]):
            raise InvalidParameter("augmentation.shift", f"< {min(facts.shape[1:])}, the shorter side", self.shift)
        if self.phase and not facts.is_complex:
            raise InvalidParameter("augmentation.phase", "false for real records", self.phase)
