r"""Device and precision of a run."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from zetadp.mechanisms import InvalidParameter, RandomStream
from zetadp.trainer.engine.environment import autocast, hardware, prepare_torch
from zetadp.trainer.layers import ComplexLinear, PlanarConv2d, PlanarLinear, from_planes
from zetadp.trainer.layers.convolution import PlanarConv1d
from zetadp.trainer.specs.base import RuntimeSpec

STREAM = RandomStream.from_seed(1, "environment test")
HALF = RuntimeSpec(precision="bfloat16")

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@without_cuda
def test_auto_is_the_processor_where_there_is_no_accelerator() -> None:
    assert prepare_torch(RuntimeSpec(device="auto")) == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_auto_is_the_accelerator_where_there_is_one() -> None:
    assert prepare_torch(RuntimeSpec(device="auto")).type == "cuda"


@without_cuda
def test_an_accelerator_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"runtime\.device must be 'cpu' or 'auto' on this machine"):
        prepare_torch(RuntimeSpec(device="cuda"))


def test_threads_are_those_asked_for() -> None:
    assert hardware(prepare_torch(RuntimeSpec(device="cpu", threads=1))).endswith(", 1 thread")


def test_convolutions_on_planes_run_in_half_precision() -> None:
    network = nn.Sequential(PlanarConv1d(2, 3, 3, stream=STREAM, bias=False))
    with autocast(HALF, network):
        halved = network(torch.ones(1, 4, 8))
    whole = network(torch.ones(1, 4, 8))
    assert (halved.dtype, whole.dtype) == (torch.bfloat16, torch.float32)
    # Eight significant bits, over sums of twelve products.
    assert torch.allclose(halved.float(), whole, atol=12 * 2.0**-8)


def test_full_precision_changes_nothing() -> None:
    network = ComplexLinear(2, 2, STREAM)
    with autocast(RuntimeSpec(precision="float32"), network):
        assert network(torch.ones(1, 2, dtype=torch.complex64)).dtype == torch.complex64


@pytest.mark.parametrize("layer", [ComplexLinear(2, 2, STREAM), nn.Linear(2, 2, dtype=torch.complex64)])
def test_complex_parameters_in_half_precision_are_refused_by_name(layer: nn.Module) -> None:
    network = nn.Sequential(nn.Flatten(), layer)
    with pytest.raises(InvalidParameter, match=rf"complex parameters in half precision \(1: {type(layer).__name__}\)"):
        autocast(HALF, network)


def test_a_complex_network_on_planes_runs_in_half_precision_to_its_head() -> None:
    network = nn.Sequential(PlanarConv2d(1, 2, 3, STREAM), nn.Flatten(), PlanarLinear(72, 3, STREAM, bias=True))
    with autocast(HALF, network):
        outputs = from_planes(network(torch.randn(4, 2, 8, 8)))
    assert outputs.dtype == torch.complex64


def test_no_product_takes_a_short_cut_whatever_was_set_before() -> None:
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    prepare_torch(RuntimeSpec(device="cpu"))
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == (False, False, True)
