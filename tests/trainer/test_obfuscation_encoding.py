"""From a feature to what is sent: angles, counterparts that are never the record itself, clipping, noise of the stated scale, turns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from zetadp.mechanisms.sampling.source import RandomStream
from zetadp.trainer.algorithms.obfuscation.critic import faked, wrong_angles
from zetadp.trainer.algorithms.obfuscation.encoding import FeatureLaw, angles, clipped, generator_of, hidden, others, strangers
from zetadp.trainer.algorithms.obfuscation.networks import build, divided
from zetadp.trainer.algorithms.obfuscation.trained import Trained
from zetadp.trainer.specs.algorithms.obfuscation import Obfuscation
from zetadp.trainer.specs.obfuscation.methods import AdditionalLayers, Method, Noisy, NoisyRotation, Original, Rotation

CPU = torch.device("cpu")


def _generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _sound(**changes: Any) -> NoisyRotation:
    privacy = {"unit": "image", "adjacency": "replace_one", "delta": 1e-5, "noise_multiplier": 1.0}
    return NoisyRotation.model_validate({"clipping_norm": 2.0, "queries": 1, "privacy": privacy} | changes)


def test_angles_are_uniform_over_the_circle() -> None:
    drawn = angles(20000, _generator(), CPU)
    assert float(drawn.min()) >= 0.0
    assert float(drawn.double().max()) < 2.0 * math.pi
    # Means of cos and sin have a standard deviation of .005, the mean one of .013.
    assert abs(float(drawn.cos().mean())) < 0.02
    assert abs(float(drawn.sin().mean())) < 0.02
    assert abs(float(drawn.mean()) - math.pi) < 0.06


def test_counterparts_are_one_cycle_through_all_records() -> None:
    for seed in range(20):
        chosen = others(torch.arange(7), _generator(seed))
        place, seen = 0, []
        for _ in range(7):
            place = int(chosen[place])
            seen.append(place)
        assert sorted(seen) == list(range(7))


def test_counterparts_of_one_pair_are_each_other() -> None:
    assert others(torch.tensor([4, 9]), _generator()).tolist() == [1, 0]


def test_a_counterpart_is_never_the_same_image() -> None:
    for seed in range(50):
        # Four of six are alike: no cycle does.
        kinds = torch.tensor([1, 1, 2, 1, 3, 1])
        assert (kinds[others(kinds, _generator(seed))] != kinds).all()
        rare = torch.tensor([0] * 30 + [1])
        assert (rare[others(rare, _generator(seed))] != rare).all()


def test_counterparts_differ_from_draw_to_draw() -> None:
    generator = _generator()
    assert not torch.equal(others(torch.arange(20), generator), others(torch.arange(20), generator))


def test_public_counterparts_are_never_the_same_image_and_come_from_everywhere() -> None:
    public = torch.arange(6.0).reshape(6, 1, 1, 1).expand(6, 1, 2, 2).contiguous()
    public[2:] = 9.0
    images = torch.full((400, 1, 2, 2), 9.0)
    chosen = strangers(images, public, _generator())
    assert set(chosen.tolist()) == {0, 1}
    # 400 fair coins: a standard deviation of 10
    assert abs(int(chosen.sum()) - 200) < 50


def test_features_are_clipped_as_whole_vectors() -> None:
    feature = torch.tensor([[[3.0, 4.0]], [[0.3, 0.4]], [[math.nan, 1.0]], [[math.inf, 1.0]], [[0.0, 0.0]], [[1e30, 0.0]]])
    expected = [[[1.2, 1.6]], [[0.3, 0.4]], [[0.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]], [[2.0, 0.0]]]
    assert torch.allclose(clipped(feature, 2.0), torch.tensor(expected))


def test_clippings_gradient_is_its_derivative_and_finite_at_zero() -> None:
    feature = torch.randn((4, 3, 2), generator=_generator(), dtype=torch.float64)
    feature[0] *= 0.1
    assert torch.autograd.gradcheck(lambda x: clipped(x, 1.0), (feature.requires_grad_(),))
    nothing = torch.zeros((2, 3), requires_grad=True)
    clipped(nothing, 1.0).sum().backward()
    assert nothing.grad is not None
    assert nothing.grad.isfinite().all()


def test_the_sound_form_adds_its_noise_to_the_clipped_feature() -> None:
    feature = 50.0 * torch.randn((40, 500), generator=_generator())
    noise = hidden(_sound(), 0.7, feature, _generator(4)) - clipped(feature, 2.0)
    # 20000 numbers: a relative deviation of .005
    assert abs(float(noise.std()) / 0.7 - 1.0) < 0.03
    assert abs(float(noise.mean())) < 0.03


def test_the_noisy_baselines_noise_has_the_features_own_average_magnitude() -> None:
    feature = torch.cat((torch.full((1, 20000), 3.0), torch.full((1, 20000), -0.2)))
    noise = hidden(Noisy(gamma=0.5), 0.0, feature, _generator()) - feature
    assert abs(float(noise[0].abs().mean()) / (0.5 * 3.0) - 1.0) < 0.03
    assert abs(float(noise[1].abs().mean()) / (0.5 * 0.2) - 1.0) < 0.03


@pytest.mark.parametrize("method", [Original(), AdditionalLayers(), Rotation()])
def test_other_methods_send_the_feature_as_it_is(method: Method) -> None:
    feature = torch.randn((3, 4), generator=_generator())
    assert torch.equal(hidden(method, 9.0, feature, _generator()), feature)


def test_made_up_counterparts_have_the_features_mean_and_deviation() -> None:
    features = torch.tensor([2.0, -1.0]) + torch.tensor([0.5, 0.0]) * torch.randn((4000, 2), generator=_generator())
    law = FeatureLaw.of(features.split(900))
    assert torch.allclose(law.mean, features.mean(dim=0), atol=1e-5)
    assert torch.allclose(law.deviation, features.std(dim=0, correction=0), atol=1e-4)
    drawn = law.draw(20000, _generator(6))
    assert abs(float(drawn[:, 0].mean()) - 2.0) < 0.05
    assert abs(float(drawn[:, 0].std()) / 0.5 - 1.0) < 0.06
    assert torch.allclose(drawn[:, 1], law.mean[1].expand(20000), atol=1e-3)


def test_wrong_angles_are_k_less_one_in_turn() -> None:
    wrong = wrong_angles(4, 9, _generator(), CPU)
    assert len(wrong.unique()) == 3
    assert torch.equal(wrong[:3], wrong[3:6])
    many = wrong_angles(1024, 1023, _generator(), CPU)
    assert float(many.min()) >= 0.0
    assert float(many.max()) <= math.pi
    assert abs(float(many.mean()) - math.pi / 2) < 0.12  # a standard deviation of .028


def test_a_fake_is_what_a_wrong_angle_gives() -> None:
    a, b = torch.randn((2, 3, 5), generator=_generator())
    wrong = torch.tensor([0.3, 1.0, 2.9])
    expected = (torch.complex(a, b) * torch.exp(1j * wrong).reshape(3, 1)).real
    assert torch.allclose(faked(a, b, wrong), expected, atol=1e-6)


def _images(count: int) -> Tensor:
    return torch.rand((count, 1, 8, 8), generator=_generator())


def _trained(method: Method, std: float = 0.0) -> Trained:
    network = build(divided(Obfuscation.example().network, method, (1, 8, 8), 10), RandomStream.from_seed(1, "encoding"))
    return Trained(network, method, std, _images(30), lambda: None)


@pytest.mark.parametrize("counterpart", ["other_record", "public", "synthetic"])
def test_what_is_sent_is_the_turned_pair_and_the_key_gives_the_answer_back(counterpart: str) -> None:
    trained, images = _trained(Rotation.model_validate({"counterpart": counterpart})), _images(12)
    encoded = trained.encode(images, _generator())
    pair = torch.complex(encoded.feature, encoded.counterpart)
    turn = torch.exp(1j * encoded.theta).reshape(-1, 1, 1, 1)
    assert torch.allclose(encoded.sent, turn * pair, atol=1e-5)
    assert torch.equal(encoded.feature, trained.features(images))
    assert not torch.equal(encoded.feature, encoded.counterpart)
    back = trained.process(encoded.sent) * turn.reshape(-1, 1).conj()
    assert torch.allclose(back, trained.process(pair), atol=1e-4)
    if counterpart == "other_record":
        assert encoded.counterparts is not None
        assert torch.equal(encoded.counterpart, encoded.feature[encoded.counterparts])
    else:
        assert encoded.counterparts is None


def test_two_encodings_are_independent_and_one_seed_repeats() -> None:
    trained, images, generator = _trained(Rotation()), _images(8), _generator()
    first, second = trained.encode(images, generator), trained.encode(images, generator)
    assert not torch.equal(first.theta, second.theta)
    assert torch.equal(trained.encode(images, _generator()).sent, first.sent)


def test_a_single_record_gets_a_public_counterpart() -> None:
    encoded = _trained(Rotation()).encode(_images(1), _generator())
    assert encoded.counterparts is None
    assert not torch.equal(encoded.feature, encoded.counterpart)


def test_baselines_send_real_features_unturned() -> None:
    trained, images = _trained(AdditionalLayers()), _images(5)
    encoded = trained.encode(images, _generator())
    assert torch.equal(encoded.sent.real, trained.features(images))
    assert float(encoded.sent.imag.abs().max()) == 0.0
    assert float(encoded.theta.abs().max()) == 0.0
    logits = trained.decide(trained.process(encoded.sent).real)
    assert torch.equal(trained.answers(images, _generator()), logits)


def test_the_sound_form_turns_what_it_clipped_and_made_noisy() -> None:
    trained, images = _trained(_sound(clipping_norm=0.5), std=0.3), _images(40)
    assert float(trained.features(images).flatten(1).norm(dim=1).max()) <= 0.5 + 1e-6
    noise = trained.encode(images, _generator()).feature - trained.features(images)
    assert abs(float(noise.std()) / 0.3 - 1.0) < 0.05  # 15360 numbers
    louder = trained.with_noise(3.0).encode(images, _generator()).feature - trained.features(images)
    assert abs(float(louder.std()) / 3.0 - 1.0) < 0.05
    assert trained.public_counterparts(7, _generator()).shape == (7, 6, 8, 8)


def test_streams_give_generators_of_their_own() -> None:
    first, second = (generator_of(RandomStream.from_seed(1, purpose), CPU) for purpose in ("one", "other"))
    again = generator_of(RandomStream.from_seed(1, "one"), CPU)
    drawn = [np.asarray(torch.rand(4, generator=g)) for g in (first, second, again)]
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])
