r"""Watches the noise of a run: what came out of the mechanism less what went in, number by number. Nothing but a verdict leaves it."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from mechanisms import ComplexGaussian, Gaussian, Laplace, LocalGaussian, LocalLaplace
from mechanisms.noise_test import NoiseSums, NumberNoise, has_claimed_scale
from trainer.audit import NoiseFindings, Status
from trainer.engine.team import Team


@final
class NoiseWatch:
    """Sums over the noise of this attempt's releases; they lie in no checkpoint, since beside a release they would tell of its data."""

    def __init__(self, mechanism: NumberNoise) -> None:
        self._mechanism = mechanism
        self._sums = NoiseSums(0, 0.0)

    def findings(self, team: Team, device: torch.device) -> NoiseFindings:
        """Of all processes of the team; each has looked at its own share of the noise."""
        own = torch.tensor([float(self.numbers), 0.0 if self.is_as_claimed else 1.0], dtype=torch.float64, device=device)
        numbers, violations = team.sum(own).tolist()
        status: Status = "violated" if violations else "consistent" if numbers else "not run"
        return NoiseFindings(status=status, numbers=int(numbers))

    @property
    def numbers(self) -> int:
        """Noisy numbers seen, a complex one as two."""
        return self._sums.count * (2 if isinstance(self._mechanism, ComplexGaussian) else 1)

    @property
    def is_as_claimed(self) -> bool:
        """Whether what was seen has the mechanism's scale, see ``has_claimed_scale``."""
        return has_claimed_scale(self._mechanism, self._sums)

    def see(self, vector: Tensor, released: Tensor) -> None:
        """Reals of any shape before and after their release; complex noise sits on pairs of neighbours of a vector."""
        noise = (released - vector).reshape(-1)
        sums = self._sums
        match self._mechanism:
            case ComplexGaussian():
                pairs = noise[: len(noise) // 2 * 2].reshape(-1, 2).T
                gram = (pairs @ pairs.T).tolist()
                self._sums = NoiseSums(
                    sums.count + pairs.shape[1], sums.real + gram[0][0], sums.imaginary + gram[1][1], sums.product + gram[0][1]
                )
            case Gaussian() | LocalGaussian():
                self._sums = NoiseSums(sums.count + len(noise), sums.real + torch.dot(noise, noise).item())
            case Laplace() | LocalLaplace():
                self._sums = NoiseSums(sums.count + len(noise), sums.real + noise.abs().sum().item())
