"""The page of certificates in a real browser: what is dropped on it is checked, the verdict first, and what isn't a certificate says so."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.app.certificate_kinds import BASELINE
from tests.app.certificates_harness import run_of
from tests.app.jobs_harness import submit, wait_for_state
from tests.selection import chosen
from tests.walks.pages import PHONE, Complaints, Service, keep_key
from zetadp.app.certificates.issuing.issue import issue_certificate


@pytest.fixture(scope="module")
def certificate(client: httpx2.Client) -> str:
    """The id of one."""
    job = submit(client)
    wait_for_state(client, job, "succeeded")
    return str(client.get(f"/v1/jobs/{job}").json()["certificate"])


@pytest.fixture(scope="module")
def signed(client: httpx2.Client, certificate: str) -> bytes:
    return client.get(f"/v1/certificates/{certificate}?form=dsse").content


@pytest.fixture
def page(window: Any, service: Service) -> Generator[Any]:
    found = window.new_page()
    found.complaints = Complaints()
    found.complaints.watch(found)
    found.goto(f"{service.address}/certificates")
    yield found
    found.close()


def choose(page: Any, name: str, content: bytes) -> str:
    """Chooses a file of this content; the verdict in words."""
    page.set_input_files("#file", {"name": name, "mimeType": "application/octet-stream", "buffer": content})
    return page.inner_text("#report .verdict-line")


@pytest.mark.slow
def test_a_certificate_is_valid_without_a_key_and_each_check_stands_in_words(page: Any, client: httpx2.Client, signed: bytes) -> None:
    assert not page.is_visible("#forms")
    assert choose(page, "certificate.json", signed) == "Valid."
    found = client.post("/v1/certificates/verify", content=signed).json()["checks"]
    assert page.locator("#report [data-check]").count() == len(found)
    for check in found:
        # A question in words, and not the name that programs know the check by.
        assert page.locator(f'#report [data-check="{check["name"]}"] th').first.inner_text().endswith("?")
    assert page.complaints.lines == []


def test_a_genuine_certificate_without_a_guarantee_isnt_shown_as_good_news(page: Any, service: Service, tmp_path: Path) -> None:
    content = issue_certificate(run_of(BASELINE, tmp_path), service.settings)
    assert choose(page, "certificate.json", content) == "Genuine, but it states that there is no privacy guarantee."
    assert page.locator("#report .notice.good").count() == 0


@pytest.mark.slow
def test_the_same_as_a_jws_is_valid(page: Any, client: httpx2.Client, certificate: str) -> None:
    assert choose(page, "certificate.jws", client.get(f"/v1/certificates/{certificate}?form=jws").content) == "Valid."


@pytest.mark.slow
def test_one_changed_byte_is_found(page: Any, signed: bytes) -> None:
    place = signed.index(b'"payload"') + 100
    forged = signed[:place] + (b"A" if signed[place : place + 1] != b"A" else b"B") + signed[place + 1 :]
    assert choose(page, "certificate.json", forged) == "Don't rely on it: it isn't valid."
    assert "failed" in page.inner_text('#report [data-check="signature"]')


NO_CERTIFICATES = {
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20,
    "text": b"dear reader",
    "markup": b"<img src=x onerror=alert(1)>",
    "other JSON": b'{"payload": "<img src=x onerror=alert(1)>"}',
    "three parts": b"eyJ.eyJ.eyJ",
    "long": b"9" * 10_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("what", chosen(NO_CERTIFICATES, ["a picture"]))
def test_what_isnt_a_certificate_says_so(what: str, page: Any) -> None:
    assert choose(page, "something", NO_CERTIFICATES[what]) == "This isn't a certificate."
    assert page.locator("main img").count() == 0


@pytest.mark.slow
def test_an_empty_file_and_a_huge_one_are_refused_here(page: Any) -> None:
    for content, words in ((b"", "is empty"), (b"x" * (9 * 2**20), "too large for a certificate")):
        page.set_input_files("#file", {"name": "f", "mimeType": "text/plain", "buffer": content})
        page.locator("#file-problem", has_text=words).wait_for()


DROP = """([text]) => {
  const moved = new DataTransfer();
  moved.items.add(new File([text], "dropped.json"));
  document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: moved, bubbles: true, cancelable: true}));
}"""


@pytest.mark.slow
def test_a_dropped_file_is_checked_as_a_chosen_one(page: Any, signed: bytes) -> None:
    page.evaluate(DROP, [signed.decode()])
    assert page.inner_text("#report .verdict-line") == "Valid."
    assert "dropped.json" in page.inner_text("#report")


@pytest.mark.slow
def test_one_that_is_looked_up_is_read_checked_and_proved_to_be_in_the_log(page: Any, key: str, certificate: str) -> None:
    keep_key(page, key)
    page.fill("#id", certificate)
    page.click("#lookup button")
    page.locator("#document .verdict").wait_for()
    assert page.inner_text("#report .verdict-line") == "Valid."
    assert "epsilon" in page.inner_text("#document .main")
    # In a tree of its own, with the colours of this page.
    assert (
        page.evaluate("getComputedStyle(document.getElementById('document').shadowRoot.querySelector('.verdict')).borderTopWidth") == "2px"
    )
    with page.expect_download() as proof:
        page.click("#proofs")
    assert set(json.loads(proof.value.path().read_bytes())) == {"certificate", "plan", "time_stamps"}
    page.locator("#proved", has_text=re.compile(r"Entry \d+ of \d+")).wait_for()
    with page.expect_download() as pdf:
        page.click("#forms [data-form=pdf]")
    assert pdf.value.path().read_bytes().startswith(b"%PDF")
    # The browser asks for nothing that the policy forbids.
    assert page.complaints.lines == []
    page.set_viewport_size({"width": PHONE, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


@pytest.mark.slow
def test_a_file_takes_the_place_of_the_certificate_that_was_looked_up(page: Any, key: str, certificate: str) -> None:
    keep_key(page, key)
    page.fill("#id", certificate)
    page.click("#lookup button")
    page.locator("#forms").wait_for()
    assert choose(page, "something", b"no certificate") == "This isn't a certificate."
    assert not page.is_visible("#document")
    assert not page.is_visible("#forms")
    assert page.input_value("#id") == ""


@pytest.mark.slow
@pytest.mark.parametrize("refused", [False, True])
def test_proofs_of_an_earlier_certificate_are_not_told_beside_a_later_one(refused: bool, page: Any, key: str, certificate: str) -> None:
    keep_key(page, key)
    page.fill("#id", certificate)
    page.click("#lookup button")
    page.locator("#forms").wait_for()
    held: list[Any] = []
    page.route("**/proofs", lambda route: held.extend([route]))
    with page.expect_request("**/proofs"):
        page.click("#proofs")
    assert choose(page, "something", b"no certificate") == "This isn't a certificate."
    with page.expect_response("**/proofs"):
        held[0].fulfill(status=503, json={"detail": "Not now."}) if refused else held[0].continue_()
    page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert page.text_content("#proved") == ""


@pytest.mark.slow
def test_a_link_to_one_opens_it_once_there_is_a_key(page: Any, key: str, service: Service, certificate: str) -> None:
    page.goto(f"{service.address}/certificates#{certificate}")
    page.locator("#id-problem", has_text="needs a key").wait_for()
    keep_key(page, key)
    page.locator("#document .verdict").wait_for()


NOT_THERE = {"0" * 32: "no certificate with this id", "../jobs": "letters, digits", "<b>": "letters, digits"}


@pytest.mark.slow
@pytest.mark.parametrize("text", chosen(NOT_THERE, ["<b>"]))
def test_an_id_that_isnt_there_says_so(text: str, page: Any, key: str) -> None:
    keep_key(page, key)
    page.fill("#id", text)
    page.click("#lookup button")
    page.locator("#id-problem", has_text=NOT_THERE[text]).wait_for()


@pytest.mark.slow
def test_the_head_of_the_log_is_shown_and_saved(page: Any, client: httpx2.Client, certificate: str) -> None:
    page.reload()
    root = client.get("/v1/log").json()["checkpoint"].split("\n")[2]
    page.locator("#head", has_text=root).wait_for()
    # The log has plans beside certificates.
    assert page.locator("#head dt").all_inner_texts()[1] == "Entries (plans and certificates)"
    with page.expect_download() as head:
        page.click("#keep-head")
    assert json.loads(head.value.path().read_bytes()) == client.get("/v1/log").json()


LOOKS = """() => {
  const shown = (name) => Boolean(document.querySelector(name)?.checkVisibility());
  return [getComputedStyle(document.body).color, shown("header.top"), shown("#report"), shown("#document"), shown("#drop")];
}"""
BLACK = "rgb(0, 0, 0)"


@pytest.mark.slow
def test_what_is_printed_is_the_report_or_the_certificate_black_on_white(
    chromium: Any, service: Service, key: str, certificate: str, signed: bytes
) -> None:
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(f"{service.address}/certificates")
    choose(page, "certificate.json", signed)
    page.emulate_media(media="print")
    assert page.evaluate(LOOKS) == [BLACK, False, True, False, False]
    page.emulate_media(media="screen")
    keep_key(page, key)
    page.fill("#id", certificate)
    page.press("#id", "Enter")
    page.locator("#document .verdict").wait_for()
    page.emulate_media(media="print")
    assert page.evaluate(LOOKS) == [BLACK, False, False, True, False]
    context.close()
