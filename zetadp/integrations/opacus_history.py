r"""Reads the history of any of Opacus's accountants. Opacus itself isn't needed: a saved history is enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from zetadp.accountants.events import Composed, Event, NonPrivate
from zetadp.accountants.short_forms import dp_sgd
from zetadp.mechanisms.errors import InvalidParameter

MOST_ENTRIES = 10_000
"""A ``Composed`` event holds as many parts."""


def event_of_history(history: Iterable[Sequence[float]]) -> Event:
    r"""What an Opacus run did, if its samples were Poisson samples.

    A history is a list of (noise_multiplier, sample_rate, num_steps). It says nothing of how batches were drawn, and Opacus writes the
    same one for shuffled batches, whose guarantee is another one. So this event is true only of a run that

    * sampled by Poisson: ``make_private(poisson_sampling=True)``, which is Opacus's default, with the loader that it returned;
    * made each step from one such sample. Steps of k batches are written as one sample at k times the rate, though a record may be in
      several of them; Opacus refuses such steps where it samples by Poisson. ``BatchMemoryManager`` splits one sample, and is fine;
    * trained on a number of records that is public: Opacus's sample rate and its mean of gradients come from it;
    * released nothing else, such as a clipping bound that adapts to the data;
    * added noise of real numbers. Opacus draws floats, whose gaps can tell members apart; its ``secure_mode`` is meant to hide them.

    Neighbours differ by one record that one of them lacks (``add_remove``). Equal entries are counted together.

    Args:
      history: of an accountant (``engine.accountant.history``) or of its state dict; noise_multiplier 0 becomes ``NonPrivate``.
    Raises:
      InvalidParameter: the history is empty, an entry isn't three numbers, a number is out of its range, or there are more than 10^4
        different pairs of noise multiplier and sample rate.

    >>> event_of_history([(1.1, 0.01, 500), (1.1, 0.01, 500)]).count
    1000
    """
    steps: dict[tuple[float, float], int] = {}
    for number, entry in enumerate(history):
        multiplier, rate, count = _entry(number, entry)
        steps[multiplier, rate] = steps.get((multiplier, rate), 0) + count
    if not 1 <= len(steps) <= MOST_ENTRIES:
        raise InvalidParameter("history", f"1 to {MOST_ENTRIES} different pairs of noise_multiplier and sample_rate", len(steps))
    parts = tuple(_part(multiplier, rate, count) for (multiplier, rate), count in steps.items())
    return parts[0] if len(parts) == 1 else Composed(events=parts)


def _entry(number: int, entry: Sequence[float]) -> tuple[float, float, int]:
    where = f"history[{number}]"
    if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != 3:
        raise InvalidParameter(where, "(noise_multiplier, sample_rate, num_steps)", entry)
    multiplier, rate, count = entry
    theirs = {"sampling_probability": "sample_rate", "steps": "num_steps"}
    try:
        # Without noise there is no such event, and everything else is still checked.
        dp_sgd(noise_multiplier=multiplier or 1.0, sampling_probability=rate, steps=cast("int", count))
    except InvalidParameter as error:
        raise InvalidParameter(f"{where}.{theirs.get(error.field, error.field)}", error.expected, error.got) from None
    return float(multiplier), float(rate), int(count)


def _part(multiplier: float, rate: float, count: int) -> Event:
    if multiplier == 0.0:
        return NonPrivate(reason="Opacus added no noise (noise_multiplier 0)")
    return dp_sgd(noise_multiplier=multiplier, sampling_probability=rate, steps=count)
