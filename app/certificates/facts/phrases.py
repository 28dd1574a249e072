r"""Phrases that several readers of a certificate share."""

from __future__ import annotations


def sentence(words: str) -> str:
    """The words with a capital and a full stop.

    >>> sentence("every node takes part")
    'Every node takes part.'
    """
    return f"{words[0].upper()}{words[1:]}."


def so_many(count: int, one: str, several: str) -> str:
    """The number with its noun.

    >>> so_many(1, "witness", "witnesses"), so_many(0, "witness", "witnesses")
    ('1 witness', 'no witnesses')
    """
    return f"{count or 'no'} {one if count == 1 else several}"
