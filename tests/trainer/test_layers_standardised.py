r"""Convolutions and linear layers with standardised weights: what is applied, what doesn't change it, and how they are asked for."""

from __future__ import annotations

import cmath

import pytest
import torch
from torch import nn

from tests.trainer.made_up import built, facts_of, records
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.layers.planes import to_planes
from zetadp.trainer.layers.standardised import StandardisedConv2d, standardised
from zetadp.trainer.models import build
from zetadp.trainer.specs.models.layer_spec import Convolution, Flatten, Linear
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.parameter_counts import Numbers
from zetadp.trainer.specs.models.residual_networks import wide_resnet
from zetadp.trainer.specs.models.shapes import check_model, sequential_shapes

COMPLEX: list[bool] = [False, True]


def filters(*, is_complex: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 3, 3, dtype=torch.complex64 if is_complex else torch.float32, generator=generator) + 0.7


@pytest.mark.parametrize("is_complex", COMPLEX)
def test_each_outputs_weights_have_mean_zero_and_squares_that_add_up_to_one(is_complex: bool) -> None:
    applied = standardised(filters(is_complex=is_complex)).flatten(1)
    assert applied.mean(dim=1).abs().max() <= 1e-6
    torch.testing.assert_close(applied.abs().square().sum(dim=1), torch.ones(4))


@pytest.mark.parametrize("is_complex", COMPLEX)
def test_size_and_offset_of_the_weights_change_nothing_and_a_phase_turns_what_is_applied(is_complex: bool) -> None:
    weight = filters(is_complex=is_complex)
    torch.testing.assert_close(standardised(5.0 * weight + 3.0), standardised(weight), rtol=1e-4, atol=1e-5)
    if is_complex:
        phase = cmath.exp(0.7j)
        torch.testing.assert_close(standardised(phase * weight), phase * standardised(weight))


def test_equal_weights_have_a_finite_gradient() -> None:
    weight = torch.ones(2, 3, 3, requires_grad=True)
    (standardised(weight) * torch.arange(18.0).reshape(2, 3, 3)).sum().backward()
    assert weight.grad is not None
    assert torch.isfinite(weight.grad).all()


def model(numbers: Numbers, *, standardises: bool = True) -> Sequential:
    layers = (Convolution(outputs=4, kernel=3, padding=1, groups=2, standardised=standardises), Flatten(), Linear(outputs=3))
    return Sequential(numbers=numbers, layers=layers, head="real_part" if numbers == "complex" else "none")


@pytest.mark.parametrize("shape", [(2, 5), (2, 4, 4)])
@pytest.mark.parametrize("numbers", ["real", "complex", "real_pairs"])
def test_the_layer_is_a_convolution_with_the_standardised_filters(numbers: Numbers, shape: tuple[int, ...]) -> None:
    facts = facts_of(shape, 3, is_complex=numbers != "real")
    ours, plain = built(model(numbers), facts), built(model(numbers, standardises=False), facts)
    assert (
        sequential_shapes(model(numbers), facts)[0].parameters == sequential_shapes(model(numbers, standardises=False), facts)[0].parameters
    )
    x = records(facts)
    with torch.no_grad():
        theirs = plain.get_submodule("0_convolution")
        theirs.get_parameter("weight").copy_(standardised(ours.get_submodule("0_convolution").get_parameter("weight")))
        planes = to_planes(x) if x.is_complex() else x
        torch.testing.assert_close(ours.get_submodule("0_convolution")(planes), theirs(planes))


def dense(numbers: Numbers, *, standardises: bool = True) -> Sequential:
    layers = (Linear(outputs=5, standardised=standardises), Linear(outputs=3))
    return Sequential(numbers=numbers, layers=layers, head="real_part" if numbers == "complex" else "none")


@pytest.mark.parametrize(("numbers", "is_complex"), [("real", False), ("complex", False), ("complex", True), ("real_pairs", True)])
def test_the_layer_is_a_linear_one_with_the_standardised_weights(numbers: Numbers, is_complex: bool) -> None:
    """In a complex network complex records come as complex numbers, real ones on planes."""
    facts = facts_of((7,), 3, is_complex=is_complex)
    ours, plain = built(dense(numbers), facts), built(dense(numbers, standardises=False), facts)
    x = records(facts)
    with torch.no_grad():
        theirs = plain.get_parameter("0_linear.weight")
        theirs.copy_(standardised(ours.get_parameter("0_linear.weight")))
        torch.testing.assert_close(ours(x), plain(x))
        assert not torch.equal(theirs, ours.get_parameter("0_linear.weight"))


def test_a_linear_output_of_a_single_weight_is_refused() -> None:
    layers = (Linear(outputs=4, standardised=True), Linear(outputs=3))
    with pytest.raises(InvalidParameter, match=r"model\.layers\[0\]\.standardised must be false where an output has a single weight"):
        check_model(Sequential(numbers="real", layers=layers, head="none"), facts_of((1,), 3, is_complex=False))


def test_a_layer_that_is_not_standardised_is_the_json_it_always_was() -> None:
    assert Linear(outputs=3).model_dump() == {"kind": "linear", "outputs": 3, "bias": True}
    assert Linear(outputs=3, standardised=True).model_dump()["standardised"] is True


def test_unit_outputs_leave_filters_that_no_size_changes_as_they_are() -> None:
    facts = facts_of((2, 4, 4), 3, is_complex=False)
    drawn = Sequential.model_validate({**dict(model("real")), "initial_weights": "unit_outputs"})
    found = [build(spec, facts, RandomStream.from_seed(1, "weights")).get_submodule("0_convolution") for spec in (drawn, model("real"))]
    assert isinstance(found[0], StandardisedConv2d)
    assert torch.equal(found[0].get_parameter("weight"), found[1].get_parameter("weight"))


def test_an_output_of_a_single_weight_is_refused() -> None:
    layers = (Convolution(outputs=4, kernel=1, standardised=True), Flatten(), Linear(outputs=3))
    with pytest.raises(InvalidParameter, match=r"model\.layers\[0\]\.standardised must be false where an output has a single weight"):
        check_model(Sequential(numbers="real", layers=layers, head="none"), facts_of((1, 4, 4), 3, is_complex=False))


def test_a_wide_residual_network_standardises_all_its_convolutions_or_none() -> None:
    for standardises in (True, False):
        facts = facts_of((3, 8, 8), 10, is_complex=False)
        network = built(wide_resnet(10, 10, 1, standardises=standardises), facts)
        kinds = {type(module) for module in network.modules() if isinstance(module, nn.Conv2d)}
        assert kinds == ({StandardisedConv2d} if standardises else {nn.Conv2d})
