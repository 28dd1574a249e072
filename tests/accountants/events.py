"""Events that the accountants' tests share."""

from __future__ import annotations

from zetadp.accountants import FixedSizeSampled, PoissonSampled, Release, Repeated
from zetadp.mechanisms import ComplexGaussian, Gaussian, Laplace, Sensitivity


def sensitivity(adjacency="add_remove", unit="record"):
    return Sensitivity(l2=1.0, l1=1.0, adjacency=adjacency, unit=unit)


def gaussian(std=1.0, **neighbours):
    return Release(mechanism=Gaussian(std=std, sensitivity=sensitivity(**neighbours)))


def complex_gaussian(std=1.0, correlation=0.0):
    return Release(mechanism=ComplexGaussian(std=std, correlation=correlation, sensitivity=sensitivity()))


def laplace(scale=1.0, **neighbours):
    return Release(mechanism=Laplace(scale=scale, sensitivity=sensitivity(**neighbours)))


def training(probability, std, count, **neighbours):
    return Repeated(count=count, event=PoissonSampled(probability=probability, event=gaussian(std, **neighbours)))


WORK_SET = [
    # (sampling probability, noise multiplier, steps, delta, exact epsilon): inverted with a contour integral to seven digits
    (0.005, 0.61, 4000, 1e-5, 6.608033),
    (0.063, 5.0, 1588, 5e-4, 1.497089),
    (0.009, 1.0, 556, 1e-5, 1.242621),
    (3e-5, 1.0, 1_000_000, 1e-5, 0.123539),
    (0.001, 1.1, 10_000, 1e-5, 0.402337),
    (0.01, 1.0, 10_000, 1e-6, 6.907384),
    (0.256, 4.0, 2000, 1e-5, 16.041130),
]


def fixed_size(sample_size, population_size, std, count, **neighbours):
    sampled = FixedSizeSampled(sample_size=sample_size, population_size=population_size, event=gaussian(std, **neighbours))
    return Repeated(count=count, event=sampled)


def replace_one_gaussian(std, l2_contribution=1.0):
    sensitivity = Sensitivity(l2=2.0 * l2_contribution, l2_contribution=l2_contribution, adjacency="replace_one", unit="record")
    return Release(mechanism=Gaussian(std=std, sensitivity=sensitivity))
