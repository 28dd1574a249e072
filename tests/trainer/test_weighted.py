r"""Weighted sums of vectors: the loop in C and torch's operations to the bit, against exact fractions, and whose memory is written over."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer.encodings import encoded
from tests.trainer.test_buffers import TWO
from tests.trainer.test_inverse_bands import NOISES, OWN, STEPS
from zetadp.trainer.engine.noise import releasing, weighted
from zetadp.trainer.engine.noise.bands import BandedSums
from zetadp.trainer.engine.noise.buffers import BufferedSums
from zetadp.trainer.engine.noise.inverse_bands import InverseBandedSums
from zetadp.trainer.engine.noise.weighted import CorrelatedSums, LastVectors, WeightedSum
from zetadp.trainer.specs.strategy import BandedStrategy

NO_LOOPS = "no compiled loops: torch is all there is"
RULES = [
    WeightedSum(()),
    WeightedSum((0.5,), factor=1.0 - 2.0**-30, largest=3.0, bound=2.5, weight=0.3, keeps_sum=True),
    WeightedSum((0.7, -0.2, 0.1), factor=1.0 / 3.0, own=0.9),
    WeightedSum((0.5, 0.25), factor=0.999, largest=8.0, unit=2.0**-20, own=0.75),
]


def _vectors(numbers: int, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(numbers)
    given, *earlier = torch.randn(4, numbers, generator=generator, dtype=torch.float64) * 4.0
    given[0] = math.nan
    return given.to(dtype), [one.clone() for one in earlier]


@pytest.mark.parametrize("into", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("numbers", [1, 511, 512, 1300])
@pytest.mark.parametrize("rule", RULES)
def test_the_loop_gives_torchs_bits(
    rule: WeightedSum, numbers: int, dtype: torch.dtype, into: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept written over the last of the earlier ones, too, and with fewer of them than coefficients."""
    if weighted.COMPILED is None:
        pytest.skip(NO_LOOPS)

    def found(terms: int, over: bool) -> list[Tensor]:
        given, earlier = _vectors(numbers, dtype)
        earlier = earlier[:terms]
        kept = earlier[-1] if over and earlier else torch.full((numbers,), 7.0, dtype=torch.float64)
        return [rule.over(given, earlier, kept, torch.empty(numbers, dtype=into)), kept]

    for terms in range(len(rule.coefficients) + 1):
        for over in (False, True):
            looped = found(terms, over)
            with monkeypatch.context() as patched:
                patched.setattr(weighted, "COMPILED", None)
                expected = found(terms, over)
            for one, other in zip(looped, expected, strict=True):
                assert torch.equal(one.nan_to_num(nan=99.0), other.nan_to_num(nan=99.0))


@pytest.mark.parametrize("rule", RULES)
def test_the_sum_is_that_of_fractions_but_for_rounding(rule: WeightedSum) -> None:
    given, earlier = _vectors(300, torch.float64)
    earlier = earlier[: len(rule.coefficients)]
    kept = torch.empty(300, dtype=torch.float64)
    out = rule.over(given, earlier, kept, torch.empty(300, dtype=torch.float64))
    assert math.isnan(float(out[0]))
    for place in range(1, 300):
        number = min(
            max(Fraction(float(given[place])) * Fraction(rule.factor), Fraction(min(rule.largest, 1e9)) * -1),
            Fraction(min(rule.largest, 1e9)),
        )
        if rule.unit:
            number = round(number / Fraction(rule.unit)) * Fraction(rule.unit)
        total = Fraction(rule.own) * number
        for coefficient, one in zip(rule.coefficients, earlier, strict=True):
            total += Fraction(coefficient) * Fraction(float(one[place]))
        total = min(max(total, Fraction(-min(rule.bound, 1e9))), Fraction(min(rule.bound, 1e9)))
        # The product with the factor may be rounded to the other side of half a unit.
        near = pytest.approx(
            float(total * Fraction(rule.weight)), abs=1e-14 + rule.unit * 1.01 * rule.own * rule.weight * (rule.unit > 0.0)
        )
        assert float(out[place]) == near
        assert float(kept[place]) == pytest.approx(float(total if rule.keeps_sum else number), abs=1e-14 + 1.01 * rule.unit)


def test_the_loop_refuses_vectors_of_other_sizes() -> None:
    if weighted.COMPILED is None:
        pytest.skip(NO_LOOPS)
    rule, vector = WeightedSum((0.5,)), torch.zeros(9, dtype=torch.float64)
    for given, earlier, kept, out in (
        (vector[1:], vector, None, vector),
        (vector, vector[1:], None, vector),
        (vector, vector, vector[1:], vector),
        (vector, vector, None, vector[1:]),
    ):
        with pytest.raises(ValueError, match="other sizes"):
            rule.over(given, [earlier], kept, out)
    of = (1.0, 1.0, 0.0, 1.0, np.zeros(2), (np.zeros(9),), False, 1.0, 1.0, False, np.empty(0))
    with pytest.raises(ValueError, match="other sizes"):
        weighted.COMPILED.weighted(np.zeros(9), False, of, np.zeros(9), False)


def test_the_last_vectors_are_the_newest_first_in_no_more_memory() -> None:
    last = LastVectors(2)
    vectors = []
    for number in range(4):
        room = last.room(torch.zeros(3))
        assert (number >= 2) == any(room is one for one in vectors)
        assert all(last.room(torch.zeros(3), torch.float32) is not one for one in vectors)
        last.add(room.fill_(number))
        vectors.append(room)
    assert [float(one[0]) for one in last.all] == [3.0, 2.0]
    last.clear()
    assert not last.all


MAKERS: dict[str, Callable[[], CorrelatedSums]] = {
    "inverse": lambda: InverseBandedSums(OWN, NOISES[0], 700, STEPS),
    "banded": lambda: BandedSums(BandedStrategy(coefficients=(0.75, 0.375, 0.25)), NOISES[0], 700),
    "buffered": lambda: BufferedSums(TWO, NOISES[0], 700, STEPS),
}


@pytest.mark.parametrize("name", MAKERS)
def test_whole_runs_are_the_same_with_the_loop_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory that is written over: what was encoded, released and decoded in twelve steps, a break in the middle."""
    if weighted.COMPILED is None:
        pytest.skip(NO_LOOPS)

    def run() -> list[Tensor]:
        sums, generator, found = MAKERS[name](), torch.Generator().manual_seed(3), list[Tensor]()
        for step in (*range(1, 7), *range(8, 14)):
            row = encoded(sums, step, torch.randn(700, generator=generator))
            found.append(row.clone())
            row += torch.randn(700, generator=generator, dtype=torch.float64)  # a release over its vector
            found.append(sums.decoded(row, torch.float32).clone())
        return found

    looped = run()
    monkeypatch.setattr(weighted, "COMPILED", None)
    assert all(map(torch.equal, looped, run()))


def _fail_in_the_middle(sums: CorrelatedSums) -> None:
    with sums.encoding(6, torch.ones(700)) as encoding:
        encoding.behind(350).over(torch.ones(350))
        raise RuntimeError("in the middle")


@pytest.mark.parametrize("name", MAKERS)
def test_after_a_step_that_failed_sums_begin_anew(name: str) -> None:
    """What it kept may be half written, over the memory of an earlier step's: with that the next release would hold no sum of the proof."""
    sums, fresh, generator = MAKERS[name](), MAKERS[name](), torch.Generator().manual_seed(4)
    for step in range(1, 6):
        _ = sums.decoded(encoded(sums, step, torch.randn(700, generator=generator)), torch.float32)
    with pytest.raises(RuntimeError, match="in the middle"):
        _fail_in_the_middle(sums)
    total = torch.randn(700, generator=generator)
    assert torch.equal(encoded(sums, 7, total), encoded(fresh, 7, total))
    released = torch.randn(700, generator=generator, dtype=torch.float64)
    assert torch.equal(sums.decoded(released.clone(), torch.float32), fresh.decoded(released, torch.float32))


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_encoded_stays_within_what_noise_is_added_to_as_it_is(name: str) -> None:
    sums, scale = MAKERS[name](), NOISES[0].noise_scale
    for step in range(1, 12):
        row = encoded(sums, step, torch.full((700,), 1e30))
        assert scale < float(row.abs().max()) < releasing.HELD * scale
        _ = sums.decoded(row, torch.float32)
