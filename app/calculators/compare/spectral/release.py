r"""Spectral-DP's statements on one filtered release, next to what is proven."""

from __future__ import annotations

from typing import final

from fastapi import APIRouter

from zetadp.app.calculators.compare.finding import Finding
from zetadp.app.calculators.compare.spectral import noise as spectral_noise
from zetadp.app.calculators.compare.spectral import privacy as spectral_privacy
from zetadp.app.calculators.compare.spectral import signal as spectral_signal
from zetadp.app.calculators.compare.spectral.request import SpectralComparison
from zetadp.mechanisms.analysis.signal_energy import SignalNorms
from zetadp.mechanisms.analysis.spectral_noise import real_noise_variance
from zetadp.mechanisms.base import Extended, Value
from zetadp.mechanisms.numerics.spectrum import LowPass, filtering_ratio


@final
class FilterFacts(Value):
    r"""The filter.

    Attributes:
      shape, kept: N and K of each axis.
      filtering_ratio: 1 - K / N for each axis.
      dimensions: prod N.
      kept_per_axis, kept_dimensions: min(2 K - 1, N) for each axis, and their product: the real dimensions that pass.
      variance_ratio: kept_dimensions / dimensions.
      literal_mask_bins: prod K, what the mask index < K keeps.
      literal_mask_variance_ratio: for that mask and the real part, on Hermitian noise.
      literal_mask_smallest_amplitude: what they leave of the least favoured kept frequency.
    """

    shape: tuple[int, ...]
    kept: tuple[int, ...]
    filtering_ratio: tuple[float, ...]
    dimensions: int
    kept_per_axis: tuple[int, ...]
    kept_dimensions: int
    variance_ratio: float
    literal_mask_bins: int
    literal_mask_variance_ratio: float
    literal_mask_smallest_amplitude: float


@final
class PositionVariance(Value):
    """Variances of the real-noise version at one position, in units of the query squared: of Re v and of Im v."""

    position: tuple[int, ...]
    real: float
    imaginary: float


@final
class NoiseFacts(Value):
    r"""The sound noise: white, sigma S on each real coordinate kept.

    Attributes:
      std: sigma S.
      gdp_mu: of a sum of terms clipped to S under add_remove: 1 / sigma.
      gdp_mu_of_a_clipped_query, gdp_mu_under_replacement: 2 / sigma, when the sensitivity is 2 S.
      energy: expected squared norm of the noise after the filter, std^2 kept_dimensions.
      energy_before: std^2 dimensions.
      variance: at each position after the filter.
      real_noise: variances of the version with real noise on complex bins, which protects nothing.
    """

    std: float
    gdp_mu: float
    gdp_mu_of_a_clipped_query: float
    gdp_mu_under_replacement: float
    energy: Extended
    energy_before: Extended
    variance: Extended
    real_noise: tuple[PositionVariance, ...]


@final
class SignalFacts(Value):
    r"""The signal that was sent.

    Attributes:
      norm, kept_norm: l2 norms before and after the filter.
      kept_energy_fraction: (kept_norm / norm)^2; null for a signal of zeros.
      clipped_then_filtered, filtered_then_clipped: norms that each order leaves.
      expected_squared_error: of filter, clip and noise against the signal itself: what the filter loses, what clipping takes, the noise.
    """

    norm: float
    kept_norm: float
    kept_energy_fraction: float | None
    clipped_then_filtered: float
    filtered_then_clipped: float
    expected_squared_error: Extended


@final
class SpectralAnswer(Value):
    """What holds for this filter, noise and signal, next to each of the paper's statements."""

    filter: FilterFacts
    noise: NoiseFacts
    signal: SignalFacts | None
    published: tuple[Finding, ...]


router = APIRouter()


@router.post("/spectral", summary="Compare Spectral-DP's statements on one release with what is proved")
def compare_spectral(request: SpectralComparison) -> SpectralAnswer:
    """What the filter keeps, what the noise protects under each reading, and the paper's statements next to both."""
    low_pass = request.low_pass
    norms = request.norms_under(low_pass)
    return SpectralAnswer(
        filter=_filter(low_pass),
        noise=_noise(request, low_pass),
        signal=None if norms is None else _signal(request, low_pass, norms),
        published=(
            *spectral_noise.findings(request, low_pass),
            *spectral_privacy.findings(request, low_pass),
            *spectral_signal.findings(request, low_pass, norms),
        ),
    )


def _filter(low_pass: LowPass) -> FilterFacts:
    pairs = zip(low_pass.shape, low_pass.kept, strict=True)
    return FilterFacts(
        shape=low_pass.shape,
        kept=low_pass.kept,
        filtering_ratio=tuple(filtering_ratio(length, kept) for length, kept in pairs),
        dimensions=low_pass.dimensions,
        kept_per_axis=low_pass.kept_per_axis,
        kept_dimensions=low_pass.kept_dimensions,
        variance_ratio=low_pass.variance_ratio,
        literal_mask_bins=low_pass.one_sided_bins,
        literal_mask_variance_ratio=low_pass.one_sided_variance_ratio,
        literal_mask_smallest_amplitude=low_pass.smallest_one_sided_amplitude,
    )


def _noise(request: SpectralComparison, low_pass: LowPass) -> NoiseFacts:
    variance, mu = request.noise_std**2, 1.0 / request.sigma
    total = low_pass.one_sided_bins / low_pass.dimensions
    real = [(position, real_noise_variance(low_pass, position)) for position in request.chosen_positions]
    return NoiseFacts(
        std=request.noise_std,
        gdp_mu=mu,
        gdp_mu_of_a_clipped_query=2.0 * mu,
        gdp_mu_under_replacement=2.0 * mu,
        energy=variance * low_pass.kept_dimensions,
        energy_before=variance * low_pass.dimensions,
        variance=variance * low_pass.variance_ratio,
        real_noise=tuple(
            PositionVariance(position=at, real=variance * share, imaginary=variance * max(0.0, total - share)) for at, share in real
        ),
    )


def _signal(request: SpectralComparison, low_pass: LowPass, norms: SignalNorms) -> SignalFacts:
    left = norms.projected_then_clipped(request.clip)
    lost = (norms.whole - norms.kept) * (norms.whole + norms.kept) + (norms.kept - left) ** 2
    return SignalFacts(
        norm=norms.whole,
        kept_norm=norms.kept,
        kept_energy_fraction=norms.kept_energy_fraction,
        clipped_then_filtered=norms.clipped_then_projected(request.clip),
        filtered_then_clipped=left,
        expected_squared_error=lost + request.noise_std**2 * low_pass.kept_dimensions,
    )
