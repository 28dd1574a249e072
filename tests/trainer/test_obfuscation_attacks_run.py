"""All attacks together, on random convolutions of digits: what they find with the key, without it, and where there is nothing to find."""

from __future__ import annotations

import pytest
import torch

from tests.selection import thinned
from tests.trainer.obfuscation_schemes import Plain, RandomConvolution, digits, made_up, seed_stream
from zetadp.trainer.algorithms.obfuscation.attacks import curve_figures, run_attacks
from zetadp.trainer.algorithms.obfuscation.attacks.inversion import Pixels
from zetadp.trainer.algorithms.obfuscation.target import Ground, Scheme
from zetadp.trainer.specs.findings.attacks import AttackEffort, AttackFigure, AttackFindings

EFFORT = AttackEffort(steps=150, inversion_steps=150, property_steps=80, batch_size=32, learning_rate=3e-3, angles=48, victims=200)
HASTY = AttackEffort(steps=1, inversion_steps=1, property_steps=1, batch_size=4, angles=8, victims=20)
NAMES_WHEN_TURNED = 31


def attacked(scheme: Scheme, ground: Ground, effort: AttackEffort = HASTY, *, turned: bool = True) -> AttackFindings:
    return run_attacks(scheme, ground, effort, seed_stream=seed_stream(3), turned=turned, tick=lambda: None)


@pytest.fixture(scope="module")
def of_digits() -> AttackFindings:
    ground = digits()
    return attacked(RandomConvolution(ground), ground, EFFORT)


def figure(findings: AttackFindings, attack: str, measure: str) -> AttackFigure:
    (found,) = [figure for figure in findings.figures if (figure.attack, figure.measure) == (attack, measure)]
    return found


@pytest.mark.slow
def test_findings_say_who_was_attacked_with_what(of_digits: AttackFindings) -> None:
    findings = of_digits
    assert (findings.victims, findings.public_records, findings.coordinates) == (200, 1176, 8 * 8 * 8)
    assert len({(found.attack, found.measure) for found in findings.figures}) == len(findings.figures) == NAMES_WHEN_TURNED
    assert set(findings.attackers) == {
        "angle_by_learned_quadratures",
        "inversion_by_angle",
        "inversion_direct",
        "property_from_images",
        "property_from_features",
        "property_from_reconstructions",
    }
    assert "150 steps" in findings.attackers["angle_by_learned_quadratures"]


@pytest.mark.slow
def test_the_image_comes_back_without_the_key_nearly_as_with_it(of_digits: AttackFindings) -> None:
    by_angle, with_key, blind = (
        figure(of_digits, f"inversion_{name}", "mean_squared_error") for name in ("by_angle", "with_key", "mean_image")
    )
    assert by_angle.value < 1.2 * with_key.value < 0.4 * blind.lower
    assert blind.value == blind.chance == by_angle.chance
    assert blind.value == pytest.approx(0.0738, abs=0.003)  # errata, sub-table O9: of all 597 victims


@pytest.mark.slow
def test_planes_give_an_image_better_than_the_mean(of_digits: AttackFindings) -> None:
    direct = figure(of_digits, "inversion_direct", "mean_squared_error")
    assert direct.upper < 0.95 * direct.chance


@pytest.mark.slow
def test_the_answer_is_read_without_the_key(of_digits: AttackFindings) -> None:
    without, scanned, with_key = (figure(of_digits, f"label_{name}", "accuracy") for name in ("without_key", "by_scan", "with_key"))
    assert with_key.value > 0.93
    assert without.value > with_key.value - 0.03
    assert without.chance < 0.15
    assert scanned.lower > 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack",
    [
        "property_from_images",
        "property_from_features",
        "property_from_reconstructions",
        "property_nearest_neighbour",
        "property_three_nearest_neighbours",
        "property_nearest_neighbours",
    ],
)
def test_properties_are_inferred(attack: str, of_digits: AttackFindings) -> None:
    found = figure(of_digits, attack, "accuracy")
    assert found.lower > 0.75
    assert found.chance == pytest.approx(0.5, abs=0.06)


@pytest.mark.slow
def test_the_same_seeds_give_the_same_findings_and_leave_torchs_own_generator_alone() -> None:
    ground = digits(20)
    before = torch.get_rng_state()
    first, second = (attacked(RandomConvolution(ground), ground) for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
def test_a_baseline_has_no_angle_no_pair_and_no_key() -> None:
    ground = digits(100)
    findings = attacked(RandomConvolution(ground, plain=True), ground, EFFORT, turned=False)
    assert {found.attack for found in findings.figures} == {
        "inversion_direct",
        "inversion_mean_image",
        "property_from_images",
        "property_from_features",
        "property_from_reconstructions",
        "property_nearest_neighbour",
        "property_three_nearest_neighbours",
        "property_nearest_neighbours",
        "label_without_key",
    }
    assert figure(findings, "inversion_direct", "mean_squared_error").upper < 0.02
    assert figure(findings, "property_from_features", "accuracy").lower > 0.8
    assert figure(findings, "label_without_key", "accuracy").lower > 0.85


@pytest.mark.slow
def test_noise_on_everything_leaves_every_attack_at_chance() -> None:
    ground = digits(300)
    noisy = AttackEffort(steps=20, inversion_steps=100, property_steps=30, batch_size=32, angles=32)
    findings = attacked(RandomConvolution(ground, noise=100.0, on_b=100.0), ground, noisy)
    for found in findings.figures:
        if found.attack in ("candidate_pair", "repeated_query"):
            continue
        width = max(found.upper - found.value, found.value - found.lower)
        if found.measure == "mean_squared_error":
            assert found.value > 0.9 * found.chance, found
        else:
            # 95 % intervals of some 25 figures: doubled ones don't miss by luck.
            assert abs(found.value - found.chance) <= 2.0 * width, found
    true, false = (figure(findings, "candidate_pair", f"{name}_positive_rate") for name in ("true", "false"))
    assert abs(true.value - false.value) <= 2.0 * (true.upper - true.value)


@pytest.mark.slow
def test_a_curve_shows_images_fading_and_the_angle_staying() -> None:
    ground = digits(150)
    clear, noisy = (
        AttackFindings(
            victims=150,
            public_records=1200,
            coordinates=512,
            attackers={},
            figures=curve_figures(
                RandomConvolution(ground, noise=noise, public=True), ground, EFFORT, seed_stream=seed_stream(3), tick=lambda: None
            ),
        )
        for noise in (0.0, 10.0)
    )

    def values(attack: str, measure: str) -> tuple[float, float]:
        return figure(clear, attack, measure).value, figure(noisy, attack, measure).value

    for attack in ("inversion_by_angle", "inversion_with_key"):
        before, after = values(attack, "mean_squared_error")
        assert before < 0.03 < after
    repeated = figure(noisy, "repeated_query", "median_relative_error")
    assert repeated.lower > repeated.chance
    assert values("candidate_pair", "true_positive_rate")[0] == 1.0
    assert values("candidate_pair", "true_positive_rate")[1] < 0.3
    for accuracy in (values("label_with_key", "accuracy"), values("label_without_key", "accuracy")):
        assert accuracy[0] > 0.85
        assert accuracy[1] < 0.5
    # The noise is on a alone: the axis along which x varies shows the angle ever better.
    before, after = values("angle_by_principal_axis", "mean_error_radians_mod_quarter_turn")
    assert after < 0.03 < before


def test_images_and_features_of_zeros_are_counted_and_give_no_nan() -> None:
    ground = digits(20)
    ground.victim_images[:5] = 0.0
    findings = attacked(RandomConvolution(ground), ground)
    assert figure(findings, "candidate_pair", "true_positive_rate").trials >= 20
    assert figure(findings, "angle_by_mean", "mean_error_radians").trials == 20


def test_features_that_are_always_zero_give_chance_and_no_nan() -> None:
    nothing = torch.zeros(64, 6)
    findings = attacked(Plain(), made_up(nothing, nothing[:20]))
    assert figure(findings, "candidate_pair", "true_positive_rate").value == 0.0
    assert figure(findings, "repeated_query", "median_relative_error").value == 1.0


@pytest.mark.parametrize("size", thinned([pytest.param(size, id=str(size)) for size in ((3, 7, 5), (1, 16, 16), (2, 33, 9))], every=3))
def test_images_of_any_size_are_attacked(size: tuple[int, ...]) -> None:
    class Same:
        def __init__(self) -> None:
            self._plain = Plain()

        def features(self, images: torch.Tensor) -> torch.Tensor:
            return images[:, :, ::2]

        encode = RandomConvolution.encode
        _noise, _on_b, _public = 0.0, 0.0, None

        def process(self, sent: torch.Tensor) -> torch.Tensor:
            return sent

        def decide(self, processed: torch.Tensor) -> torch.Tensor:
            return processed.flatten(1)[:, :2]

    source = torch.Generator().manual_seed(8)
    images, labels = torch.rand(40, *size, generator=source), torch.arange(40) % 2
    ground = Ground(images[:20], labels[:20], labels[:20], images[20:], labels[20:], labels[20:], 2, 2)
    assert figure(attacked(Same(), ground), "candidate_pair", "true_positive_rate").value == 1.0


def test_a_stop_between_pieces_of_work_is_obeyed() -> None:
    ground, left = digits(20), [30]

    class Stopped(Exception):
        pass

    def tick() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Stopped

    with pytest.raises(Stopped):
        run_attacks(RandomConvolution(ground), ground, EFFORT, seed_stream=seed_stream(3), turned=True, tick=tick)


def test_pixels_are_scaled_by_the_public_range() -> None:
    public = torch.tensor([[-1.0, 3.0], [0.0, 1.0]]).view(2, 1, 1, 2)
    pixels = Pixels(public)
    assert pixels.of(public).flatten().tolist() == [0.0, 1.0, 0.25, 0.5]
    assert pixels.mean.flatten().tolist() == [0.125, 0.75]
    assert pixels.errors(torch.zeros(2, 1, 1, 2), public).tolist() == [0.5, pytest.approx(0.15625)]
