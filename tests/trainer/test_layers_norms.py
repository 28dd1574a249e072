r"""Complex norms: identity covariance, laws of whitening, degenerate groups, affine parameters, a gradient for each record."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers import (
    ComplexGroupNorm,
    ComplexInstanceNorm,
    ComplexLayerNorm,
    from_planes,
    to_planes,
    whiten,
    whitening_passes,
)
from zetadp.trainer.layers.norms import ComplexNorm

TINY_FLOOR = 1e-12
# whiten adds 2^-20 of a group's variance: laws that hold without a floor hold to that, times its variance over the least part of it (< 70).
LAW_TOLERANCE = 7e-5


def _real(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(8))


def _pairs(groups: int = 3, values: int = 40) -> Tensor:
    """Correlated pairs (groups, 2, values) with a mean."""
    mix = torch.tensor([[2.0, 0.0], [0.7, 0.5]], dtype=torch.float64)
    return mix @ _real(groups, 2, values) + torch.tensor([[3.0], [-1.0]], dtype=torch.float64)


def _complex(pairs: Tensor) -> Tensor:
    return torch.complex(pairs[:, 0], pairs[:, 1])


def _norms(channels: int = 4) -> dict[str, ComplexNorm]:
    """With parameters that aren't the initial ones, in double."""
    norms: dict[str, ComplexNorm] = {
        "group": ComplexGroupNorm(2, channels),
        "instance": ComplexInstanceNorm(channels),
        "layer": ComplexLayerNorm(channels),
    }
    for norm in norms.values():
        for place, parameter in enumerate(norm.parameters()):
            parameter.data = torch.view_as_complex(_real(2, channels, 2)[place].contiguous())
    return norms


def _by_numpy(z: NDArray[np.complex128], floor: float) -> NDArray[np.complex128]:
    """One group (values,) complex, whitened by an eigendecomposition: independent of the closed form."""
    pairs = np.stack([z.real, z.imag])
    pairs = pairs - pairs.mean(axis=1, keepdims=True)
    covariance = np.cov(pairs, bias=True)
    values, vectors = np.linalg.eigh(covariance + (floor + 2.0**-20 * np.trace(covariance)) * np.eye(2))
    white = vectors @ np.diag(values**-0.5) @ vectors.T @ pairs
    return white[0] + 1j * white[1]


def test_whitened_groups_have_mean_0_and_identity_covariance() -> None:
    white = whiten(_pairs(), TINY_FLOOR)
    torch.testing.assert_close(white.mean(-1), torch.zeros(3, 2, dtype=torch.float64), rtol=0, atol=1e-12)
    identity = torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
    torch.testing.assert_close(white @ white.mT / 40, identity, rtol=0, atol=LAW_TOLERANCE)


def test_shift_and_positive_scale_of_a_group_change_nothing() -> None:
    pairs = _pairs()
    torch.testing.assert_close(whiten(7.5 * pairs - 40.0, TINY_FLOOR), whiten(pairs, TINY_FLOOR), rtol=0, atol=1e-9)


@pytest.mark.parametrize("reflected", [False, True])
def test_a_turn_or_reflection_of_a_group_turns_or_reflects_the_output(reflected: bool) -> None:
    cosine, sine = math.cos(0.8), math.sin(0.8)
    turn = torch.tensor([[cosine, -sine], [sine, cosine]], dtype=torch.float64) @ torch.diag(
        torch.tensor([1.0, -1.0 if reflected else 1.0]).double()
    )
    torch.testing.assert_close(whiten(turn @ _pairs(), 1e-3), turn @ whiten(_pairs(), 1e-3), rtol=0, atol=1e-12)


def test_an_invertible_real_affine_map_of_the_pairs_keeps_all_magnitudes() -> None:
    affine = torch.tensor([[1.3, -0.4], [0.9, 0.8]], dtype=torch.float64)
    before, after = whiten(_pairs(), TINY_FLOOR), whiten(affine @ _pairs() + 2.0, TINY_FLOOR)
    torch.testing.assert_close(_complex(after).abs(), _complex(before).abs(), rtol=LAW_TOLERANCE, atol=LAW_TOLERANCE)
    assert (after - before).abs().max() > 0.1  # only the magnitudes


DEGENERATE = {
    "zeros": torch.zeros(1, 2, 6),
    "one_number": torch.tensor([[[0.3], [-2.0]]]),
    "equal_numbers": torch.full((1, 2, 5), 3.0),
    "isotropic": torch.tensor([[[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 0.0, -1.0]]]),
    "real_only": torch.tensor([[[1.0, -2.0, 4.0], [0.0, 0.0, 0.0]]]),
    "on_a_line": 1e3 * torch.tensor([[[1.1, -2.3, 4.7, 0.1], [3.3, -6.9, 14.1, 0.3]]]),
    "tiny": 1e-25 * _pairs(1, 9).float(),
    "huge": 1e15 * _pairs(1, 9).float(),
}


@pytest.mark.parametrize("name", sorted(DEGENERATE))
def test_degenerate_groups_have_finite_outputs_and_gradients(name: str) -> None:
    # Errata C17: eigenvectors of an SVD, and a division by values - 1, give NaN for the first four.
    pairs = DEGENERATE[name].clone().requires_grad_()
    white = whiten(pairs, 1e-5)
    (gradient,) = torch.autograd.grad(white.pow(3).sum(), pairs)
    assert torch.isfinite(white).all()
    assert white.abs().max() <= math.sqrt(pairs.shape[-1])  # all of a group's variance in one number
    assert torch.isfinite(gradient).all()
    # The slope is at most 1 / sqrt(eps) = 316 times that of the cube, 3 values.
    assert gradient.abs().max() <= 317 * 3 * pairs.shape[-1]


@pytest.mark.parametrize(("name", "groups"), [("group", 2), ("instance", 4), ("layer", 1)])
def test_a_norm_whitens_each_group_of_channels_and_applies_a_complex_affine_map(name: str, groups: int) -> None:
    z = torch.view_as_complex(_real(3, 4, 5, 2))
    norm = _norms()[name]
    weight, bias = (parameter.detach().numpy() for parameter in (norm.weight, norm.bias))
    grouped = z.numpy().reshape(3, groups, -1)
    white = np.stack([[_by_numpy(group, 1e-5) for group in record] for record in grouped]).reshape(3, 4, 5)
    expected = weight[:, None] * white + bias[:, None]
    np.testing.assert_allclose(from_planes(norm(to_planes(z))).detach().numpy(), expected, rtol=1e-10, atol=1e-12)


def test_layer_norm_of_native_numbers_runs_over_the_last_axis() -> None:
    z = torch.view_as_complex(_real(3, 2, 4, 2))
    norm = _norms()["layer"]
    white = np.stack([[_by_numpy(row, 1e-5) for row in record] for record in z.numpy()])
    expected = norm.weight.detach().numpy() * white + norm.bias.detach().numpy()
    np.testing.assert_allclose(norm(z).detach().numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["group", "instance", "layer"])
def test_derivatives_agree_with_finite_differences(name: str) -> None:
    norm = _norms()[name]
    inputs = tuple(value.detach().clone().requires_grad_() for value in (_real(2, 8, 3), norm.weight, norm.bias))
    assert torch.autograd.gradcheck(lambda x, w, b: functional_call(norm, {"weight": w, "bias": b}, (x,)), inputs)


@pytest.mark.parametrize("name", ["group", "instance", "layer", "native_layer"])
def test_parameters_expanded_over_records_have_each_records_own_gradient(name: str) -> None:
    norm = _norms()[name.removeprefix("native_")]
    x = torch.view_as_complex(_real(3, 5, 4, 2)) if name == "native_layer" else _real(3, 8, 5)
    parameters = {key: value.detach() for key, value in norm.named_parameters()}

    def loss(p: dict[str, Tensor], records: Tensor) -> Tensor:
        y = functional_call(norm, p, (records,))
        return (torch.view_as_real(y) if y.is_complex() else y).pow(3).sum()

    leaves = {key: value.expand(3, *value.shape).clone().requires_grad_() for key, value in parameters.items()}
    together = torch.autograd.grad(loss(leaves, x), list(leaves.values()))
    loop = [grad(loss)(parameters, record[None]) for record in x]
    vmapped = vmap(grad(lambda p, record: loss(p, record[None])), in_dims=(None, 0))(parameters, x)
    for key, gradient in zip(leaves, together, strict=True):
        torch.testing.assert_close(gradient, torch.stack([one[key] for one in loop]), rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(vmapped[key], gradient, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["group", "instance", "layer"])
def test_a_records_output_does_not_depend_on_the_others(name: str) -> None:
    norm, x = _norms()[name], _real(3, 8, 5)
    others = torch.cat((x[:1], 100.0 * x[1:]))
    assert torch.equal(norm(x)[0], norm(others)[0])


def test_a_norm_takes_channels_last_planes() -> None:
    x = _real(2, 8, 3, 3)
    norm = _norms()["group"]
    torch.testing.assert_close(norm(x.contiguous(memory_format=torch.channels_last)), norm(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", [ComplexGroupNorm(2, 4), ComplexInstanceNorm(4), ComplexLayerNorm(4)], ids=["group", "instance", "layer"])
def test_initial_weights_are_one_plus_i_over_root_2_and_biases_0(norm: ComplexNorm) -> None:
    assert norm.batched_parameters is True
    torch.testing.assert_close(norm.weight.detach(), torch.full((4,), (1 + 1j) / math.sqrt(2.0)))
    assert torch.equal(norm.bias.detach(), torch.zeros(4, dtype=torch.complex64))


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="a divisor of channels = 4"):
        ComplexGroupNorm(3, 4)
    with pytest.raises(InvalidParameter, match="a multiple of groups = 2"):
        ComplexGroupNorm(2, 4)(torch.zeros(1, 6, 3))


def test_a_floor_of_0_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="positive"):
        ComplexInstanceNorm(4, 0.0)


def _slopes(norm: ComplexNorm, x: Tensor, cotangents: Tensor) -> tuple[Tensor, ...]:
    leaves = (x.detach().requires_grad_(), *(p.detach().expand(len(x), *p.shape).clone().requires_grad_() for p in norm.parameters()))
    y = functional_call(norm, dict(zip(("weight", "bias"), leaves[1:], strict=True)), (leaves[0],))
    return y.detach(), *torch.autograd.grad(y, leaves, cotangents)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_results_do_not_depend_on_the_layout_and_on_how_many_records_are_worked_on_at_once(
    monkeypatch: pytest.MonkeyPatch, layout: torch.memory_format
) -> None:
    x, cotangents, norm = _real(5, 8, 3, 4), _real(2, 5, 8, 3, 4)[1], _norms()["group"]
    expected = _slopes(norm, x, cotangents)
    monkeypatch.setattr(whitening_passes, "BLOCK", 2 * 8 * 12)  # two records, two, and one
    for got, whole in zip(_slopes(norm, x.contiguous(memory_format=layout), cotangents), expected, strict=True):
        torch.testing.assert_close(got, whole, rtol=1e-11, atol=1e-11)


def test_planes_of_half_precision_are_whitened_in_single_precision() -> None:
    x, norm = _real(2, 8, 6).bfloat16().requires_grad_(), ComplexGroupNorm(2, 4)
    y = norm(x)
    torch.testing.assert_close(y, norm(x.detach().float()), rtol=0, atol=0)
    assert torch.autograd.grad(y.sum(), x)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize(
    ("channels", "groups", "space"),
    [(2, 1, (3, 4)), (5, 1, (6, 7)), (16, 4, (3, 3)), (17, 1, (3, 3)), (33, 3, (1, 5)), (64, 16, (5, 7)), (4, 2, (40, 33))],
)
def test_loops_and_operations_whiten_alike_and_loops_by_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, layout: torch.memory_format, channels: int, groups: int, space: tuple[int, int]
) -> None:
    if whitening_passes.COMPILED is None:
        pytest.skip("no compiled loops (was there a C compiler at the installation?)")
    norm = ComplexGroupNorm(groups, channels)
    with torch.no_grad():
        norm.weight.copy_(torch.complex(*_real(2, channels)))
        norm.bias.copy_(torch.complex(*_real(2, channels)))
    x = (3.0 * _real(5, 2 * channels, *space) + 10.0).float().contiguous(memory_format=layout)
    cotangents = _real(2, *x.shape)[1].float()
    looped = _slopes(norm, x, cotangents)
    monkeypatch.setattr(whitening_passes, "WORTH_THREADS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    shared = _slopes(norm, x, cotangents)
    monkeypatch.setattr(whitening_passes, "COMPILED", None)
    exact = _slopes(norm.double(), x.double(), cotangents.double())
    for by_one, by_three, truth in zip(looped, shared, exact, strict=True):
        assert by_one.equal(by_three)
        assert by_one.stride() == truth.stride()
        assert float((by_one - truth).abs().max()) <= 1e-5 * float(truth.abs().max())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_a_record_is_whitened_to_the_same_bits_wherever_it_stands(layout: torch.memory_format) -> None:
    norm, x = ComplexGroupNorm(4, 20), _real(9, 40, 5, 7).float()
    cotangents = _real(2, *x.shape)[1].float()
    alone = _slopes(norm, x[4:5].contiguous(memory_format=layout), cotangents[4:5])
    for count in (2, 3, 5):
        among = _slopes(norm, x[5 - count : 5].contiguous(memory_format=layout), cotangents[5 - count : 5])
        assert all(one[0].equal(many[-1]) for one, many in zip(alone, among, strict=True))


def test_loops_refuse_arrays_of_other_sizes() -> None:
    loops = whitening_passes.COMPILED
    if loops is None:
        pytest.skip("no compiled loops (was there a C compiler at the installation?)")
    x, of_channels, matrix = np.zeros((2, 6, 5), np.float32), np.zeros((2, 6), np.float32), np.zeros((2, 4, 3), np.float32)
    loops.sums(x, x, of_channels, np.zeros((2, 6, 3)), 2, 3, 5, False, 1)
    loops.mapped(x, of_channels, matrix, x, matrix, of_channels, x.copy(), 2, 3, 5, False, 1)
    for others, means, out in ((None, None, 7), (x, None, 36), (None, of_channels, 12), (x[:1], of_channels, 36), (x, of_channels[:1], 36)):
        with pytest.raises(ValueError, match="fit their sizes"):
            loops.sums(x, others, means, np.zeros(out), 2, 3, 5, False, 1)
    for second in ((None, matrix), (x, None), (x, matrix[:1]), (x[:1], matrix)):
        with pytest.raises(ValueError, match="fit their sizes"):
            loops.mapped(x, of_channels, matrix, *second, of_channels, x.copy(), 2, 3, 5, False, 1)
    with pytest.raises(ValueError, match="fit their sizes"):
        loops.mapped(x, of_channels, matrix, None, None, of_channels, x[:1].copy(), 2, 3, 5, False, 1)
