r"""Activations on native complex tensors and on planes: independent formulas, derivatives, extremes, laws, a gradient for each record."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers import (
    ACTIVATIONS,
    COMPLEX_ACTIVATIONS,
    REAL_ACTIVATIONS,
    activations,
    cardioid,
    conj_mish,
    from_planes,
    gates,
    igaussian,
    mish,
    modrelu,
    siglog,
    to_planes,
    zrelu,
)

Complex = NDArray[np.complex128]
FORMATS = ["native", "planes"]
TRAINABLE = ["trainable_cardioid", "trainable_cardioid_per_feature", "modrelu", "modrelu_per_feature"]
BIASES = np.array([0.4, -0.7, 1.1])


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-x))


def _mish(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x * np.tanh(np.log1p(np.exp(x)))


def _modrelu(z: Complex, bias: NDArray[np.float64]) -> Complex:
    return np.maximum(np.abs(z) + bias, 0.0) * np.exp(1j * np.angle(z))


def _cardioid(z: Complex, bias: NDArray[np.float64]) -> Complex:
    return 0.5 * (1.0 + np.cos(np.angle(z) + bias)) * z


# Independent of the implementation: angles by atan2, hyperbolic functions as printed, complex128. Features are the last axis.
FORMULAS: dict[str, Callable[[Complex], Complex]] = {
    "cardioid": lambda z: _cardioid(z, np.zeros(3)),
    "trainable_cardioid": lambda z: _cardioid(z, BIASES[:1]),
    "trainable_cardioid_per_feature": lambda z: _cardioid(z, BIASES),
    "conj_mish": lambda z: (1 + 1j) * _mish(z.real) - (1 - 1j) * _mish(z.imag),
    "crelu": lambda z: np.maximum(z.real, 0.0) + 1j * np.maximum(z.imag, 0.0),
    "igaussian": lambda z: (1.0 - np.exp(-(np.abs(z) ** 2) / 2.0)) * np.exp(1j * np.angle(z)),
    "modrelu": lambda z: _modrelu(z, BIASES[:1]),
    "modrelu_per_feature": lambda z: _modrelu(z, BIASES),
    "separable_sigmoid": lambda z: _sigmoid(z.real) + 1j * _sigmoid(z.imag),
    "separable_tanh": lambda z: np.tanh(z.real) + 1j * np.tanh(z.imag),
    "siglog": lambda z: z / (1.0 + np.abs(z)),
    "zrelu": lambda z: np.where((np.angle(z) >= 0.0) & (np.angle(z) <= np.pi / 2.0), z, 0.0),
}


def _module(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    module = ACTIVATIONS[name](3)
    for parameter in module.parameters():
        parameter.data = torch.tensor(BIASES[: parameter.numel()], dtype=dtype)
    return module


def _numbers(records: int, *space: int) -> Tensor:
    """(records, 3, *space), complex128."""
    generator = torch.Generator().manual_seed(3)
    return torch.view_as_complex(1.5 * torch.randn(records, 3, *space, 2, dtype=torch.float64, generator=generator))


def _in(form: str, z: Tensor) -> Tensor:
    """(records, 3, *space) in a format: planes, or native with the features last."""
    return to_planes(z) if form == "planes" else z.movedim(1, -1).contiguous()


def _out(form: str, y: Tensor) -> Tensor:
    return from_planes(y) if form == "planes" else y.movedim(-1, 1)


def test_every_complex_activation_has_an_independent_formula_here() -> None:
    assert set(FORMULAS) == set(COMPLEX_ACTIVATIONS)
    assert set(ACTIVATIONS) == set(COMPLEX_ACTIVATIONS) | set(REAL_ACTIVATIONS)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", sorted(COMPLEX_ACTIVATIONS))
def test_values_are_those_of_the_printed_formula(name: str, form: str) -> None:
    z = _numbers(4, 5)
    got = _out(form, _module(name)(_in(form, z))).detach().movedim(1, -1).numpy()
    np.testing.assert_allclose(got, FORMULAS[name](z.movedim(1, -1).numpy()), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "formula"), [("relu", lambda x: np.maximum(x, 0.0)), ("tanh", np.tanh), ("sigmoid", _sigmoid), ("mish", _mish)]
)
def test_real_activations_are_their_formulas(name: str, formula: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
    x = np.linspace(-30.0, 30.0, 121)
    np.testing.assert_allclose(ACTIVATIONS[name](1)(torch.from_numpy(x)).numpy(), formula(x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", sorted(COMPLEX_ACTIVATIONS))
def test_first_derivatives_agree_with_finite_differences(name: str, form: str) -> None:
    module = _module(name)
    names = [name for name, _ in module.named_parameters()]
    inputs = (_in(form, _numbers(2, 2)).requires_grad_(), *(p.detach().requires_grad_() for p in module.parameters()))
    assert torch.autograd.gradcheck(lambda z, *p: functional_call(module, dict(zip(names, p, strict=True)), (z,)), inputs)


def test_second_derivatives_agree_with_finite_differences() -> None:
    z = to_planes(_numbers(1, 2)).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: cardioid(x) + igaussian(x) + siglog(x) + conj_mish(x), z)


@pytest.mark.parametrize("name", sorted(COMPLEX_ACTIVATIONS))
def test_channels_last_planes_give_the_same_values_and_gradients(name: str) -> None:
    module, results = _module(name), []
    for layout in (torch.contiguous_format, torch.channels_last):
        x = to_planes(_numbers(2, 3, 4)).contiguous(memory_format=layout).requires_grad_()
        y = module(x)
        y.pow(3).sum().backward()
        results.append((y.detach(), x.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# 0, denormals, the smallest normal numbers, where squares underflow, ordinary, where squares overflow float32.
EXTREMES = [0.0, 1e-45, -1e-40, 1.2e-38, 1e-30, -1e-20, 1e-7, -1.0, 1.0, 40.0, -90.0, 3e19, -1e30, 1e30]


@pytest.mark.parametrize("bias", [0.0, 0.5, -0.5])
@pytest.mark.parametrize("name", sorted(COMPLEX_ACTIVATIONS))
def test_values_and_gradients_are_finite_from_zero_to_1e30(name: str, bias: float) -> None:
    module = ACTIVATIONS[name](1)
    for parameter in module.parameters():
        parameter.data.fill_(bias)
    numbers = torch.tensor(EXTREMES)
    z = torch.complex(*torch.meshgrid(numbers, numbers, indexing="ij")).reshape(-1, 1).requires_grad_()
    y = module(z)
    assert torch.isfinite(torch.view_as_real(y)).all()
    for cotangent in (1.0, 1j, 1.0 - 1j):
        (gradient,) = torch.autograd.grad(y, z, torch.full_like(y, cotangent), retain_graph=True)
        assert torch.isfinite(torch.view_as_real(gradient)).all()
        # modReLU with a positive bias is steep at 0 by nature: 2^20 bias. All others have slopes below 2.
        assert gradient.abs().max() <= (2.0**20 if name.startswith("modrelu") and bias > 0 else 2.0 * math.sqrt(2.0))


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e25])
def test_cardioid_has_the_cosine_of_the_angle_at_every_scale(scale: float) -> None:
    z = torch.tensor(complex(0.6 * scale, -0.8 * scale), dtype=torch.complex64)
    assert cardioid(z).item() == pytest.approx(0.8 * z.item(), rel=1e-6)


def test_modrelu_keeps_the_phase_and_shifts_the_magnitude() -> None:
    z = torch.tensor([3 + 4j, -0.03 + 0.04j, 0.3j])
    torch.testing.assert_close(modrelu(z, torch.tensor([-1.0])), torch.tensor([2.4 + 3.2j, 0j, 0j]))
    torch.testing.assert_close(modrelu(z, torch.tensor([1.0])), torch.tensor([3.6 + 4.8j, -0.63 + 0.84j, 1.3j]))


def test_bounded_activations_stay_below_their_bound() -> None:
    z = 1e4 * _numbers(50)
    assert igaussian(z, 3.0).abs().max() <= 1.0 + 1e-12
    assert siglog(z, 2.0, 5.0).abs().max() < 5.0
    assert siglog(z, 2.0, 5.0).abs().max() > 4.9


def test_zrelu_passes_the_closed_first_quadrant() -> None:
    z = torch.tensor([1 + 1j, 1 + 0j, 1j, -1 + 1j, 1 - 1j, -1 - 1j])
    assert zrelu(z).tolist() == [1 + 1j, 1 + 0j, 1j, 0j, 0j, 0j]


def test_mish_is_the_true_one_and_not_the_printed_one() -> None:
    # Errata C15: at 2 the true value is 1.9440, the printed formula's 1.5740; at -0.5 -0.2207 and +0.3695.
    assert mish(torch.tensor([2.0, -0.5], dtype=torch.float64)).tolist() == pytest.approx([1.94396, -0.22075], abs=1e-4)


def test_conj_mish_is_mish_of_both_parts_turned_by_one_plus_i() -> None:
    z = _numbers(5)
    expected = (1 + 1j) * torch.complex(nn.functional.mish(z.real), nn.functional.mish(z.imag))
    torch.testing.assert_close(conj_mish(z), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", TRAINABLE)
def test_a_bias_expanded_over_records_has_each_records_own_gradient(name: str, form: str) -> None:
    module, z = _module(name), _in(form, _numbers(4, 2))
    bias = next(module.parameters()).detach()
    weight = torch.linspace(1.0, 2.0, z[:1].numel(), dtype=torch.float64).reshape(z[:1].shape)

    def loss(p: Tensor, x: Tensor) -> Tensor:
        y = functional_call(module, {"bias": p}, (x,))
        return (weight * (y * (1 - 2j)).real if y.is_complex() else weight * y).square().sum()

    leaf = bias.expand(4, *bias.shape).clone().requires_grad_()
    (together,) = torch.autograd.grad(loss(leaf, z), leaf)
    loop = torch.stack([grad(loss)(bias, z[i : i + 1]) for i in range(4)])
    assert loop.abs().min() > 0
    torch.testing.assert_close(together, loop, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(COMPLEX_ACTIVATIONS))
def test_vmapped_gradients_equal_the_loop(name: str) -> None:
    module, x = _module(name), to_planes(_numbers(3, 2))
    parameters = {key: value.detach() for key, value in module.named_parameters()}

    def loss(p: dict[str, Tensor], record: Tensor) -> Tensor:
        return functional_call(module, p, (record[None],)).pow(3).sum()

    together = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, 0))(parameters, x)
    loop = [grad(loss, argnums=(0, 1))(parameters, record) for record in x]
    torch.testing.assert_close(together[1], torch.stack([one[1] for one in loop]), rtol=1e-12, atol=1e-12)
    for key in parameters:
        torch.testing.assert_close(together[0][key], torch.stack([one[0][key] for one in loop]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_trainable_activation_says_that_it_takes_a_parameter_for_each_record(name: str) -> None:
    module = ACTIVATIONS[name](3)
    assert module.batched_parameters is True
    assert [tuple(p.shape) for p in module.parameters()] == [(3,) if name.endswith("per_feature") else (1,)]


def test_plain_activations_have_no_parameters() -> None:
    assert all(not list(ACTIVATIONS[name](3).parameters()) for name in ACTIVATIONS if name not in TRAINABLE)


def test_a_bias_of_other_records_is_refused() -> None:
    module = ACTIVATIONS["modrelu_per_feature"](3)
    with pytest.raises(InvalidParameter, match=r"\(features,\) or \(4, features\)"):
        functional_call(module, {"bias": torch.zeros(2, 3)}, (to_planes(_numbers(4, 2)),))


@pytest.mark.parametrize("call", [lambda z: siglog(z, 0.0), lambda z: siglog(z, 1.0, -1.0), lambda z: igaussian(z, float("nan"))])
def test_widths_that_are_not_positive_are_refused(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidParameter, match="positive"):
        call(_numbers(1))


@pytest.fixture
def _loop() -> None:
    if gates.COMPILED is None:
        pytest.skip("no compiled loop: torch's operations are all there is")


def _both_ways(z: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    z = z.clone().requires_grad_()
    out = cardioid(z)
    return out.detach(), torch.autograd.grad(out, z, slope)[0]


@pytest.mark.usefixtures("_loop")
def test_the_loop_of_the_cardioid_has_the_bits_of_torchs_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = torch.Generator().manual_seed(3)
    sizes = torch.logspace(-45, 37, 4001)[:, None]
    z, slope = (torch.view_as_complex(torch.randn(4001, 5, 2, generator=generator)) for _ in range(2))
    z = torch.view_as_complex(torch.view_as_real(z) * sizes[..., None])
    z[:3], z[3], z[4] = 0.0, 1.0, torch.complex(torch.tensor(-0.0), torch.tensor(1e-44))
    called: list[str] = []
    for name in ("cardioid", "cardioid_pullback"):
        loop = getattr(gates.COMPILED, name)
        monkeypatch.setattr(gates.COMPILED, name, lambda *arrays, name=name, loop=loop: (called.append(name), loop(*arrays))[1])
    found = _both_ways(z, slope)
    assert called == ["cardioid", "cardioid_pullback"]
    monkeypatch.setattr(gates, "COMPILED", None)
    for one, other in zip(found, _both_ways(z, slope), strict=True):
        assert torch.equal(torch.view_as_real(one).view(torch.int32), torch.view_as_real(other).view(torch.int32))
    planes, slopes = to_planes(z).requires_grad_(), to_planes(slope)
    out = cardioid(planes)
    expected = from_planes(out.detach()), from_planes(torch.autograd.grad(out, planes, slopes)[0])
    for one, other, size in zip(found, expected, (z, slope), strict=True):
        # Near the negative axis the gain is a small difference: its error is relative to 1.
        assert bool(((one - other).abs().double() <= 1e-6 * size.abs().double() + 1e-44).all())


@pytest.mark.usefixtures("_loop")
def test_a_numbers_cardioid_does_not_depend_on_its_place() -> None:
    """To the bit: a record's gradient may not depend on who else is in its microbatch."""
    generator = torch.Generator().manual_seed(4)
    z, slope = (torch.view_as_complex(torch.randn(37, 2, generator=generator)) for _ in range(2))
    whole = _both_ways(z, slope)
    for first in range(1, 33):
        for one, other in zip(whole, _both_ways(z[first:].clone(), slope[first:].clone()), strict=True):
            assert torch.equal(one[first:], other)


@pytest.mark.usefixtures("_loop")
def test_the_loop_refuses_arrays_that_do_not_fit() -> None:
    one, other = np.zeros(3, np.complex64), np.zeros(2, np.complex64)
    for arrays in ((one, other), (one, one, other), (one, other, one)):
        with pytest.raises(ValueError, match="other sizes"):
            (gates.COMPILED.cardioid if len(arrays) == 2 else gates.COMPILED.cardioid_pullback)(*arrays)


PLACES = [torch.contiguous_format, torch.channels_last]


def _curved(function: Callable[[Tensor], Tensor], x: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach(), torch.autograd.grad(y, x, along)[0]


@pytest.mark.parametrize("function", [mish, conj_mish])
@pytest.mark.parametrize("layout", PLACES, ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("shape", [(3, 2, 1, 1), (2, 6, 7, 5), (3, 128, 4, 3), (1, 66, 5, 5)])
def test_mish_by_its_loop_is_its_formula_in_double_precision(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Tensor], Tensor], layout: torch.memory_format, shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(7)
    x, along = (20.0 * torch.randn(2, *shape, generator=generator)).unbind()
    x, along = x.contiguous(memory_format=layout), along / 20.0
    looped = _curved(function, x, along)
    monkeypatch.setattr(activations, "WORTH_THREADS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for by_one, by_three, truth in zip(looped, _curved(function, x, along), _curved(function, x.double(), along.double()), strict=True):
        assert by_one.equal(by_three)
        assert by_one.stride() == truth.stride()
        torch.testing.assert_close(by_one.double(), truth, rtol=2e-6, atol=2e-6)


def test_the_loop_s_mish_is_accurate_to_the_last_bits_over_its_whole_range() -> None:
    x = torch.linspace(-86.0, 30.0, 300_001)
    wide = x.double()
    got, slopes = _curved(mish, x, torch.ones_like(x))
    truth, true_slopes = _curved(mish, wide, torch.ones_like(wide))
    assert float(((got - truth) / truth).abs().max()) < 6e-7
    assert float((slopes - true_slopes).abs().max()) < 4e-7


def test_mish_of_native_numbers_is_that_of_planes() -> None:
    z = _numbers(5, 9).to(torch.complex64)
    along = _numbers(5, 9).conj().resolve_conj().to(torch.complex64)
    native, planes = _curved(conj_mish, z, along), _curved(conj_mish, to_planes(z), to_planes(along))
    for of_native, of_planes in zip(native, planes, strict=True):
        assert of_native.equal(from_planes(of_planes))


@pytest.mark.parametrize("function", [mish, conj_mish])
def test_mish_of_a_record_has_the_same_bits_wherever_it_stands(function: Callable[[Tensor], Tensor]) -> None:
    x, along = (3.0 * torch.randn(2, 9, 6, 5, 5, generator=torch.Generator().manual_seed(8))).unbind()
    for layout in PLACES:
        alone = _curved(function, x[4:5].contiguous(memory_format=layout), along[4:5])
        among = _curved(function, x.contiguous(memory_format=layout), along)
        assert all(one[0].equal(many[4]) for one, many in zip(alone, among, strict=True))


def test_mish_at_the_ends_of_what_floats_hold() -> None:
    x = torch.tensor([0.0, 1e30, -1e30, 20.0, 21.0, -87.5, math.inf, math.nan, -104.0])
    got, slopes = _curved(mish, x, torch.ones_like(x))
    assert got[:7].tolist() == [0.0, float(x[1]), 0.0, 20.0, 21.0, 0.0, math.inf]
    assert got[7].isnan()
    assert slopes[7].isnan()
    assert slopes[:7].tolist() == pytest.approx([0.6, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0], abs=1e-6)


def test_the_loop_of_mish_refuses_arrays_of_other_sizes() -> None:
    if gates.COMPILED is None:
        pytest.skip("no compiled loops (was there a C compiler at the installation?)")
    x = np.ones(12, np.float32)
    gates.COMPILED.mish(x, None, x.copy(), 2, 1)
    for along, out, width in ((None, 11, 0), (x[:11], 12, 0), (None, 12, 4), (None, 12, -1)):
        with pytest.raises(ValueError, match="other sizes"):
            gates.COMPILED.mish(x, along, np.ones(out, np.float32), width, 1)


def test_conj_mish_refuses_planes_that_are_no_pairs() -> None:
    with pytest.raises(InvalidParameter, match="planes"):
        conj_mish(torch.ones(2, 3, 4))
