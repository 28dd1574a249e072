r"""Guarantees that others state of what they ran: epsilon-DP, (epsilon, delta)-DP, zCDP, GDP and a bounded range."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self, final

from pydantic import AfterValidator

from zetadp.mechanisms.base import SMALLEST_SCALE, Adjacency, Assumption, Facts, NonNegative, OpenProbability, Positive
from zetadp.mechanisms.declared.base import Guarantee
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.loss import ConcentratedLoss, FailingLoss, GaussianLoss, RangeLoss, ResponseLoss


def _zero_or_positive(value: float) -> float:
    if 0.0 < value < SMALLEST_SCALE:
        raise InvalidParameter("epsilon", f"0 or >= {SMALLEST_SCALE!r}", value)
    return value


_PROOF = "declared.md"


@final
class PureGuarantee(Guarantee):
    r"""epsilon-DP: P(S) <= e^epsilon Q(S) for every event S. Randomized response at epsilon is the worst there is.

    Attributes:
      epsilon: in [1e-50, 1e50].
    Sources: Kairouz, Oh and Viswanath 2015, Theorem 3.4. Proof: proofs/declared.md.

    >>> PureGuarantee(epsilon=0.5, adjacency="add_remove", unit="record").privacy_loss().pure_epsilon
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="A release that is epsilon-DP, whatever it was.",
        assumptions=(Assumption.AS_DECLARED,),
        sources=("Kairouz, Oh and Viswanath 2015, arXiv:1311.0776, Theorem 3.4",),
        errata=(),
        proof=_PROOF,
    )

    CAN_BE_SAMPLED: ClassVar[bool] = True

    kind: Literal["pure_dp"] = "pure_dp"
    epsilon: Positive

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=0.5, adjacency=Adjacency.ADD_REMOVE, unit="record")

    def privacy_loss(self) -> ResponseLoss:
        return ResponseLoss(self.epsilon)


@final
class ApproximateGuarantee(Guarantee):
    r"""(epsilon, delta)-DP: P(S) <= e^epsilon Q(S) + delta for every event S.

    The worst there is shows everything with probability delta, and is randomized response at epsilon otherwise.

    Attributes:
      epsilon: 0, or in [1e-50, 1e50].
      delta: in (0, 1).
    Sources: Kairouz, Oh and Viswanath 2015, Theorem 3.4; Murtagh and Vadhan 2018, Lemma 3.2. Proof: proofs/declared.md.

    >>> ApproximateGuarantee(epsilon=0.5, delta=1e-6, adjacency="add_remove", unit="record").privacy_loss().pure_epsilon is None
    True
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="A release that is (epsilon, delta)-DP, whatever it was.",
        assumptions=(Assumption.AS_DECLARED,),
        sources=(
            "Kairouz, Oh and Viswanath 2015, arXiv:1311.0776, Theorem 3.4",
            "Murtagh and Vadhan 2018, arXiv:1507.03113, Lemma 3.2",
        ),
        errata=(),
        proof=_PROOF,
    )

    kind: Literal["approximate_dp"] = "approximate_dp"
    epsilon: Annotated[NonNegative, AfterValidator(_zero_or_positive)]
    delta: OpenProbability

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=0.5, delta=1e-6, adjacency=Adjacency.ADD_REMOVE, unit="record")

    def privacy_loss(self) -> FailingLoss:
        return FailingLoss(self.epsilon, self.delta)


@final
class ZcdpGuarantee(Guarantee):
    r"""rho-zCDP: Renyi divergences of at most order rho at every order > 1, in both directions.

    Attributes:
      rho: in [1e-50, 1e50].
    Sources: Bun and Steinke 2016. Proof: proofs/declared.md.

    >>> ZcdpGuarantee(rho=0.5, adjacency="add_remove", unit="record").privacy_loss().renyi(2.0)
    1.0
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="A release that is rho-zCDP, whatever it was.",
        assumptions=(Assumption.AS_DECLARED,),
        sources=("Bun and Steinke 2016, arXiv:1605.02065",),
        errata=(),
        proof=_PROOF,
    )

    kind: Literal["zcdp"] = "zcdp"
    rho: Positive

    @classmethod
    def example(cls) -> Self:
        return cls(rho=0.1, adjacency=Adjacency.ADD_REMOVE, unit="record")

    def privacy_loss(self) -> ConcentratedLoss:
        return ConcentratedLoss(self.rho)


@final
class GdpGuarantee(Guarantee):
    r"""mu-GDP: no test between neighbours beats the best one between N(0, 1) and N(mu, 1).

    Attributes:
      mu: in [1e-50, 1e50].
    Sources: Dong, Roth and Su 2022. Proof: proofs/declared.md.

    >>> GdpGuarantee(mu=0.5, adjacency="add_remove", unit="record").privacy_loss().gdp_mu
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="A release that is mu-GDP, whatever it was.",
        assumptions=(Assumption.AS_DECLARED,),
        sources=("Dong, Roth and Su 2022, arXiv:1905.02383",),
        errata=(),
        proof=_PROOF,
    )

    CAN_BE_SAMPLED: ClassVar[bool] = True

    kind: Literal["gdp"] = "gdp"
    mu: Positive

    @classmethod
    def example(cls) -> Self:
        return cls(mu=0.5, adjacency=Adjacency.ADD_REMOVE, unit="record")

    def privacy_loss(self) -> GaussianLoss:
        return GaussianLoss(self.mu)


@final
class RangeGuarantee(Guarantee):
    r"""An eta-bounded range: for any two neighbours all privacy losses lie in an interval of length eta.

    So it is eta-DP, and composes like a release of half that epsilon: eta^2 / 8-zCDP.

    Attributes:
      eta: in [1e-50, 1e50].
    Sources: Durfee and Rogers 2019; Dong, Durfee and Rogers 2020. Proof: proofs/declared.md.

    >>> RangeGuarantee(eta=0.5, adjacency="add_remove", unit="record").privacy_loss().pure_epsilon
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="A release whose privacy losses lie in an interval of length eta, such as the exponential mechanism.",
        assumptions=(Assumption.AS_DECLARED,),
        sources=("Durfee and Rogers 2019, arXiv:1905.04273", "Dong, Durfee and Rogers 2020, arXiv:1909.13830"),
        errata=(),
        proof=_PROOF,
    )

    CAN_BE_SAMPLED: ClassVar[bool] = True

    kind: Literal["bounded_range"] = "bounded_range"
    eta: Positive

    @classmethod
    def example(cls) -> Self:
        return cls(eta=0.5, adjacency=Adjacency.ADD_REMOVE, unit="record")

    def privacy_loss(self) -> RangeLoss:
        return RangeLoss(self.eta)
