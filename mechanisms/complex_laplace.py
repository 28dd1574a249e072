r"""Laplace noise on complex vectors: the real mechanism on their real and imaginary parts."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from zetadp.mechanisms.base import Assumption, Facts, Step, size_of, with_laplace_noise
from zetadp.mechanisms.laplace import LaplaceNoise
from zetadp.mechanisms.sampling.source import Array, NoiseSource


@final
class ComplexLaplace(LaplaceNoise):
    r"""Adds independent Laplace noise to real and imaginary part of every coordinate: (l1 / scale, 0)-DP, exactly.

    l1 is the largest sum over all coordinates of \|Re d\| + \|Im d\| for a move d. Where other bounds are known, l1 is at most sqrt(2)
    times the sum of the moduli \|d_k\|, and at most sqrt(2 n) times the l2 norm of n coordinates. The noise isn't circular: e^{-\|z\| / b}
    would be, with three quarters of the variance where only the moduli are bounded (proofs/complex_laplace.md); it isn't drawn here.

    Attributes:
      scale: b of each real component, in units of the query; its standard deviation is sqrt(2) b, and E\|n\|^2 of a coordinate 4 b^2.
      sensitivity: with l1 over all real components.
    Raises:
      ValidationError: sensitivity without l1, or with l2_real or l2_imag.
    Assumes: the value moves by no more than the sensitivity as the machine computes it (for the rest see proofs/grid_noise.md).
    Sources: Dwork, McSherry, Nissim and Smith 2006; errata Z21. Proof: proofs/complex_laplace.md.

    >>> from zetadp.mechanisms import Sensitivity
    >>> ComplexLaplace(scale=2.0, sensitivity=Sensitivity(l1=1.0, adjacency="add_remove", unit="record")).privacy_loss().pure_epsilon
    0.5
    """

    FACTS: ClassVar[Facts] = Facts(
        summary="Independent Laplace noise on real and imaginary part of every coordinate of a complex vector.",
        assumptions=(Assumption.SENSITIVITY_AS_COMPUTED, Assumption.INDEPENDENT_NOISE),
        sources=("Dwork, McSherry, Nissim and Smith 2006, Proposition 1", "Hardt and Talwar 2010, arXiv:0907.3754 (K-norm mechanism)"),
        errata=("Z21", "S8"),
        proof="complex_laplace.md",
    )

    kind: Literal["complex_laplace"] = "complex_laplace"

    @property
    def is_complex(self) -> bool:
        return True

    def noise(self, shape: tuple[int, ...], source: NoiseSource[Array]) -> Array:
        # Real pairs, as for complex Gaussian noise.
        real, imaginary = source.standard_laplace(shape), source.standard_laplace(shape)
        return real * self.scale + imaginary * (1j * self.scale)

    def release(self, value: Array, source: NoiseSource[Array]) -> Array:
        self.check_kind(value, source)
        pairs = source.pairs(value)
        return source.complex(with_laplace_noise(self.scale, self.contracted_to(size_of(pairs)), pairs, source))

    def derivation(self) -> tuple[Step, ...]:
        return (
            Step(symbol="l1", value=self.sensitivity.stated_l1, formula="given", source="sensitivity.l1, of all real components"),
            Step(symbol="b", value=self.scale, formula="given", source="Laplace scale of each real component"),
            Step(
                symbol="epsilon_0",
                value=self.privacy_loss().epsilon,
                formula="l1 / b, rounded up",
                source="Dwork, McSherry, Nissim and Smith 2006; proofs/complex_laplace.md",
            ),
        )
