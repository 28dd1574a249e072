"""What all that is only declared has in common: whose guarantee it is. Of a sample of it nothing is known, unless a class says so."""

from __future__ import annotations

from typing import ClassVar, Self, final

from zetadp.mechanisms.base import Accounted, Adjacency, PrivacyUnit, Step


class Declared(Accounted):
    """Something that others ran. The declaration is trusted: it must hold for every two neighbours, whatever was released before.

    Attributes:
      adjacency: which data sets are neighbours; no default.
      unit: what one unit is; no default.
    """

    CAN_BE_SAMPLED: ClassVar[bool] = False

    adjacency: Adjacency
    unit: PrivacyUnit

    @property
    @final
    def neighbours(self) -> tuple[Adjacency, PrivacyUnit]:
        return self.adjacency, self.unit

    def _with_scales(self, factor: float, *names: str) -> Self:
        """The same with these fields multiplied."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate(fields | {name: fields[name] * factor for name in names})


class Guarantee(Declared):
    """A bare guarantee: there is no noise that could be more."""

    @property
    @final
    def noise_scale(self) -> None:
        return None

    @final
    def scaled(self, factor: float) -> Self:
        del factor
        return self

    @final
    def derivation(self) -> tuple[Step, ...]:
        fields = type(self).model_fields.keys() - Declared.model_fields.keys() - {"kind"}
        return tuple(
            Step(symbol=name, value=getattr(self, name), formula="declared", source=self.kind_name())
            for name in sorted(fields, reverse=True)
        )
