r"""The document as plain text, for a terminal: about 40 lines, without the sections of figures and digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zetadp.app.certificates.facts.statement import PrivacyCertificate
from zetadp.app.certificates.page.blocks import Block, Bullets, CurvePlot, Document, Table, Text
from zetadp.app.certificates.page.content import document_of


def describe(certificate: PrivacyCertificate) -> str:
    """What a certificate says, in words. Nothing is checked here."""
    return text_of(document_of(certificate))


def text_of(document: Document) -> str:
    """The text: the guarantee and what can void it first, then each section."""
    return "\n".join(_lines(document))


def _lines(document: Document) -> Iterator[str]:
    yield document.title.upper()
    yield document.subtitle
    yield ""
    yield document.verdict.headline
    for caveat in document.verdict.caveats:
        yield f"  {caveat.lead}"
        yield from (f"    - {line}" for line in caveat.lines)
    yield from (f"  {line}" for line in document.verdict.lines)
    for section in document.sections:
        if not section.is_detail:
            yield ""
            yield section.heading
            for block in section.blocks:
                yield from (f"  {line}" for line in _block(block))


def _block(block: Block) -> Iterator[str]:
    match block:
        case Text():
            yield from block.lines
        case Bullets():
            yield from (f"- {line}" for line in block.lines)
        case Table():
            yield from _aligned((block.header, *block.rows))
        case CurvePlot():
            yield block.description


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
