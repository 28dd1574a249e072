r"""The parts of a readable certificate, independent of page, PDF or text. Texts are plain; each renderer escapes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import final

from zetadp.app.certificates.words.caveats import Caveat


def visible(text: str) -> str:
    r"""The text without invisible characters: control characters, and those that change the text direction.

    >>> visible("no\u202eguarantee\nat all")
    'no guarantee at all'
    """
    return "".join(character if character.isprintable() else " " for character in text)


class Tone(StrEnum):
    """How loud the verdict is: ``stated`` for a guarantee, ``weak`` for one that hides little, ``none`` for everything else."""

    STATED = "stated"
    WEAK = "weak"
    NONE = "none"


@final
@dataclass(frozen=True)
class Verdict:
    """What a reader must not miss, in this order: a headline, what can void it, and what it means in plain words."""

    tone: Tone
    headline: str
    caveats: tuple[Caveat, ...]
    lines: tuple[str, ...]


@final
@dataclass(frozen=True)
class Text:
    """Paragraphs."""

    lines: tuple[str, ...]


@final
@dataclass(frozen=True)
class Bullets:
    """A list."""

    lines: tuple[str, ...]


@final
@dataclass(frozen=True)
class Table:
    """Rows under a header; ``codes``: the columns that hold digests or figures, set in a fixed width."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    codes: frozenset[int] = frozenset()


@final
@dataclass(frozen=True)
class CurvePlot:
    """The plot of delta(epsilon): points by rising epsilon, and the certified one."""

    points: tuple[tuple[float, float], ...]
    certified: tuple[float, float]
    description: str


Block = Text | Bullets | Table | CurvePlot


@final
@dataclass(frozen=True)
class Section:
    """A heading and what is under it. ``is_detail``: figures and digests, which plain text leaves to the page and the PDF."""

    heading: str
    blocks: tuple[Block, ...]
    is_detail: bool = False


@final
@dataclass(frozen=True)
class Document:
    """A certificate to read."""

    title: str
    subtitle: str
    verdict: Verdict
    note: str
    sections: tuple[Section, ...]
