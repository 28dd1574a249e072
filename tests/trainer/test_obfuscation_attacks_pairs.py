"""The candidate-pair test and the repeated query, on features that are drawn: exact without noise, within the claim with it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator, Tensor

from tests.trainer.obfuscation_schemes import Plain, RandomConvolution, attacker, digits, generator, made_up
from zetadp.trainer.algorithms.obfuscation.attacks.candidates import Verdicts, candidate_figures, residuals, threshold_of
from zetadp.trainer.algorithms.obfuscation.attacks.intervals import Figures
from zetadp.trainer.algorithms.obfuscation.attacks.repeats import recovered, relative_errors, repeat_figure
from zetadp.trainer.algorithms.obfuscation.target import Encoded, Ground, Scheme
from zetadp.trainer.specs.findings.attacks import AttackFigure

COORDINATES = 512


def gaussian(shape: tuple[int, int], source: Generator) -> Tensor:
    return torch.randn(shape, generator=source)


def unit_rows(shape: tuple[int, int], source: Generator) -> Tensor:
    rows = gaussian(shape, source)
    return rows / rows.norm(dim=1, keepdim=True)


def ground_of(victims: int, *, unit: bool = False) -> Ground:
    source = generator(21)
    draw = unit_rows if unit else gaussian
    return made_up(draw((500, COORDINATES), source), draw((victims, COORDINATES), source))


def rates(scheme: Scheme, ground: Ground) -> tuple[AttackFigure, AttackFigure]:
    who = attacker(scheme, ground)
    true, false = candidate_figures(who, who.encode(ground.victim_images, generator(22)), Figures(generator(23)))
    return true, false


def pairs_of(records: int, counterparts: Tensor | None) -> Encoded:
    """Of which only who is whose counterpart matters."""
    nothing = torch.zeros(records, records)
    return Encoded(torch.complex(nothing, nothing), torch.zeros(records), nothing, nothing, counterparts)


def test_every_pair_among_a_thousand_gaussian_features_is_found_and_none_else() -> None:
    true, false = rates(Plain(), ground_of(1000))
    assert (true.value, true.trials) == (1.0, 2000)
    assert (false.value, false.trials) == (0.0, 998_000)
    # Trials that share a victim aren't independent: the intervals are those of 1000.
    assert true.lower == pytest.approx(0.025 ** (1 / 1000), rel=1e-6)
    assert false.upper == pytest.approx(1.0 - 0.025 ** (1 / 1000), rel=1e-6)
    assert (true.chance, false.chance) == (0.0, 1.0)


def test_only_the_own_image_is_asked_for_where_the_counterpart_is_nobodys() -> None:
    true, false = rates(Plain(drawn=gaussian), ground_of(50))
    assert (true.value, true.trials, false.trials) == (1.0, 50, 50 * 49)


def test_pairs_of_digits_are_found() -> None:
    ground = digits(200)
    true, false = rates(RandomConvolution(ground), ground)
    assert (true.value, false.value) == (1.0, 0.0)


def test_a_public_counterpart_is_no_wrong_name() -> None:
    # The attacker knows whom it took for b in its own encodings: they don't blur its threshold.
    ground = digits(100)
    true, false = rates(RandomConvolution(ground, public=True), ground)
    assert (true.value, true.trials, false.value) == (1.0, 100, 0.0)


def test_with_noise_nobody_is_named_more_often_than_the_guarantee_allows() -> None:
    # mu = 2 C / sigma = 0.5 for unit features: no test's rates differ by more than 2 Phi(mu / 2) - 1 = 0.1974.
    ground = ground_of(1000, unit=True)
    true, false = rates(Plain(drawn=unit_rows, noise=4.0), ground)
    assert true.value - false.value < math.erf(0.25 / math.sqrt(2.0)) + (true.upper - true.value)
    assert false.value < 0.05


def test_with_little_noise_the_test_still_names_its_victims() -> None:
    true, false = rates(Plain(drawn=unit_rows, noise=0.01), ground_of(300, unit=True))
    assert true.value == 1.0
    assert false.value == 0.0


def test_a_feature_of_zeros_is_never_named() -> None:
    ground = ground_of(40)
    ground.victim_images[0] = 0.0
    true, false = rates(Plain(drawn=gaussian), ground)
    assert true.value == pytest.approx(39 / 40)
    assert false.value == 0.0


def test_who_has_the_same_feature_as_a_member_is_one() -> None:
    ground = ground_of(40)
    ground.victim_images[7] = ground.victim_images[3]
    ground.public_images[7] = ground.public_images[3]
    true, false = rates(Plain(drawn=gaussian), ground)
    assert (true.value, true.trials) == (1.0, 42)
    assert (false.value, false.trials) == (0.0, 40 * 40 - 42)


def test_a_threshold_lies_midway_in_logarithms() -> None:
    own = Verdicts(torch.tensor([[1e-6, 0.04], [0.09, 1e-8]], dtype=torch.float64), torch.eye(2), pairs_of(2, None))
    assert threshold_of(own) == pytest.approx(math.sqrt(1e-6 * 0.04))


def test_counterparts_count_as_members() -> None:
    found = Verdicts(torch.arange(9.0, dtype=torch.float64).view(3, 3), torch.eye(3), pairs_of(3, torch.tensor([1, 2, 0])))
    assert (found.members.tolist(), found.others.tolist()) == ([0.0, 1.0, 4.0, 5.0, 6.0, 8.0], [2.0, 3.0, 7.0])


def test_residuals_are_sines_of_the_angle_to_the_plane() -> None:
    who = attacker(Plain(), ground_of(2))
    sent = torch.tensor([[1.0 + 2.0j, 0.5 - 1.0j, 0.0]])
    candidates = torch.tensor([[3.0, -1.0, 0.0], [0.0, 3.0, 4.0]])
    assert residuals(sent, candidates, who).tolist() == [pytest.approx([0.0, 0.8], abs=1e-7)]


def test_two_encodings_give_the_feature_away_exactly() -> None:
    ground = ground_of(200)
    who = attacker(Plain(drawn=gaussian, dtype=torch.float64), ground)
    figure = repeat_figure(who, who.encode(ground.victim_images, generator(24)), Figures(generator(25)))
    assert figure.upper < 1e-10
    assert figure.chance == pytest.approx(1.0, abs=0.05)


def test_two_encodings_in_float32_give_the_feature_away_to_a_thousandth() -> None:
    ground = digits(100)
    who = attacker(RandomConvolution(ground), ground)
    figure = repeat_figure(who, who.encode(ground.victim_images, generator(24)), Figures(generator(25)))
    assert figure.upper < 1e-3


def test_inputs_that_differ_by_a_twentieth_are_recovered_nearly() -> None:
    source, scheme = generator(26), Plain(drawn=gaussian, dtype=torch.float64)
    rows = gaussian((200, COORDINATES), source).double()
    off = gaussian((200, COORDINATES), source).double()
    first, second = scheme.encode(rows, source), scheme.encode(rows + 0.05 * off, source)
    errors = relative_errors(recovered(first.sent, second.sent, attacker(scheme, ground_of(2))), rows)
    assert float(errors.median()) < 0.06


def test_noise_between_two_encodings_leaves_little() -> None:
    ground = ground_of(100, unit=True)
    who = attacker(Plain(drawn=unit_rows, noise=4.0), ground)
    figure = repeat_figure(who, who.encode(ground.victim_images, generator(24)), Figures(generator(25)))
    assert figure.lower > figure.chance > 0.9


def test_recovered_features_of_zeros_count_as_lost() -> None:
    assert relative_errors(torch.zeros(1, 4, dtype=torch.float64), torch.zeros(1, 4)).tolist() == [1.0]
