"""Local releases that tests share."""

from __future__ import annotations

from zetadp.mechanisms import DuchiLinf, LocalGaussian, LocalLaplace, Sensitivity


def sensitivity(l1):
    return Sensitivity(l1=l1, adjacency="replace_one", unit="record")


def local_laplace(dimension, *, lower=0.0, upper=1.0, scale=1.0, l1=None):
    stated = LocalLaplace.least_l1(lower, upper, dimension) if l1 is None else l1
    return LocalLaplace(lower=lower, upper=upper, dimension=dimension, scale=scale, sensitivity=sensitivity(stated))


def duchi(dimension, epsilon, *, lower=-1.0, upper=1.0):
    stated = sensitivity(DuchiLinf.least_l1(lower, upper, dimension))
    return DuchiLinf(lower=lower, upper=upper, dimension=dimension, epsilon=epsilon, sensitivity=stated)


def local_gaussian(dimension, *, lower=0.0, upper=1.0, std=1.0, l2=None):
    stated = LocalGaussian.least_l2(lower, upper, dimension) if l2 is None else l2
    given = Sensitivity(l2=stated, adjacency="replace_one", unit="record")
    return LocalGaussian(lower=lower, upper=upper, dimension=dimension, std=std, sensitivity=given)
