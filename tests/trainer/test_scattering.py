"""The scattering transform: what kymatio's own is, of one record alone, and in front of a network."""

from __future__ import annotations

import pytest
import torch
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

from tests.selection import thinned
from tests.trainer.made_up import built, facts_of, records
from zetadp.mechanisms.errors import InvalidParameter
from zetadp.trainer.layers import scattering as module
from zetadp.trainer.layers.scattering import Scattering as ScatteringModule
from zetadp.trainer.models.front import RECORDS_AT_ONCE, passed_through, split_front
from zetadp.trainer.specs.models.layer_spec import Convolution, Flatten, LayerSpec, Linear, Scattering
from zetadp.trainer.specs.models.model_spec import Sequential
from zetadp.trainer.specs.models.shapes import check_model, sequential_shapes

FLOAT32 = 1e-6
"""Absolute, of averages below 1: some thousand float32 terms in another order."""


def images(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3))


def real(*layers: LayerSpec) -> Sequential:
    return Sequential(numbers="real", layers=layers, head="none")


@pytest.mark.parametrize(
    ("shape", "scales", "orientations", "depth"),
    thinned(
        [
            ((1, 28, 28), 2, 8, 2),
            ((3, 32, 32), 2, 8, 2),
            ((1, 28, 28), 2, 8, 1),
            ((1, 24, 40), 3, 4, 2),
            ((2, 17, 12), 3, 6, 2),
            ((1, 5, 3), 1, 1, 2),
        ],
        every=3,
    ),
)
def test_it_is_the_librarys_transform(shape: tuple[int, int, int], scales: int, orientations: int, depth: int) -> None:
    x = images(3, *shape)
    expected = ScatteringTorch2D(J=scales, shape=shape[1:], L=orientations, max_order=depth)(x).flatten(1, 2)
    found = ScatteringModule(*shape[1:], scales=scales, orientations=orientations, depth=depth, groups=None)(x)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=FLOAT32)


@pytest.mark.parametrize(
    ("shape", "outputs"), thinned([((1, 28, 28), (81, 7, 7)), ((3, 32, 32), (243, 8, 8)), ((1, 33, 47), (81, 8, 11))], every=3)
)
@pytest.mark.parametrize("depth", [1, 2])
def test_the_spec_knows_the_shape(shape: tuple[int, ...], outputs: tuple[int, ...], depth: int) -> None:
    layer = Scattering.model_validate({"scales": 2, "depth": depth, "normalisation_groups": None})
    model, facts = real(layer, Flatten(), Linear(outputs=10)), facts_of(shape, is_complex=False)
    front, _ = split_front(built(model, facts))
    stage = sequential_shapes(model, facts)[0]
    assert tuple(front[0](records(facts)).shape[1:]) == stage.outputs
    if depth == 2:
        assert stage.outputs == outputs


def test_chunks_of_images_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(5, 2, 12, 12)
    settings = {"scales": 2, "orientations": 4, "depth": 2, "groups": 5}
    whole = ScatteringModule(12, 12, **settings)(x)
    monkeypatch.setattr(module, "NUMBERS_AT_ONCE", 3 * 4 * 20 * 20)  # three of the ten images
    torch.testing.assert_close(ScatteringModule(12, 12, **settings)(x), whole, rtol=0.0, atol=FLOAT32)


def test_every_record_is_normalised_by_its_own_numbers() -> None:
    x = images(4, 1, 12, 12)
    plain = ScatteringModule(12, 12, scales=2, orientations=4, depth=2, groups=None)(x)
    found = ScatteringModule(12, 12, scales=2, orientations=4, depth=2, groups=5)(x)
    groups = plain.reshape(4, 5, -1).to(torch.float64)
    variances = groups.var(dim=2, keepdim=True, correction=0)
    expected = (groups - groups.mean(dim=2, keepdim=True)) / (variances + module.FLOOR).sqrt()
    torch.testing.assert_close(found, expected.reshape(found.shape).float(), rtol=1e-3, atol=1e-4)  # small variances from float32 sums


def test_no_record_moves_another() -> None:
    x = images(3, 1, 12, 12).requires_grad_()
    ScatteringModule(12, 12, scales=2, orientations=4, depth=2, groups=5)(x)[1].square().sum().backward()
    assert x.grad is not None
    assert [bool(part.abs().max() > 0) for part in x.grad] == [False, True, False]


def test_a_constant_image_has_no_details() -> None:
    coefficients = ScatteringModule(16, 16, scales=2, orientations=8, depth=2, groups=None)(torch.full((1, 1, 16, 16), 0.5))
    assert coefficients[0, 0].mean() == pytest.approx(0.5, rel=1e-3)  # the library's pi is 3.1415, and its Gaussian is cut off
    assert float(coefficients[0, 1:].abs().max()) < 1e-6


def test_a_group_of_equal_numbers_becomes_zeros() -> None:
    found = ScatteringModule(16, 16, scales=2, orientations=8, depth=2, groups=27)(torch.zeros(1, 1, 16, 16))
    assert torch.equal(found, torch.zeros_like(found))


def test_too_small_an_image_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"greater than 2\^scales = 8, got \(8, 9\)"):
        ScatteringModule(8, 9, scales=3, orientations=4, depth=2, groups=None)


def test_it_is_computed_once_in_front_and_has_nothing_to_learn() -> None:
    facts = facts_of((1, 12, 12), is_complex=False)
    model = real(Scattering(scales=2, normalisation_groups=27), Flatten(), Linear(outputs=10))
    network = built(model, facts)
    front, rest = split_front(network)
    x = records(facts, count=RECORDS_AT_ONCE[0] + 3)
    assert [name for name, _ in rest.named_parameters()] == ["2_linear.weight", "2_linear.bias"]
    assert not list(front.parameters())
    torch.testing.assert_close(rest(passed_through(front, x)), network(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "shape", "text"),
    [
        ((Scattering(scales=3, normalisation_groups=None),), (1, 8, 9), r"layers\[0\] must be small enough for its input \(scattering\)"),
        (
            (Scattering(scales=2, normalisation_groups=None),),
            (1, 40),
            r"layers\[0\] must be applied to records with two spatial axes \(scattering\)",
        ),
        ((Scattering(scales=2, normalisation_groups=27),), (2, 8, 8), None),
        (
            (Scattering(scales=2, normalisation_groups=8),),
            (1, 28, 28),
            r"layers\[0\].normalisation_groups must be a divisor of 81 channels, got 8",
        ),
        ((Scattering(scales=2, normalisation_groups=81),), (1, 7, 7), "every group has at least two numbers, got '81 groups of a record"),
    ],
)
def test_images_that_it_does_not_take_are_refused(layers: tuple[LayerSpec, ...], shape: tuple[int, ...], text: str | None) -> None:
    model, facts = real(*layers, Flatten(), Linear(outputs=10)), facts_of(shape, is_complex=False)
    if text is None:
        check_model(model, facts)
        return
    with pytest.raises(InvalidParameter, match=text):
        check_model(model, facts)


def test_complex_networks_and_a_place_behind_weights_are_refused() -> None:
    layer = Scattering(scales=2, normalisation_groups=None)
    with pytest.raises(ValueError, match=r"model\.numbers must be real with a scattering layer, which takes real images, got 'complex'"):
        Sequential(numbers="complex", layers=(layer, Flatten(), Linear(outputs=10)), head="magnitude")
    with pytest.raises(ValueError, match=r"layers\[1\] must be before all trainable and dropout layers, got 'scattering'"):
        real(Convolution(outputs=1, kernel=1), layer)
