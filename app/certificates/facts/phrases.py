r"""Phrases that several readers of a certificate share."""

from __future__ import annotations


def sentence(words: str) -> str:
    """The words with a capital and a full stop.

    >>> sentence("every node takes part")
    'Every node takes part.'
    """
    return f"{words[0].upper()}{words[1:]}."
