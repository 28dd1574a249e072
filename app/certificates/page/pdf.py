r"""The document as a PDF: text as text, the plot as vectors, the same bytes for the same document. Fonts are the built-in ones.

They contain only Latin characters; any other is shown as Python escapes it.
"""

from __future__ import annotations

from io import BytesIO
from typing import Literal
from xml.sax.saxutils import escape

from reportlab.graphics.shapes import Circle, Drawing, Group, Line, PolyLine, String
from reportlab.lib.colors import Color, HexColor, white
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, KeepTogether, Paragraph, SimpleDocTemplate, Spacer
from reportlab.platypus import Table as PdfTable

from zetadp.app.certificates.page import plot
from zetadp.app.certificates.page.blocks import Block, Bullets, CurvePlot, Document, Section, Table, Text, Tone, Verdict, visible
from zetadp.app.certificates.page.plot import geometry

MARGIN = 20 * mm
WIDTH = A4[0] - 2 * MARGIN
INK, SOFT, RULE, FILL, MARK = HexColor("#1a1d21"), HexColor("#565d66"), HexColor("#d5d9de"), HexColor("#f3f5f7"), HexColor("#1b5e9b")
LOUD, WARN = HexColor("#a3120a"), HexColor("#7a4b00")

_TONES: dict[Tone, Color] = {Tone.STATED: MARK, Tone.WEAK: WARN, Tone.NONE: LOUD}
# A digest can't be broken at a space; CJK wrapping breaks anywhere.
_BODY = ParagraphStyle("body", fontName="Helvetica", fontSize=9.5, leading=13.5, textColor=INK, spaceAfter=4)
_ITEM = ParagraphStyle("item", parent=_BODY, leftIndent=12, bulletIndent=2)
_CAVEAT = ParagraphStyle("caveat", parent=_BODY, fontName="Helvetica-Bold")
_CELL = ParagraphStyle("cell", parent=_BODY, fontSize=8.5, leading=11.5, spaceAfter=0)
_CODE = ParagraphStyle("code", parent=_CELL, fontName="Courier", fontSize=7.8, wordWrap="CJK")
_HEAD = ParagraphStyle("head", parent=_CELL, fontName="Helvetica-Bold", textColor=SOFT)
_TITLE = ParagraphStyle("title", parent=_BODY, fontName="Helvetica-Bold", fontSize=22, leading=27, spaceAfter=2)
_NOTE = ParagraphStyle("note", parent=_BODY, textColor=SOFT, fontSize=8.5, leading=12)
_SECTION = ParagraphStyle(
    "section", parent=_BODY, fontName="Helvetica-Bold", fontSize=13, leading=17, spaceBefore=14, spaceAfter=5, keepWithNext=1
)
_WORD, _PADDING = 5.2, 12.0
"""Points: of a bold character of a header, about, and of a cell."""
_LONGEST_CELL = 1500
"""Characters: a cell has to fit on a page."""


def pdf_of(document: Document) -> bytes:
    """The PDF. ``invariant`` leaves out times and random ids."""
    content = BytesIO()
    template = SimpleDocTemplate(
        content,
        pagesize=A4,
        leftMargin=MARGIN,
        rightMargin=MARGIN,
        topMargin=MARGIN,
        bottomMargin=MARGIN,
        invariant=1,
        lang="en",
        title=_plain(f"{document.title}: {document.verdict.headline}"),
        author="zetadp",
        subject=_plain(document.subtitle),
    )
    story: list[Flowable] = [
        Paragraph(_text(document.title), _TITLE),
        Paragraph(_text(document.subtitle), _NOTE),
        Spacer(0, 8),
        _verdict(document.verdict),
        Spacer(0, 6),
        Paragraph(_text(document.note), _NOTE),
    ]
    for section in document.sections:
        story += _section(section)

    def footer(canvas: Canvas, _: object) -> None:
        canvas.saveState()
        canvas.setFont("Helvetica", 8)
        canvas.setFillColor(SOFT)
        canvas.drawString(MARGIN, 11 * mm, _plain(document.subtitle)[:100])
        canvas.drawRightString(A4[0] - MARGIN, 11 * mm, f"page {canvas.getPageNumber()}")
        canvas.restoreState()

    template.build(story, onFirstPage=footer, onLaterPages=footer)
    return content.getvalue()


def _verdict(verdict: Verdict) -> Flowable:
    color, is_loud = _TONES[verdict.tone], verdict.tone is Tone.NONE
    size = 20 if is_loud else 15
    headline = ParagraphStyle("headline", parent=_BODY, fontName="Helvetica-Bold", fontSize=size, leading=size * 1.25, textColor=color)
    rows = [[Paragraph(_text(verdict.headline), headline)]]
    for caveat in verdict.caveats:
        rows.append([Paragraph(_text(caveat.lead), _CAVEAT)])
        rows += [[Paragraph(_text(line), _ITEM, bulletText="\u2022")] for line in caveat.lines]
    rows += [[Paragraph(_text(line), _BODY)] for line in verdict.lines]
    style = [
        ("BACKGROUND", (0, 0), (-1, -1), FILL),
        ("BOX", (0, 0), (-1, -1), 3 if is_loud else 1, color),
        ("LINEBEFORE", (0, 0), (0, -1), 7, color),
        ("LEFTPADDING", (0, 0), (-1, -1), 14),
        ("TOPPADDING", (0, 0), (0, 0), 9),
        ("BOTTOMPADDING", (0, -1), (-1, -1), 9),
    ]
    return PdfTable(rows, colWidths=[WIDTH], style=style)


def _section(section: Section) -> list[Flowable]:
    heading = Paragraph(_text(section.heading), _SECTION)
    return [heading, *(part for block in section.blocks for part in _block(block))]


def _block(block: Block) -> list[Flowable]:
    match block:
        case Text():
            return [Paragraph(_text(line), _BODY) for line in block.lines]
        case Bullets():
            return [Paragraph(_text(line), _ITEM, bulletText="\u2022") for line in block.lines]
        case Table():
            return [_table(block)]
        case CurvePlot():
            caption = Paragraph("delta as a function of epsilon; the ring marks the certified pair.", _NOTE)
            return [KeepTogether([_plot(block), caption])]


def _table(table: Table) -> Flowable:
    rows = [[Paragraph(_text(name), _HEAD) for name in table.header]]
    rows += [[_cell(cell, is_code=column in table.codes) for column, cell in enumerate(row)] for row in table.rows]
    style = [
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("LINEBELOW", (0, 0), (-1, -1), 0.5, RULE),
        ("LEFTPADDING", (0, 0), (-1, -1), 4),
        ("TOPPADDING", (0, 0), (-1, -1), 3),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 4),
    ]
    return PdfTable(rows, colWidths=_widths(table), repeatRows=1, style=style, spaceBefore=3, spaceAfter=6)


def _cell(text: str, *, is_code: bool) -> Paragraph:
    shown = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}... (more in the certificate file)"
    return Paragraph(_text(shown), _CODE if is_code else _CELL)


def _widths(table: Table) -> list[float]:
    """Each column has room for its header's longest word; the rest is shared in proportion to the longest texts, within bounds."""
    columns = range(len(table.header))
    least = [_WORD * max(len(word) for word in table.header[column].split()) + _PADDING for column in columns]
    weights = [min(max(len(row[column]) for row in (table.header, *table.rows)), 90) for column in columns]
    rest = WIDTH - sum(least)
    return [narrowest + rest * weight / sum(weights) for narrowest, weight in zip(least, weights, strict=True)]


def _plot(block: CurvePlot) -> Drawing:
    drawn, height, bottom = geometry(block), plot.HEIGHT, plot.HEIGHT - plot.BOTTOM
    group = Group()

    def line(first: float, top: float, second: float, low: float) -> None:
        group.add(Line(first, height - top, second, height - low, strokeColor=RULE, strokeWidth=0.8))

    def label(across: float, down: float, text: str, anchor: Literal["start", "middle", "end"]) -> None:
        group.add(String(across, height - down, text, fontName="Helvetica", fontSize=11, fillColor=SOFT, textAnchor=anchor))

    for mark in drawn.upwards:
        line(plot.LEFT, mark.place, plot.WIDTH - plot.RIGHT, mark.place)
        label(plot.LEFT - 8, mark.place + 4, mark.label, "end")
    for mark in drawn.across:
        line(mark.place, bottom, mark.place, bottom + 5)
        label(mark.place, bottom + 19, mark.label, "middle")
    line(plot.LEFT, plot.TOP, plot.LEFT, bottom)
    label((plot.LEFT + plot.WIDTH - plot.RIGHT) / 2, height - 8, "epsilon", "middle")
    label(plot.LEFT + 6, plot.TOP - 5, "delta", "start")
    if drawn.steps:
        flat = [value for across, down in drawn.steps for value in (across, height - down)]
        group.add(PolyLine(flat, strokeColor=MARK, strokeWidth=1.8))
    for across, down in drawn.dots:
        group.add(Circle(across, height - down, 2.8, fillColor=MARK, strokeColor=None))
    if drawn.certified is not None:
        across, down = drawn.certified
        group.add(Circle(across, height - down, 4.5, fillColor=white, strokeColor=LOUD, strokeWidth=2))
    scale = WIDTH / plot.WIDTH
    group.transform = (scale, 0, 0, scale, 0, 0)
    return Drawing(WIDTH, height * scale, group)


def _text(text: str) -> str:
    """For a paragraph, which reads markup: none of the text's own is left."""
    return escape(_plain(text))


def _plain(text: str) -> str:
    """The text with only characters that the fonts have."""
    return visible(text).encode("cp1252", "backslashreplace").decode("cp1252")
