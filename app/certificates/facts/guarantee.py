r"""The guarantee of a certificate: (epsilon, delta)-DP with every figure that follows from the event, or none and why.

Every number here can be recomputed from the event alone; ``verification`` does so.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, final

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints, TypeAdapter, WithJsonSchema

from zetadp.app.certificates.facts.decimals import DecimalText
from zetadp.mechanisms.base import Value, is_absent

Words = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=4000)]


SEED_SENTENCE = "not private against someone who knows the seed"


@final
class DeltaPoint(Value):
    """The run is (epsilon, delta)-DP: ``epsilon`` exact, ``delta`` rounded up."""

    epsilon: DecimalText
    delta: DecimalText


@final
class RenyiPoint(Value):
    """The run has Renyi divergence of this order (exact) at most ``epsilon`` (rounded up)."""

    order: DecimalText
    epsilon: DecimalText


def _pair(kind: type[DeltaPoint] | type[RenyiPoint]) -> Any:
    """For a field of points that are JSON lists of two texts, in the order of the point's fields: they are many."""
    names = tuple(kind.model_fields)

    def read(given: object) -> object:
        if isinstance(given, kind):
            return given
        if not isinstance(given, list | tuple) or len(given) != len(names):
            raise ValueError(f"expected [{', '.join(names)}]")
        return kind.model_validate(dict(zip(names, given, strict=True)))

    def written(point: DeltaPoint | RenyiPoint) -> list[str]:
        return [getattr(point, name) for name in names]

    text = TypeAdapter(DecimalText).json_schema()
    items = [{**text, "title": name} for name in names]
    schema = {"type": "array", "prefixItems": items, "minItems": len(names), "maxItems": len(names), "items": False}
    return BeforeValidator(read), PlainSerializer(written), WithJsonSchema(schema)


_DeltaPair = Annotated[DeltaPoint, *_pair(DeltaPoint)]
_RenyiPair = Annotated[RenyiPoint, *_pair(RenyiPoint)]


@final
class ApproximateDp(Value):
    r"""(epsilon, delta)-differential privacy of the whole run, both figures as certified.

    Attributes:
      epsilon: the certified figure: the upper end of the bracket, rounded up.
      delta: at which it holds; exact.
      pure_epsilon: the run is (pure_epsilon, 0)-DP as well, rounded up; absent where it is for no finite epsilon, or something is sampled.
      epsilon_lower: the lower end of the bracket, rounded down: the true epsilon of this event lies between.
      route: how the upper end was found; it begins with the name of the accountant.
      delta_curve: other (epsilon, delta) pairs that hold at the same time, by rising epsilon; in JSON ``["0.5", "1e-06"]``.
      renyi: upper bounds on the Renyi divergence at some orders, in JSON ``[order, bound]``; absent where no accountant has them.
      gdp_mu: the run is mu-GDP for this mu, rounded up; absent where it isn't Gaussian DP exactly.
      epsilon_without_sampling: at the same delta for the same releases on all of the data, rounded up: what amplification by sampling is
        worth. Absent where nothing is sampled, where samples have a fixed size, or where no finite bound was found.
    """

    kind: Literal["approximate_dp"] = "approximate_dp"
    epsilon: DecimalText
    delta: DecimalText
    pure_epsilon: Annotated[DecimalText | None, Field(exclude_if=is_absent)] = None
    epsilon_lower: DecimalText
    route: Words
    delta_curve: Annotated[tuple[_DeltaPair, ...], Field(min_length=1, max_length=100)]
    renyi: Annotated[tuple[_RenyiPair, ...] | None, Field(min_length=1, max_length=100, exclude_if=is_absent)] = None
    gdp_mu: Annotated[DecimalText | None, Field(exclude_if=is_absent)] = None
    epsilon_without_sampling: Annotated[DecimalText | None, Field(exclude_if=is_absent)] = None

    @property
    def accountant(self) -> str:
        """The registry's name of the accountant that the upper end comes from: ``pld`` of ``pld(interval=0.0001)``.

        Of a selection's route, ``selected(contour)``, that of a single run's profile.
        """
        return self.route.removeprefix("selected(").partition("(")[0].rstrip(")")


@final
class NoGuarantee(Value):
    r"""Nothing is certified.

    Attributes:
      reason: why.
      if_seed_stays_secret: for a run whose randomness came from a user's seed: what the same event guarantees with noise keyed by the
        operating system. It isn't a guarantee of this run, since a seed can be known or guessed; absent for every other reason.
    """

    kind: Literal["none"] = "none"
    reason: Words
    if_seed_stays_secret: Annotated[ApproximateDp | None, Field(exclude_if=is_absent)] = None


Guarantee = Annotated[ApproximateDp | NoGuarantee, Field(discriminator="kind")]


def figures(guarantee: ApproximateDp | NoGuarantee) -> ApproximateDp | None:
    """The figures to recompute, whether they are certified or hypothetical."""
    return guarantee if isinstance(guarantee, ApproximateDp) else guarantee.if_seed_stays_secret
