"""What other people's runs of Opacus did, read from their histories, with or without Opacus."""

from __future__ import annotations

import math

import numpy as np
import pytest

import zetadp
from zetadp.accountants import leaves
from zetadp.accountants.events import Composed, NonPrivate
from zetadp.integrations.opacus_history import MOST_ENTRIES, event_of_history
from zetadp.mechanisms import InvalidParameter


def test_one_stretch_of_equal_steps_is_dp_sgd() -> None:
    assert event_of_history([(1.1, 0.01, 1000)]) == zetadp.dp_sgd(noise_multiplier=1.1, sampling_probability=0.01, steps=1000)


def test_stretches_are_composed_and_equal_ones_counted_together() -> None:
    found = event_of_history([[1.1, 0.01, 10], [2.0, 0.02, 5], (np.float64(1.1), np.float64(0.01), np.int64(7))])
    assert isinstance(found, Composed)
    counts = {(leaf.mechanism.noise_scale, leaf.probability): count for leaf, count in leaves(found).items()}
    assert counts == {(1.1, 0.01): 17, (2.0, 0.02): 5}


def test_more_stretches_are_never_more_private() -> None:
    short, long = (
        zetadp.profile(event_of_history(history)).epsilon(1e-5) for history in ([(1.1, 0.01, 9)], [(1.1, 0.01, 9), (3.0, 0.1, 1)])
    )
    assert long.lower > short.upper


def test_no_noise_is_no_guarantee() -> None:
    assert event_of_history([(0.0, 0.01, 1)]) == NonPrivate(reason="Opacus added no noise (noise_multiplier 0)")
    assert zetadp.profile(event_of_history([(1.0, 0.01, 1), (0.0, 0.01, 1)])).epsilon(1e-5).upper == math.inf


@pytest.mark.parametrize(
    ("history", "text"),
    [
        ([], "history must be 1 to 10000 different pairs of noise_multiplier and sample_rate, got 0"),
        ([(1.0, 0.01)], r"history\[0\] must be \(noise_multiplier, sample_rate, num_steps\), got \(1.0, 0.01\)"),
        (["abc"], r"history\[0\] must be \(noise_multiplier, sample_rate, num_steps\), got 'abc'"),
        ([(1.0, 0.01, 1), (-1.0, 0.01, 1)], r"history\[1\].noise_multiplier must be in .*, got -1.0"),
        ([(math.nan, 0.01, 1)], r"history\[0\].noise_multiplier must be in .*, got nan"),
        ([(1.0, 1.01, 1)], r"history\[0\].sample_rate must be in \[1e-50, 1\], got 1.01"),
        ([(0.0, 1.01, 1)], r"history\[0\].sample_rate must be in \[1e-50, 1\], got 1.01"),
        ([(1.0, 0.01, 1.5)], r"history\[0\].num_steps must be a whole number .*, got 1.5"),
        ([(1.0, 0.01, 0)], r"history\[0\].num_steps must be a whole number .*, got 0"),
        ([("1.0", 0.01, 1)], r"history\[0\].noise_multiplier must be a number, got '1.0'"),
    ],
)
def test_what_is_no_history_is_refused_with_the_place(history: list[tuple[float, float, int]], text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        event_of_history(history)


def test_a_history_that_changes_at_every_step_has_a_limit() -> None:
    with pytest.raises(InvalidParameter, match="10000 different pairs"):
        event_of_history((1.0 + number / MOST_ENTRIES, 0.01, 1) for number in range(MOST_ENTRIES + 1))
