"""Releases on a grid by torch's operations: the same bits as the processor's loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zetadp.mechanisms import Adjacency, ComplexGaussian, Gaussian, RandomStream, Sensitivity
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling import kernel
from zetadp.mechanisms.sampling.grid import FEW
from zetadp.trainer.engine.noise import torch_kernel
from zetadp.trainer.engine.noise.torch_source import TorchSource

CPU = torch.device("cpu")
COUNT = 200_000
"""Numbers: about 312 of them need more words than one."""
L2 = Sensitivity(l2=1.0, adjacency=Adjacency.ADD_REMOVE, unit="record")
MECHANISMS = {"real": Gaussian(std=2.0, sensitivity=L2), "complex": ComplexGaussian(std=2.0, sensitivity=L2)}


def source(seed: int, device: torch.device, *, by_torch: bool) -> TorchSource:
    found = TorchSource(RandomStream.from_seed(seed, "torch kernel"), device)
    found._by_torch = by_torch
    return found


def devices() -> list[object]:
    no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    return [pytest.param("cpu", id="cpu"), pytest.param("cuda", id="cuda", marks=[pytest.mark.gpu, no_cuda])]


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("counts", [(COUNT,), (1, 0, 70_001, 16, 17)], ids=str)
def test_a_stream_gives_the_same_noise_in_the_same_order(device: str, counts: tuple[int, ...]) -> None:
    one, other = source(3, CPU, by_torch=False), source(3, torch.device(device), by_torch=True)
    for count in counts:
        assert torch.equal(one.standard_normal((count,)), other.standard_normal((count,)).cpu())


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("largest", [2.0**18, 1.5])
def test_a_value_gets_on_the_grid_with_the_same_bits(device: str, dtype: torch.dtype, largest: float) -> None:
    generator = torch.Generator().manual_seed(5)
    value = (torch.randn(5000, generator=generator, dtype=torch.float64) * 3.0).to(dtype)
    # Halfway between two steps, where rounding goes to the even one.
    value[:100] = (torch.arange(100, dtype=torch.float64) * 2.0**-33).to(dtype)
    noise = torch.from_numpy(RandomStream.from_seed(2, "noise").grid_normal(5000))
    expected = kernel.released(value.numpy(), noise.numpy(), 0.7, largest, 1.3)
    found = torch_kernel.released(value.to(device), noise.to(device), 0.7, largest, 1.3)
    assert np.array_equal(found.cpu().numpy(), expected)
    assert found.cpu().numpy().dtype == expected.dtype


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused(broken: float) -> None:
    value = torch.zeros(FEW + 1)
    value[3] = broken
    with pytest.raises(InvalidParameter, match="finite in every coordinate"):
        torch_kernel.released(value, torch.zeros(FEW + 1, dtype=torch.float64), 1.0, 1.0, 1.0)


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_of_a_value_that_is_not_finite_nothing_is_released_where_nobody_waits(device: str, broken: float) -> None:
    value, noise = torch.ones(FEW + 1), torch.zeros(FEW + 1, dtype=torch.float64)
    whole = torch_kernel.released(value.to(device), noise.to(device), 1.0, 2.0, 1.0, refuses=False)
    assert torch.equal(whole.cpu(), value)
    value[3] = broken
    assert torch_kernel.released(value.to(device), noise.to(device), 1.0, 2.0, 1.0, refuses=False).isnan().all()


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("size", [1, FEW, FEW + 1, 5000])
@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_release_has_the_same_bits(device: str, size: int, kind: str) -> None:
    mechanism, dtype = MECHANISMS[kind], torch.complex64 if kind == "complex" else torch.float32
    value = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=dtype)
    expected = mechanism.release(value, source(7, CPU, by_torch=False))
    found = mechanism.release(value.to(device), source(7, torch.device(device), by_torch=True))
    assert torch.equal(expected, found.cpu())
