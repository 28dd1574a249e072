"""A certificate to read: the verdict first, everything escaped, no script, and the same bytes every time."""

from __future__ import annotations

import re
import zlib
from base64 import a85decode
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.app.certificate_kinds import KINDS, UNGUARANTEED
from tests.app.certificates_harness import MadeWhenAsked, forged
from tests.selection import thinned
from zetadp.app.certificates.facts.guarantee import ApproximateDp
from zetadp.app.certificates.log.evidence import Evidence
from zetadp.app.certificates.page.blocks import CurvePlot, Document, Table, Tone
from zetadp.app.certificates.page.content import document_of
from zetadp.app.certificates.page.html import content_security_policy, html_of
from zetadp.app.certificates.page.pdf import pdf_of
from zetadp.app.certificates.page.plot import HEIGHT, WIDTH, geometry
from zetadp.app.certificates.page.rendering import rendered
from zetadp.app.certificates.signing.envelope import Envelope, sign
from zetadp.app.certificates.signing.keys import PublicKeySet, jwks, signer
from zetadp.app.certificates.verification.verify import read
from zetadp.app.certificates.words.reading import Reading
from zetadp.app.kit.settings import Settings

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>&\"'\u202e\u0000{{7*7}}"


class Reader(HTMLParser):
    """What a browser would see: tags, the attributes that could do something, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def pdf_text(content: bytes) -> str:
    """The strings that the PDF draws, of whatever streams it has."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", content, re.DOTALL):
        drawn = zlib.decompress(a85decode(b"<~" + stream.strip(), adobe=True)).replace(b") Tj (", b"")
        found += re.findall(rb"\(((?:[^()\\]|\\.)*)\) Tj", drawn)
    return b" ".join(found).decode("cp1252")


@pytest.fixture(scope="module")
def documents(envelopes: dict[str, bytes], keys: PublicKeySet) -> dict[str, Document]:
    return MadeWhenAsked(lambda name: rendered(envelopes[name], keys, Evidence()))


@pytest.mark.parametrize("kind", thinned(KINDS, every=4))
def test_every_kind_is_a_page_and_a_pdf_that_say_the_verdict_first(kind: str, documents: dict[str, Document]) -> None:
    document = documents[kind]
    page, drawn = Reader(html_of(document)), pdf_text(pdf_of(document))
    none = "THERE IS NO PRIVACY GUARANTEE"
    assert (none in document.verdict.headline) == (kind in UNGUARANTEED)
    assert (document.verdict.tone is Tone.NONE) == (kind in UNGUARANTEED)
    for text in (page.text[page.text.index("Privacy certificate", 50) :], drawn):
        assert document.verdict.headline in text
        assert text.index(document.verdict.headline) < text.index("What was done")


@pytest.mark.parametrize("kind", thinned(UNGUARANTEED, every=4))
def test_without_a_guarantee_no_epsilon_is_shown_and_no_curve(kind: str, documents: dict[str, Document]) -> None:
    blocks = [block for section in documents[kind].sections for block in section.blocks]
    assert not any(isinstance(block, CurvePlot) for block in blocks)
    assert not any(cell == "epsilon, at delta" for block in blocks if isinstance(block, Table) for row in block.rows for cell in row)


def test_the_figures_are_those_of_the_certificate(envelope: bytes, keys: PublicKeySet) -> None:
    guarantee = read(envelope).guarantee
    assert isinstance(guarantee, ApproximateDp)
    document = rendered(envelope, keys, Evidence())
    for text in (Reader(html_of(document)).text, pdf_text(pdf_of(document))):
        assert f"Privacy guarantee: epsilon {guarantee.epsilon} at delta {guarantee.delta}" in text
        for point in guarantee.delta_curve:
            assert point.delta in text


def test_what_can_void_it_stands_between_epsilon_and_what_it_means(envelope: bytes, keys: PublicKeySet) -> None:
    document, assumptions = rendered(envelope, keys, Evidence()), Reading(read(envelope)).assumptions
    assert assumptions
    drawn = pdf_text(pdf_of(document)).replace("\\(", "(").replace("\\)", ")").replace("\\177", "")  # brackets are escaped; bullets
    for text in (" ".join(Reader(html_of(document)).text.split()), " ".join(drawn.split())):
        # The page's title has the headline too.
        box = text[text.rindex(document.verdict.headline) :]
        places = [box.index(part) for part in (*assumptions, "the held-out records:", "A test that names this very", "Protected:")]
        assert places == sorted(places)
        assert box[len(document.verdict.headline) : places[0]].strip() == "It holds only if all of the following hold:"


def test_a_guarantee_that_hides_little_is_called_weak(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    def enlarge(statement: dict[str, dict[str, dict[str, object]]]) -> None:
        statement["predicate"]["guarantee"] |= {"epsilon": "9", "delta_curve": [["9", "1e-05"]]}

    document = rendered(forged(envelope, settings, enlarge), keys, Evidence())
    assert document.verdict.tone is Tone.WEAK
    assert document.verdict.headline.startswith("Weak privacy guarantee")


def test_a_guarantee_has_the_word_that_pages_have_for_its_delta_and_units(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    for delta, name in (("1e-06", "Strong"), ("1e-05", "Moderate"), ("1e-04", "Weak"), ("0.002", "Almost no")):

        def change(statement: dict[str, dict[str, dict[str, object]]], delta: str = delta) -> None:
            pair = {"epsilon": "0.5", "delta": delta}
            statement["predicate"]["guarantee"] |= {**pair, "delta_curve": [["0.5", delta]]}

        verdict = rendered(forged(envelope, settings, change), keys, Evidence()).verdict
        assert f"{name} protection." in [line[: len(name) + 12] for line in verdict.lines]
        assert verdict.headline.startswith("Weak") == (name in ("Weak", "Almost no"))


def test_a_broken_signature_is_the_only_headline(envelope: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    document = rendered(envelope, jwks(Settings(data_dir=tmp_path_factory.mktemp("others"))), Evidence())
    assert (document.verdict.tone, document.verdict.headline) == (Tone.NONE, "DO NOT RELY ON THIS CERTIFICATE")
    assert "Privacy guarantee:" not in Reader(html_of(document)).text


def test_without_keys_the_page_says_that_the_signature_was_not_checked(envelope: bytes) -> None:
    document = rendered(envelope, None, Evidence())
    assert (document.verdict.tone, document.verdict.headline.partition(".")[0]) == (Tone.WEAK, "Not verified")
    assert document.verdict.caveats[0].lead.startswith("No keys were given")
    last = document.sections[-1].blocks[0]
    assert isinstance(last, Table)
    assert last.rows[0][:2] == ("signature", "not checked")


def test_what_a_certificate_says_is_text_and_nothing_else(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    def poison(statement: dict[str, dict[str, dict[str, object]]]) -> None:
        statement["predicate"]["data"]["description"] = HOSTILE
        statement["predicate"]["run"]["generator"] = HOSTILE
        statement["predicate"]["environment"]["versions"] = {HOSTILE: HOSTILE}

    document = rendered(forged(envelope, settings, poison), keys, Evidence())
    page, plain = Reader(html_of(document)), Reader(html_of(rendered(envelope, keys, Evidence())))
    assert sorted(set(page.tags)) == sorted(set(plain.tags))
    assert "<script>alert(1)</script><img src=x" in page.text
    assert "{{7*7}}" in page.text
    assert "\u202e" not in page.text
    assert "<script>alert\\(1\\)</script>" in pdf_text(pdf_of(document))


def test_the_page_has_no_script_and_asks_nobody_for_anything(envelope: bytes, keys: PublicKeySet) -> None:
    text = html_of(rendered(envelope, keys, Evidence()))
    page = Reader(text)
    assert not {"script", "link", "iframe", "img", "object", "form", "a", "base"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href", "style") or name.startswith("on")]
    assert "url(" not in text
    assert f'content="{content_security_policy()}"'.replace("'", "&#39;") in text
    assert content_security_policy().startswith("default-src 'none'; style-src 'sha256-")


def test_the_same_certificate_gives_the_same_bytes(envelope: bytes, keys: PublicKeySet) -> None:
    first, second = (rendered(envelope, keys, Evidence()) for _ in range(2))
    assert (html_of(first), pdf_of(first)) == (html_of(second), pdf_of(second))


def test_the_pdf_has_numbered_pages_of_text_and_no_picture(envelope: bytes, keys: PublicKeySet) -> None:
    content = pdf_of(rendered(envelope, keys, Evidence()))
    pages = content.count(b"/Type /Page\n") + content.count(b"/Type /Page ")
    assert pages >= 3
    assert all(f"page {number}" in pdf_text(content) for number in range(1, pages + 1))
    assert b"/Subtype /Image" not in content


def test_cells_of_any_length_fit_on_pages(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    document = rendered(envelope, keys, Evidence())
    long = replace(document, sections=(replace(document.sections[0], blocks=(Table(("a", "b"), (("x" * 20_000, "word " * 4000),)),)),))
    assert pdf_of(long).startswith(b"%PDF")


@pytest.mark.parametrize(
    "points",
    [
        ((0.0, 1.0),),
        ((0.0, 0.5), (1.0, 1e-300)),
        ((1.0, 0.0),),
        ((0.0, 0.1), (700.0, 0.0)),
        ((1e-9, 0.25), (2e-9, 0.125)),
        ((5.0, 1e-5),),
    ],
)
def test_any_curve_can_be_drawn_within_its_frame(points: tuple[tuple[float, float], ...]) -> None:
    drawn = geometry(CurvePlot(points, points[0], ""))
    assert all(0 <= across <= WIDTH and 0 <= down <= HEIGHT for across, down in (*drawn.steps, *drawn.dots))


def test_between_two_points_the_plot_claims_the_left_ones_delta_alone() -> None:
    drawn = geometry(CurvePlot(((0.0, 1e-2), (1.0, 1e-4)), (1.0, 1e-4), ""))
    (first, corner, second, _end) = drawn.steps
    assert corner == (second[0], first[1])


def test_a_statement_without_checks_still_is_a_document(envelope: bytes) -> None:
    assert document_of(read(envelope)).title == "Privacy certificate"


def test_a_jws_is_the_same_document(envelope: bytes, settings: Settings, keys: PublicKeySet) -> None:
    again = sign(Envelope.model_validate_json(envelope).content, signer(settings))
    assert rendered(again, keys, Evidence()) == rendered(envelope, keys, Evidence())
